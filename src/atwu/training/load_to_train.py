"""Load the model of a run, and add its adapters (LoRA, Hu et al. 2022).

Invalid combinations are rejected before any weights are read.
"""

from __future__ import annotations

import dataclasses
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from atwu._extras import require
from atwu.methods.recipe import Recipe
from atwu.modeling.adapters import Lora, adapters_of, attach, not_adapted, unmergeable
from atwu.modeling.layers import decoder_layers, output_matrices, unwrap
from atwu.modeling.load import (
    DTYPES,
    base_of,
    check_model_name,
    check_vocabulary,
    is_adapter,
    load_config,
    load_model,
    load_tokenizer,
    model_class,
    model_fingerprint,
    weight_bytes,
)
from atwu.modeling.open_model import ModelLoadArgs
from atwu.modeling.quantization import check_quantization
from atwu.modeling.scratch import scratch_config, scratch_model, scratch_shape
from atwu.modeling.tokenizer_file import template_arguments, template_text
from atwu.training.config import TokenTrainingConfig, UnlearnConfig
from atwu.training.progress import Say, silent


@dataclass(frozen=True, kw_only=True)
class ModelSource(ModelLoadArgs):
    """Source of a model and how to load it: a folder or Hub name, or an architecture to initialize randomly."""

    model: str | None = None
    scratch: str | None = None
    """Name of the architecture of a new, randomly initialized model."""
    tokenizer: str | None = None
    """Folder of a tokenizer for a new model; by default one is trained on the data."""
    weights: dataclasses.InitVar[bool] = True
    """Whether to check that the weights exist."""

    def __post_init__(self, weights: bool) -> None:
        if (self.model is None) == (self.scratch is None):
            raise ValueError("give exactly one of model (to start from) and scratch (a shape to train from scratch).")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, got {self.dtype!r}.")
        if self.chat_template is not None:
            template_text(self.chat_template)
        template_arguments(self.chat_template_kwargs)
        if self.model is not None:
            check_model_name(self.model, base=self.base, revision=self.revision, weights=weights)
        else:
            scratch_shape(str(self.scratch))
            if self.base is not None:
                raise ValueError(
                    f"base model {self.base!r} can only be used with an adapter folder, not with a new model."
                )

    def architecture(self) -> Any:
        if self.model is None:
            return scratch_config(str(self.scratch))
        return load_config(self.model, **self.load_kwargs)

    def inputs(self) -> dict[str, str | Path | None]:
        """What is read to load the model and its tokenizer -> folder, file or Hub name."""
        base = None
        if self.model is not None and is_adapter(self.model):
            base = base_of(self.model, base=self.base)
        return {
            "model": self.model,
            "base model": base,
            "tokenizer": self.tokenizer,
            "chat template": self.chat_template,
        }

    def weight_bytes(self) -> int:
        """Size of its weight files in bytes, 0 if unknown."""
        return (self.model is not None and weight_bytes(self.model, base=self.base)) or 0


def check_training(source: ModelSource, config: TokenTrainingConfig) -> int:
    """Check whether this model can be trained as configured, as far as possible without its weights.

    Returns:
        Size of a saved adapter in bytes, 0 for full fine-tuning.
    """
    if config.resume_from_checkpoint is not None:
        raise ValueError("a run resumes from its own last checkpoint automatically; leave resume_from_checkpoint out.")
    # Without scaling, gradients underflow in float16; with it, PyTorch's scaler refuses gradients that are float16 themselves.
    if source.dtype == "float16" and not config.lora_r:
        raise ValueError("float16 weights cannot be trained; use --dtype float32 --fp16, or bfloat16.")
    check_adapter_options(config)
    if config.lora_r == 0:
        if isinstance(config, UnlearnConfig) and config.reference == "adapters":
            raise ValueError("reference='adapters' needs LoRA; set lora_r (for example 16), or use cache or model.")
        return 0
    require("peft", extra="lora")
    named, architecture = source.model is not None and not is_adapter(source.model), source.architecture()
    if config.quantize is not None:
        if not named:
            raise ValueError(
                "quantize needs a pretrained model; it does not work with a new model or an adapter folder."
            )
        if config.use_cpu:
            raise ValueError(f"quantize={config.quantize!r} needs a CUDA device; leave out use_cpu or quantize.")
        check_quantization(config.quantize, loading=True)
    check_saved_adapter(source, config)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adapted: Any = with_adapters(
            model_without_weights(architecture, trust_remote_code=source.trust_remote_code), config
        )
    # A model without weights is not quantized; `check_mergeable` asks whether the real one will be.
    adapted.get_base_model().is_quantized = bool(config.quantize or getattr(architecture, "quantization_config", None))
    if not config.save_adapter:
        check_mergeable(adapted)
    # Adapters are float32, whatever the model is.
    return sum(4 * int(parameter.numel()) for parameter in adapted.parameters() if parameter.requires_grad)


