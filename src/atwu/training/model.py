"""The model of a run: where it comes from, its adapters (LoRA, Hu et al. 2022), and saving it.

What cannot work is found before any weights are read.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from atwu._extras import require
from atwu.methods.recipe import Recipe
from atwu.modeling.adapters import Lora, adapters_of, attach, merged, unmergeable
from atwu.modeling.fingerprint import model_fingerprint
from atwu.modeling.layers import decoder_layers
from atwu.modeling.load import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    DTYPES,
    add_adapter,
    check_model_name,
    check_quantize,
    check_vocabulary,
    is_adapter,
    load_config,
    load_model,
    load_tokenizer,
    weight_bytes,
)
from atwu.modeling.scratch import scratch_config, scratch_model, scratch_shape
from atwu.modeling.single_pass import unwrap
from atwu.training.config import TokenTrainingConfig, UnlearnConfig
from atwu.training.output import OutputFolder

if TYPE_CHECKING:
    from atwu.training.base import TokenTrainer

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """Where a model comes from: a folder or Hub name, or a shape to build from nothing."""

    model: str | None = None
    scratch: str | None = None
    """Shape name for a new, randomly initialised model."""
    tokenizer: str | None = None
    """Folder of a tokenizer for a scratch model; without it one is trained on the data."""
    dtype: str = "auto"
    trust_remote_code: bool = False
    revision: str | None = None
    base: str | None = None
    """Base model of an adapter folder, instead of the one it names."""

    def __post_init__(self) -> None:
        if (self.model is None) == (self.scratch is None):
            raise ValueError("name either a model to start from or a shape to build, not both and not neither.")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, got {self.dtype!r}.")
        if self.model is not None:
            check_model_name(self.model, base=self.base)
        else:
            scratch_shape(str(self.scratch))
            if self.base is not None:
                raise ValueError(f"a base model ({self.base!r}) goes with an adapter folder, not with a new model.")

    def architecture(self) -> Any:
        """The model's configuration, as transformers has it."""
        if self.model is None:
            return scratch_config(str(self.scratch))
        return load_config(self.model, trust_remote_code=self.trust_remote_code, revision=self.revision, base=self.base)


def check_training(source: ModelSource, config: TokenTrainingConfig) -> int:
    """Whether this model can be trained as configured, as far as can be told without its weights.

    Returns:
        Bytes of a saved adapter, 0 for a run on all weights.

    Raises:
        ValueError, ImportError: see the message.
    """
    if source.dtype == "float16" and not config.lora_r:
        raise ValueError("float16 weights cannot be trained; use --dtype float32 --fp16, or bfloat16.")
    named = source.model is not None and not is_adapter(source.model)
    return check_lora(
        config,
        source.architecture() if config.lora_r else None,
        named=named,
        trust_remote_code=source.trust_remote_code,
    )


def checked_tokenizer(
    source: ModelSource, folder: OutputFolder, config: TokenTrainingConfig, *, adapter_bytes: int
) -> Any:
    """The tokenizer, checked against the model's vocabulary; also checks disk space where the size is known."""
    if source.model is None:
        tokenizer = load_tokenizer(str(source.tokenizer))
        check_vocabulary(tokenizer, source.architecture(), name=str(source.tokenizer))
        return tokenizer
    tokenizer = load_tokenizer(
        source.model, trust_remote_code=source.trust_remote_code, revision=source.revision, base=source.base
    )
    check_vocabulary(tokenizer, source.architecture(), name=source.model)
    if size := weight_bytes(source.model, base=source.base):
        folder.check_space(space_needed(size, config, adapter_bytes))
    return tokenizer


def space_needed(model_bytes: int, config: TokenTrainingConfig, adapter_bytes: int) -> int:
    """Bytes of the result, and of a checkpoint (what is trained, two optimizer moments) and its successor being written."""
    trained = adapter_bytes or model_bytes
    result = adapter_bytes if config.save_adapter else model_bytes
    return result if config.save_strategy == "no" else result + 6 * trained


def load_source(source: ModelSource, config: TokenTrainingConfig, say: Say) -> Any:
    """The model in its starting state, without new adapters; warns of precision that gets lost.

    Raises:
        ValueError: weights that cannot be trained.
    """
    if source.model is None:
        return scratch_model(str(source.scratch), seed=config.seed)
    model = load_model(
        source.model,
        dtype=source.dtype,
        trust_remote_code=source.trust_remote_code,
        revision=source.revision,
        base=source.base,
        quantize=config.quantize,
    )
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
    elif dtype == torch.bfloat16 and config.learning_rate < 1e-4:
        say(
            f"warning: bfloat16 weights round away many updates at learning rate {config.learning_rate:g}; "
            "--dtype float32 --bf16 keeps them"
        )
    return model


