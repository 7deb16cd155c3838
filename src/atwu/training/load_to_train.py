"""The model of a run: where it comes from, and its adapters (LoRA, Hu et al. 2022).

What cannot work is found before any weights are read.
"""

from __future__ import annotations

import dataclasses
import warnings
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import nn

from atwu._extras import require
from atwu.methods.recipe import Recipe
from atwu.modeling.adapter_targets import not_adapted
from atwu.modeling.adapters import Lora, adapters_of, attach, unmergeable
from atwu.modeling.fingerprint import model_fingerprint
from atwu.modeling.layers import decoder_layers, output_matrices
from atwu.modeling.load import (
    DTYPES,
    check_model_name,
    check_quantize,
    check_vocabulary,
    is_adapter,
    load_config,
    load_model,
    load_tokenizer,
    weight_bytes,
)
from atwu.modeling.open_model import ModelLoadArgs
from atwu.modeling.scratch import scratch_config, scratch_model, scratch_shape
from atwu.modeling.single_pass import unwrap
from atwu.training.config import TokenTrainingConfig, UnlearnConfig
from atwu.training.progress import Say, silent

Config = TypeVar("Config", bound=TokenTrainingConfig)


@dataclass(frozen=True, kw_only=True)
class ModelSource(ModelLoadArgs):
    """Where a model comes from, and how it is read: a folder or Hub name, or a shape to build from nothing."""

    model: str | None = None
    scratch: str | None = None
    """Shape name for a new, randomly initialised model."""
    tokenizer: str | None = None
    """Folder of a tokenizer for a scratch model; without it one is trained on the data."""
    weights: dataclasses.InitVar[bool] = True
    """Whether its weights have to be there."""

    def __post_init__(self, weights: bool) -> None:
        if (self.model is None) == (self.scratch is None):
            raise ValueError("name either a model to start from or a shape to build, not both and not neither.")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, got {self.dtype!r}.")
        if self.model is not None:
            check_model_name(self.model, base=self.base, weights=weights)
        else:
            scratch_shape(str(self.scratch))
            if self.base is not None:
                raise ValueError(f"a base model ({self.base!r}) goes with an adapter folder, not with a new model.")

    def architecture(self) -> Any:
        """The model's configuration, as transformers has it."""
        if self.model is None:
            return scratch_config(str(self.scratch))
        return load_config(self.model, **self.load_kwargs)

    def weight_bytes(self) -> int:
        """Size of its weight files, 0 where that is not known."""
        return (self.model is not None and weight_bytes(self.model, base=self.base)) or 0