def check_saved_adapter(source: ModelSource, config: TokenTrainingConfig) -> None:
    """Reject an adapter whose base model would be in no folder."""
    if config.save_adapter and (source.model is None or is_adapter(source.model)):
        raise ValueError(
            "save_adapter needs a named base model; it does not work with a new model or an adapter folder. Leave "
            "--save-adapter out; the result is then a full model."
        )


def check_adapter_options(config: TokenTrainingConfig) -> None:
    """Reject options of adapters without adapters."""
    for name, is_set in (("quantize", config.quantize is not None), ("save_adapter", config.save_adapter)):
        if is_set and not config.lora_r:
            raise ValueError(f"{name} needs LoRA adapters; set their rank too: lora_r (for example 16).")


def load_checked_tokenizer(source: ModelSource) -> Any:
    name = str(source.model or source.tokenizer)
    tokenizer = load_tokenizer(name, **source.tokenizer_kwargs)
    check_vocabulary(tokenizer, source.architecture(), name=name)
    return tokenizer


def space_needed(model_bytes: int, config: TokenTrainingConfig, adapter_bytes: int) -> int:
    """Return the disk space needed for the result, the kept checkpoints (weights and two Adam moments) and one being
    written."""
    trained = adapter_bytes or model_bytes
    result = model_bytes
    if config.save_adapter:
        result = adapter_bytes
    if config.save_strategy == "no":
        return result
    kept = config.save_total_limit or 2  # without a limit the number is unknown
    return result + 3 * trained * (kept + 1)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    model: nn.Module
    """The model, with the run's adapters if any."""
    lora: Lora | None = None
    source: ModelSource | None = None
    """Source of the model, if it was loaded by name."""
    fingerprint: str | None = None
    """Fingerprint of the model without adapters, if known."""


def load_to_train(
    source: ModelSource, config: TokenTrainingConfig, say: Say = silent, *, model: Any = None
) -> LoadedModel:
    """Load the model of a run and add its adapters.

    Args:
        model: the same model, if it is in memory; its weights are trained in place.
    """
    check_adapter_options(config)
    model = load_source(source, config, say, model=model)
    # Before adapters are added: a run is identified by its original model.
    fingerprint, lora = model_fingerprint(model), lora_of(config, model)
    if lora is not None:
        model = attach(model, lora, seed=config.seed, revision=source.revision)
        trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
        message = f"training adapters of rank {lora.r}: {trained:,} parameters"
        if lora.targets is None:  # who named the targets knows what has none
            without = not_adapted(model)
            if without:
                message += f"; none on {without}"
        say(message)
        if not config.save_adapter:
            check_mergeable(model)
    return LoadedModel(model, lora, source, fingerprint)


def load_as_is(model: nn.Module, config: TokenTrainingConfig) -> LoadedModel:
    """Prepare a model that is already in memory: add the run's adapters, unless it has some."""
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"model must be a causal language model, got {type(model).__name__}; load one with AutoModelForCausalLM."
        )
    if config.quantize is not None:
        raise ValueError("quantize needs a model by name; pass its name instead of the loaded model.")
    lora = None
    if adapters_of(model) is None:
        check_adapter_options(config)
        lora = lora_of(config, model)
    fingerprint = model_fingerprint(unwrap(model))
    return LoadedModel(with_adapters(model, config), lora, None, fingerprint)