def lora_of(config: TokenTrainingConfig, model: nn.Module) -> Lora | None:
    """The adapters of a run on a model, or None for a run on all weights.

    A forget loss that trains some layers only (RMU: Li et al. 2024) gets them on `down_proj` of these.
    """
    lora = config.lora()
    if lora is None or not isinstance(config, UnlearnConfig):
        return lora
    layers = trained_layers(config.recipe(), model)
    return lora if layers is None else dataclasses.replace(lora, targets=lora.targets or ("down_proj",), layers=layers)


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
    """The model with the adapters of a run on it; a model that has some already, or needs none, is returned as it is.

    Args:
        model: in its starting state; changed in place.
        config: of the run; its seed decides the adapters' first values.

    Raises:
        ValueError: a target or layer that the model does not have.
    """
    lora = lora_of(config, model)
    return model if lora is None or adapters_of(model) is not None else attach(model, lora, seed=config.seed)


def check_lora(config: TokenTrainingConfig, architecture: Any, *, named: bool, trust_remote_code: bool = False) -> int:
    """Check a run with adapters before any weights are read.

    Args:
        config: of the run.
        architecture: configuration of the model, as transformers has it.
        named: the model is one that an adapter can name as its base.
        trust_remote_code: run model code that comes with the checkpoint.

    Returns:
        Bytes that a saved adapter takes; 0 for a run on all weights.

    Raises:
        ValueError: adapters that do not fit the model or the kind of result, or a place that cannot quantise.
        ImportError: an optional package is missing.
    """
    if config.lora_r == 0:
        if isinstance(config, UnlearnConfig) and config.reference == "adapters":
            raise ValueError("reference='adapters' needs a run with LoRA; set lora_r (say 16), or use cache or model.")
        return 0
    require("peft", extra="lora")
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
        adapted: Any = with_adapters(_without_weights(architecture, trust_remote_code=trust_remote_code), config)
    adapted.get_base_model().is_quantized = _quantized(config, architecture)
    if not config.save_adapter:
        check_mergeable(adapted)
    return sum(4 * int(parameter.numel()) for parameter in adapted.parameters() if parameter.requires_grad)


def check_mergeable(adapted: Any) -> None:
    """Refuse adapters that cannot be added to the weights.

    Raises:
        ValueError: naming the reason, and the option to save the adapter.
    """
    if reason := unmergeable(adapted):
        raise ValueError(f"these adapters cannot be merged: {reason}. Pass --save-adapter (save_adapter=True).")


def _quantized(config: TokenTrainingConfig, architecture: Any) -> bool:
    return config.quantize is not None or getattr(architecture, "quantization_config", None) is not None


def _without_weights(architecture: Any, *, trust_remote_code: bool) -> nn.Module:
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model: nn.Module = AutoModelForCausalLM.from_config(architecture, trust_remote_code=trust_remote_code)
    return model


def save_result(trainer: TokenTrainer, source: ModelSource, folder: Path) -> str:
    """Write the result with its tokenizer and scorer; every process calls this once, after training.

    Merging uses up the trainer's model. Sharded weights are gathered on disk and go on from there in the first process.

    Args:
        trainer: after training.
        source: the model it started from.
        folder: for the result.

    Returns:
        Fingerprint of the result, in the first process.
    """
    config, sharded = trainer.args, trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled
    model = trainer.accelerator.unwrap_model(trainer.model)
    adapted = adapters_of(model) is not None
    merge = adapted and not config.save_adapter
    if merge and not sharded:
        trainer.model = model = merged(model)
    trainer.save_model(str(folder), _internal_call=True)
    trainer.accelerator.wait_for_everyone()
    if config.process_index != 0:
        return ""
    if sharded:
        model = read_back(source, config, folder, merge=merge) if adapted else load_model(str(folder))
    return model_fingerprint(model)


def read_back(source: ModelSource, config: TokenTrainingConfig, folder: Path, *, merge: bool) -> Any:
    """The base model with the adapter that lies in a folder; a merged one replaces the adapter there."""
    model = add_adapter(load_source(source, config, lambda _: None), str(folder), merge=merge)
    if merge:
        model.save_pretrained(folder)
        for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS, "README.md"):
            (folder / name).unlink(missing_ok=True)
    return model
