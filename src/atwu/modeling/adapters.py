"""Low-rank adapters (LoRA, Hu et al. 2022): attaching them, switching them off, merging them into the weights.

An adapted model still holds the starting model: with its adapters off it gives the starting model's numbers, bit for bit.
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
from atwu.modeling.modes import eval_mode
from atwu.modeling.single_pass import unwrap

if TYPE_CHECKING:
    from peft import PeftModel


@dataclass(frozen=True, slots=True)
class Lora:
    """Which low-rank updates to train: `W x + (alpha / r) B A dropout(x)` for every chosen linear layer or expert `W`."""

    r: int
    """Rank of the update; larger can change more and takes more memory."""
    alpha: float | None = None
    """Numerator of the update's scale; `2 r` when left out."""
    targets: tuple[str, ...] | None = None
    """Ends of the names of linear layers or experts, such as `q_proj`; None for all of the decoder but routers."""
    dropout: float = 0.0
    layers: tuple[int, ...] | None = None
    """Only these decoder layers, counted from 0."""

    def __post_init__(self) -> None:
        if isinstance(self.r, bool) or not isinstance(self.r, int) or self.r < 1:
            raise ValueError(f"the LoRA rank r must be a whole number >= 1, got {self.r!r}.")
        if self.alpha is None:
            object.__setattr__(self, "alpha", 2.0 * self.r)
        elif not 0 < self.alpha < math.inf:
            raise ValueError(f"the LoRA alpha must be a finite number > 0, got {self.alpha}.")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"the LoRA dropout must be at least 0 and below 1, got {self.dropout}.")
        for name, example in (("targets", "('q_proj', 'v_proj')"), ("layers", "(0, 1)")):
            given = getattr(self, name)
            if given is None:
                continue
            if isinstance(given, str) or not given:
                raise ValueError(f"LoRA {name} must be None or not empty, such as {example}, got {given!r}.")
            object.__setattr__(self, name, tuple(given))
        if self.layers is not None and any(isinstance(i, bool) or not isinstance(i, int) or i < 0 for i in self.layers):
            raise ValueError(f"LoRA layers are whole numbers counted from 0, got {self.layers}.")


def attach(model: nn.Module, lora: Lora, *, seed: int, revision: str | None = None) -> PeftModel:
    """Put fresh adapters on a model; its own weights are frozen, and its output does not change yet.

    Args:
        model: a causal language model, quantized or not; it is changed in place.
        lora: which adapters.
        seed: decides their initial values; equal seeds give equal adapters.
        revision: that of the model, which the adapters name when they are saved.

    Returns:
        The adapted model, in the train/eval state of the given one.

    Raises:
        ValueError: a target or layer that the model does not have, weights that peft cannot adapt, or a model that has
            adapters already.
    """
    peft = require("peft", extra="lora")
    if adapters_of(model) is not None:
        raise ValueError("the model has an adapter already; merge it before attaching another.")
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
        # New layers start on the CPU whatever the model's device.
        torch.default_generator.manual_seed(seed)
        adapted: PeftModel = peft.get_peft_model(base, config)
    check_adapted(adapted, weights)
    recorded = Path(str(config.base_model_name_or_path or ""))
    if recorded != Path() and recorded.is_dir():
        config.base_model_name_or_path = str(recorded.resolve())
    adapted.train(was_training)
    return adapted


def adapters_of(model: nn.Module) -> PeftModel | None:
    """The adapted model inside DDP, compile and other wrappers, or None when there are no adapters."""
    peft: Any = sys.modules.get("peft")
    inner = unwrap(model)
    # Without peft imported nothing can be one of its models, and importing it takes seconds.
    adapted: PeftModel | None = inner if peft is not None and isinstance(inner, peft.PeftModel) else None
    return adapted


@contextlib.contextmanager
def original_model(model: nn.Module) -> Iterator[nn.Module]:
    """Let an adapted model be its starting model for a while: adapters off, evaluation mode.

    Gradients, `requires_grad` and the train/eval state of every part are as before afterwards.

    Raises:
        ValueError: the model has no adapters, so the starting model is not inside it.
    """
    adapted = adapters_of(model)
    if adapted is None:
        raise ValueError(f"{type(unwrap(model)).__name__} has no adapters, so it does not hold its starting model.")
    # Not by peft's own switch, which also freezes adapters and thaws them: sharded ones would stay frozen.
    on: list[Any] = [part for part in adapted.modules() if getattr(part, "disable_adapters", None) is False]
    try:
        for part in on:
            part._disable_adapters = True
        with eval_mode(model):
            yield model
    finally:
        for part in on:
            part._disable_adapters = False


def merge_adapters(model: nn.Module) -> Any:
    """Add the adapters to the weights and return the plain transformers model, all of it trainable.

    The given model is used up. Half-precision weights round the update to their own precision.

    Raises:
        ValueError: there are no adapters, or merging would change more than rounding (`unmergeable`), or the result is
            not finite.
    """
    adapted = adapters_of(model)
    if adapted is None:
        raise ValueError(f"{type(unwrap(model)).__name__} has no adapters to merge.")
    if reason := unmergeable(adapted):
        raise ValueError(f"the adapters cannot be merged: {reason}. Save the adapter and load it with its base model.")
    was_training = adapted.training
    with quiet_peft():
        plain: Any = adapted.merge_and_unload()  # in place: `safe_merge` would hold all weights twice
    if not all(bool(torch.isfinite(each).all()) for each in plain.parameters()):
        raise ValueError("the adapters cannot be merged: with them, weights are not finite numbers.")
    # These are no longer the weights of that name; an adapter trained on them must not claim so.
    plain.name_or_path = plain.config._name_or_path = ""
    return plain.requires_grad_(True).train(was_training)


def unmergeable(adapted: PeftModel) -> str | None:
    """Why adding the adapters to the weights would change the model's numbers, or None if it would not."""
    base: Any = adapted.get_base_model()
    if getattr(base, "is_quantized", False):
        return "the base model is quantized, and its rounded weights cannot hold the sum"
    ends = [base.get_input_embeddings(), base.get_output_embeddings()]
    weights = [getattr(end, "weight", None) for end in ends]
    adapted_ends = any(hasattr(end, "base_layer") for end in ends)
    if adapted_ends and weights[0] is not None and weights[0] is weights[1]:
        return "the output layer shares its weights with the embeddings, and an adapter changes only one of them"
    return None


@contextlib.contextmanager
def quiet_peft() -> Iterator[None]:
    """Hide peft's use of deprecated transformers names."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
        yield


def equals_base(model: nn.Module) -> bool:
    """Whether the model equals its base: it has no adapters, or none that has learned anything."""
    adapted = adapters_of(model)
    if adapted is None:
        return True
    return not any(bool(p.detach().any()) for name, p in adapted.named_parameters() if "lora_B" in name)