def load_source(source: ModelSource, config: TokenTrainingConfig, say: Say, *, model: Any = None) -> Any:
    """Load the original model, unless it is in memory, without new adapters; warns about loss of precision."""
    if source.model is None:
        return scratch_model(str(source.scratch), seed=config.seed)
    if model is None:
        model = load_model(source.model, dtype=source.dtype, quantize=config.quantize, **source.load_kwargs)
    # Loading has merged the adapter of a folder, if it can be merged.
    adapted = adapters_of(model)
    if adapted is not None:
        raise ValueError(
            f"the adapter {source.model} cannot be merged into its base model ({unmergeable(adapted)}), so there is "
            "no full model to start from."
        )
    dtype = next(model.parameters()).dtype
    if config.lora_r:
        if dtype == torch.float16 and not config.fp16:
            say("warning: small gradients underflow in float16; --fp16 scales them")
        if dtype in (torch.float16, torch.bfloat16) and not config.save_adapter:
            say(
                f"warning: merging rounds the adapters to the model's {str(dtype).partition('.')[2]}; use "
                "--save-adapter to keep them exact, or --dtype float32 for the whole model"
            )
    elif dtype == torch.float16:
        raise ValueError(f"{source.model} has float16 weights, which cannot be trained; add --dtype float32.")
    # Adam changes a weight by about the learning rate, and bfloat16 rounds away what is below about a 256th of the weight.
    elif dtype == torch.bfloat16 and 0 < config.learning_rate < 1e-4:
        say(
            "warning: in bfloat16 weights many updates are lost to rounding at learning rate "
            f"{config.learning_rate:g}; --dtype float32 --bf16 avoids this"
        )
    return model


def lora_of(config: TokenTrainingConfig, model: nn.Module) -> Lora | None:
    """Return the adapters of a run on a model, or None for full fine-tuning.

    A forget loss that trains only some layers (RMU: Li et al. 2024) gets adapters on their MLP outputs.
    """
    lora = config.lora()
    if lora is None or not isinstance(config, UnlearnConfig):
        return lora
    layers = trained_layers(config.recipe(), model)
    if layers is None:
        return lora
    stack = decoder_layers(unwrap(model))
    outputs = tuple(f"{index}.{name}" for index in layers for name in output_matrices(stack[index]))
    if all(name.endswith("down_proj") for name in outputs):
        outputs = ("down_proj",)  # short in the record of the run; `layers` says which
    return dataclasses.replace(lora, targets=lora.targets or outputs, layers=layers)


def trained_layers(recipe: Recipe, model: nn.Module) -> tuple[int, ...] | None:
    """Return the decoder layers whose MLP output matrices are trained exclusively; None for methods that train all
    weights.
    """
    # Whether a loss trains single layers does not depend on their number, which only some architectures tell.
    if recipe.forget_component.trained_layers(1) is None:
        return None
    layers = len(decoder_layers(unwrap(model)))
    recipe.layer(layers)  # refuses a layer that the model does not have
    return recipe.forget_component.trained_layers(layers)


def with_adapters(model: nn.Module, config: TokenTrainingConfig) -> nn.Module:
    """Add the run's adapters to the model in place; a model that has adapters or needs none is returned unchanged."""
    lora = lora_of(config, model)
    if lora is None or adapters_of(model) is not None:
        return model
    return attach(model, lora, seed=config.seed)


def check_mergeable(adapted: Any) -> None:
    reason = unmergeable(adapted)
    if reason:
        raise ValueError(f"these adapters cannot be merged: {reason}. Pass --save-adapter (save_adapter=True).")


def model_without_weights(architecture: Any, *, trust_remote_code: bool) -> nn.Module:
    """Build the model from its configuration on the meta device."""
    with torch.device("meta"):
        model: nn.Module = model_class(architecture).from_config(architecture, trust_remote_code=trust_remote_code)
    return model
