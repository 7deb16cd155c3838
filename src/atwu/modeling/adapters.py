"""Low-rank adapters (LoRA, Hu et al. 2022): attach, disable and merge them.

An adapted model still contains the original model: with adapters disabled, its outputs are bitwise those of the original.
"""

from __future__ import annotations

import contextlib
import math
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from atwu._extras import require
from atwu.modeling.adapter_targets import check_adapted, peft_targets, select_weights
from atwu.modeling.layers import unwrap
from atwu.modeling.modes import eval_mode
from atwu.modeling.named_models import stable_name

if TYPE_CHECKING:
    from peft import PeftModel


@dataclass(frozen=True, slots=True)
class Lora:
    """Settings of LoRA: train `W x + (alpha / r) B A dropout(x)` for every selected linear layer or expert `W`."""

    r: int
    """Rank of the update; larger ranks are more expressive and need more memory."""
    alpha: float | None = None
    """Numerator of the scale; default `2 r`."""
    targets: tuple[str, ...] | None = None
    """Suffixes of names of linear layers or experts, such as `q_proj`; None for all of the decoder except routers."""
    dropout: float = 0.0
    layers: tuple[int, ...] | None = None
    """Restrict to these decoder layers, counted from 0."""

    def __post_init__(self) -> None:
        if self.r < 1:
            raise ValueError(f"the LoRA rank r must be a whole number >= 1, got {self.r!r}.")
        if self.alpha is None:
            object.__setattr__(self, "alpha", 2.0 * self.r)
        elif not 0 < self.alpha < math.inf:
            raise ValueError(f"the LoRA alpha must be a finite number > 0, got {self.alpha}.")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"the LoRA dropout must be at least 0 and below 1, got {self.dropout}.")
        if self.targets == () or self.layers == ():
            raise ValueError("LoRA targets and layers must be None or not empty.")


def attach(model: nn.Module, lora: Lora, *, seed: int, revision: str | None = None) -> PeftModel:
    """Attach new adapters to a model; its own weights are frozen, and its output and mode do not change.

    Args:
        model: a causal language model, quantized or not; changed in place.
        revision: revision of the model, saved with the adapters.
    """
    peft = require("peft", extra="lora")
    if adapters_of(model) is not None:
        raise ValueError("the model has adapters already; merge them before attaching others.")
    base: Any = unwrap(model)
    was_training = base.training
    weights = select_weights(base, lora.targets, lora.layers)
    modules, parameters = peft_targets(base, weights, dropout=lora.dropout)
    config = peft.LoraConfig(
        r=lora.r,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=modules,
        target_parameters=parameters or None,
        revision=revision,
        task_type="CAUSAL_LM",
    )
    with quiet_peft(), torch.random.fork_rng(devices=[]):
        # New layers are initialized on the CPU for any device of the model.
        torch.default_generator.manual_seed(seed)
        adapted: PeftModel = peft.get_peft_model(base, config)
    check_adapted(adapted, weights)
    recorded = Path(str(config.base_model_name_or_path or ""))
    if recorded != Path() and recorded.is_dir():
        config.base_model_name_or_path = stable_name(recorded.resolve())
    adapted.train(was_training)
    return adapted


def adapters_of(model: nn.Module) -> PeftModel | None:
    """Return the adapted model inside DDP, compile and other wrappers, or None without adapters."""
    peft: Any = sys.modules.get("peft")
    inner = unwrap(model)
    # If peft is not imported, the model cannot be one of its models; importing it takes seconds.
    adapted: PeftModel | None = inner if peft is not None and isinstance(inner, peft.PeftModel) else None
    return adapted


@contextlib.contextmanager
def original_model(model: nn.Module) -> Iterator[nn.Module]:
    """Turn an adapted model into its original model within a context: adapters disabled, evaluation mode.

    On exit, gradients, `requires_grad` and the train/eval mode of every module are unchanged.
    """
    adapted = adapters_of(model)
    if adapted is None:
        raise ValueError(f"{type(unwrap(model)).__name__} has no adapters, so it does not contain the original model.")
    # peft's own switch also changes requires_grad of adapters; sharded ones would stay frozen.
    enabled: list[Any] = [module for module in adapted.modules() if getattr(module, "disable_adapters", None) is False]
    try:
        for module in enabled:
            module._disable_adapters = True
        with eval_mode(model):
            yield model
    finally:
        for module in enabled:
            module._disable_adapters = False


def merge_adapters(model: nn.Module) -> Any:
    """Merge the adapters into the weights and return the plain transformers model, fully trainable.

    The given model cannot be used afterwards. Half-precision weights round the update to their own precision.
    """
    adapted = adapters_of(model)
    if adapted is None:
        raise ValueError(f"{type(unwrap(model)).__name__} has no adapters to merge.")
    if reason := unmergeable(adapted):
        raise ValueError(f"the adapters cannot be merged: {reason}. Save the adapter and load it with its base model.")
    was_training = adapted.training
    with quiet_peft():
        plain: Any = adapted.merge_and_unload()  # in place: `safe_merge` would need twice the memory
    if not all(bool(torch.isfinite(parameter).all()) for parameter in plain.parameters()):
        raise ValueError("the adapters cannot be merged: merged weights are NaN or infinite.")
    # The weights differ from those of that name; an adapter trained on them must not refer to it.
    plain.name_or_path = plain.config._name_or_path = ""
    return plain.requires_grad_(True).train(was_training)


def unmergeable(adapted: PeftModel) -> str | None:
    """Return why merging the adapters would change the outputs of the model, or None if it would not."""
    base: Any = adapted.get_base_model()
    if getattr(base, "is_quantized", False):
        return "the base model is quantized, so its weights cannot represent the sum"
    ends = [base.get_input_embeddings(), base.get_output_embeddings()]
    weights = [getattr(end, "weight", None) for end in ends]
    adapted_ends = any(hasattr(end, "base_layer") for end in ends)
    if adapted_ends and weights[0] is not None and weights[0] is weights[1]:
        return "the output layer shares its weights with the embeddings, but only one of them is adapted"
    return None


@contextlib.contextmanager
def quiet_peft() -> Iterator[None]:
    """Hide peft's warnings about deprecated transformers names, and about base models named by a GGUF file."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
        warnings.filterwarnings("ignore", "Could not find a config file", UserWarning)
        yield


def equals_base(model: nn.Module) -> bool:
    """Return whether the model equals its base: it has no adapters, or only untrained ones."""
    adapted = adapters_of(model)
    if adapted is None:
        return True
    return not any(bool(p.detach().any()) for name, p in adapted.named_parameters() if "lora_B" in name)