def check_training(source: ModelSource, config: TokenTrainingConfig) -> int:
    """Whether this model can be trained as configured, as far as can be told without its weights.

    Returns:
        Bytes of a saved adapter, 0 for a run on all weights.

    Raises:
        ValueError, ImportError: see the message.
    """
    if config.resume_from_checkpoint is not None:
        raise ValueError("a run goes on from its own last checkpoint by itself; leave resume_from_checkpoint out.")
    if source.dtype == "float16" and not config.lora_r:
        raise ValueError("float16 weights cannot be trained; use --dtype float32 --fp16, or bfloat16.")
    if config.lora_r == 0:
        if isinstance(config, UnlearnConfig) and config.reference == "adapters":
            raise ValueError("reference='adapters' needs a run with LoRA; set lora_r (say 16), or use cache or model.")
        return 0
    require("peft", extra="lora")
    named, architecture = source.model is not None and not is_adapter(source.model), source.architecture()
    if config.quantize is not None:
        if not named:
            raise ValueError("quantize loads a model in fewer bits; a new model and an adapter folder cannot be.")
        if config.use_cpu:
            raise ValueError(f"quantize={config.quantize!r} needs a CUDA device; leave out use_cpu or quantize.")
        check_quantize(config.quantize)
    if config.save_adapter and not named:
        raise ValueError(
            "save_adapter needs a base model that the adapter can name; a new model and an adapter folder are none. "
            "Leave --save-adapter out: the result is then a whole model."
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adapted: Any = with_adapters(
            model_without_weights(architecture, trust_remote_code=source.trust_remote_code), config
        )
    adapted.get_base_model().is_quantized = bool(config.quantize or getattr(architecture, "quantization_config", None))
    if not config.save_adapter:
        check_mergeable(adapted)
    return sum(4 * int(parameter.numel()) for parameter in adapted.parameters() if parameter.requires_grad)


def load_checked_tokenizer(source: ModelSource) -> Any:
    """The tokenizer, checked against the model's vocabulary."""
    name = str(source.model or source.tokenizer)
    tokenizer = load_tokenizer(name, **source.load_kwargs)
    check_vocabulary(tokenizer, source.architecture(), name=name)
    return tokenizer


def with_lora(config: Config, given: Any) -> Config:
    """A configuration with the adapters of a peft `LoraConfig`.

    Raises:
        ValueError: adapters of another kind, both this and `lora_r`, or something set that has no counterpart.
    """
    peft = require("peft", extra="lora")
    if not isinstance(given, peft.LoraConfig) or config.lora_r:
        what = f"got {type(given).__name__}" if not config.lora_r else f"and lora_r={config.lora_r} is set as well"
        raise ValueError(f"peft_config must be a LoraConfig, {what}; adapters are described once.")
    plain, default = given.to_dict(), peft.LoraConfig().to_dict()
    known = {"r", "lora_alpha", "lora_dropout", "target_modules", "target_parameters", "task_type", "inference_mode"}
    if others := sorted(name for name in plain if name not in known and plain[name] != default[name]):
        raise ValueError(f"peft_config sets {', '.join(others)}, which adapters here do not have.")
    targets = given.target_modules
    if targets == "all-linear" and not given.target_parameters:
        targets = None
    if isinstance(targets, str):
        what = "all-linear beside target_parameters" if targets == "all-linear" else f"the pattern {targets!r}"
        raise ValueError(f"target_modules of peft_config must be a list of names here, got {what}.")
    names = (
        None
        if targets is None and not given.target_parameters
        else {*(targets or ()), *(given.target_parameters or ())}
    )
    return dataclasses.replace(
        config,
        lora_r=given.r,
        lora_alpha=given.lora_alpha,
        lora_dropout=given.lora_dropout,
        lora_targets=None if names is None else ",".join(sorted(names)),
    )


def space_needed(model_bytes: int, config: TokenTrainingConfig, adapter_bytes: int) -> int:
    """Bytes of the result, and of the checkpoints kept (what is trained, two optimizer moments) and one being written."""
    trained = adapter_bytes or model_bytes
    result = adapter_bytes if config.save_adapter else model_bytes
    kept = config.save_total_limit or 2  # of all of them nobody knows how many there will be
    return result if config.save_strategy == "no" else result + 3 * trained * (kept + 1)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A run's model before its first step."""

    model: nn.Module
    """With the run's adapters, if it has any."""
    lora: Lora | None = None
    """These adapters."""
    source: ModelSource | None = None
    """Where the model comes from, if it was loaded by name."""
    fingerprint: str | None = None
    """Of the model without adapters, if it is known."""


def load_to_train(source: ModelSource, config: TokenTrainingConfig, say: Say = silent) -> LoadedModel:
    """Load a run's model and put its adapters on.

    Raises:
        ValueError: weights that cannot be trained.
    """
    model = load_source(source, config, say)
    fingerprint, lora = model_fingerprint(model), lora_of(config, model)
    if lora is not None:
        model = attach(model, lora, seed=config.seed, revision=source.revision)
        trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
        without = not_adapted(model) if lora.targets is None else ""
        say(f"training adapters of rank {lora.r}: {trained:,} parameters" + (f"; none on {without}" if without else ""))
        if not config.save_adapter:
            check_mergeable(model)
    return LoadedModel(model, lora, source, fingerprint)


def load_as_is(model: nn.Module, config: TokenTrainingConfig) -> LoadedModel:
    """A model that is in memory already, with the adapters of a run on it; one that has some keeps those."""
    lora = None if adapters_of(model) is not None else lora_of(config, model)
    fingerprint = model_fingerprint(unwrap(model))
    return LoadedModel(with_adapters(model, config), lora, None, fingerprint)


def load_source(source: ModelSource, config: TokenTrainingConfig, say: Say) -> Any:
    """The model in its starting state, without new adapters; warns of precision that gets lost.

    Raises:
        ValueError: weights that cannot be trained.
    """
    if source.model is None:
        return scratch_model(str(source.scratch), seed=config.seed)
    model = load_model(source.model, dtype=source.dtype, quantize=config.quantize, **source.load_kwargs)
    if (adapted := adapters_of(model)) is not None:
        raise ValueError(
            f"the adapter {source.model} cannot be merged into its base model ({unmergeable(adapted)}), so there is no "
            "whole model to start from."
        )
    dtype = next(model.parameters()).dtype
    if config.lora_r:
        if dtype == torch.float16 and not config.fp16:
            say("warning: small gradients vanish in float16; --fp16 scales them")
        if dtype in (torch.float16, torch.bfloat16) and not config.save_adapter:
            say(
                f"warning: merging rounds the adapters to the model's {str(dtype).partition('.')[2]}; --save-adapter "
                "keeps them as they are, --dtype float32 the whole model"
            )
    elif dtype == torch.float16:
        raise ValueError(f"{source.model} has float16 weights, which cannot be trained; add --dtype float32.")
    elif dtype == torch.bfloat16 and 0 < config.learning_rate < 1e-4:
        say(
            f"warning: bfloat16 weights round away many updates at learning rate {config.learning_rate:g}; "
            "--dtype float32 --bf16 keeps them"
        )
    return model


def lora_of(config: TokenTrainingConfig, model: nn.Module) -> Lora | None:
    """The adapters of a run on a model, or None for a run on all weights.

    A forget loss that trains some layers only (RMU: Li et al. 2024) gets them on the MLP outputs of these.
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
        outputs = ("down_proj",)
    return dataclasses.replace(lora, targets=lora.targets or outputs, layers=layers)


def trained_layers(recipe: Recipe, model: nn.Module) -> tuple[int, ...] | None:
    """Decoder layers whose MLP output matrices alone are trained; None for a method that trains all weights.

    Raises:
        ValueError: the layer was set by the user and the model has none of that index.
    """
    if recipe.forgetter.trained_layers(1) is None:
        return None
    layers = len(decoder_layers(unwrap(model)))
    recipe.layer(layers)
    return recipe.forgetter.trained_layers(layers)


def with_adapters(model: nn.Module, config: TokenTrainingConfig) -> nn.Module:
    """The model, changed in place, with the adapters of a run on it; one that has some already, or needs none, stays as it is.

    Raises:
        ValueError: a target or layer that the model does not have.
    """
    lora = lora_of(config, model)
    return model if lora is None or adapters_of(model) is not None else attach(model, lora, seed=config.seed)


def check_mergeable(adapted: Any) -> None:
    """Refuse adapters that cannot be added to the weights.

    Raises:
        ValueError: naming the reason, and the option to save the adapter.
    """
    if reason := unmergeable(adapted):
        raise ValueError(f"these adapters cannot be merged: {reason}. Pass --save-adapter (save_adapter=True).")


def model_without_weights(architecture: Any, *, trust_remote_code: bool) -> nn.Module:
    """The model as its configuration describes it, on the meta device."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model: nn.Module = AutoModelForCausalLM.from_config(architecture, trust_remote_code=trust_remote_code)
    return model
