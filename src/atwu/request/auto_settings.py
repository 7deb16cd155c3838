"""Choose settings of an unlearning run by the rows, the model and the device, each with a reason."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from atwu.data.schema import Example
from atwu.methods.recipe import Recipe
from atwu.modeling.device import free_memory, multiplies_bfloat16
from atwu.request.controller import MAX_EVALUATIONS
from atwu.request.memory_strategy import StrategyEstimate
from atwu.training.config import UnlearnConfig

SCORER_PRIOR_ROWS = 100
"""Number of forget rows below which the scorer is initialized with rarity."""
LENGTH_OPTIONS = ("num_train_epochs", "max_steps")
RATE_OPTION = "learning_rate"
METHOD_OPTIONS = ("method", "weighting", "forget_loss", "retain_loss", "preserve", "configuration")
"""Options of which any one, if given, leaves the method to the user."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One chosen setting."""

    name: str
    value: Any
    reason: str

    def __str__(self) -> str:
        value = f"{self.value:.2g}" if isinstance(self.value, float) else self.value
        return f"{self.name} = {value}  ({self.reason})"


def method_choices(given: Mapping[str, Any], rows: Sequence[Example]) -> tuple[Choice, ...]:
    """Choose the method of a run and the forms it trains on, where they were not given.

    The choice is the best of docs/pretrained/default.md: a loss that ends at improbable key tokens and holds the other words of
    the forget answers in place, on questions in several forms.

    Args:
        given: options that the user set; they stay.
        rows: forget rows.
    """
    if RATE_OPTION in given and any(name in given for name in LENGTH_OPTIONS):
        return ()  # an expert run: everything else keeps its documented default
    chosen = []
    if not any(name in given for name in METHOD_OPTIONS):
        chosen = [
            Choice("method", "satga", "its loss fades for a token that has become improbable"),
            Choice("weighting", "key_tokens", "unlearn names and numbers that the question does not say"),
            Choice("beta", 0.5, "keeps the gradient of certain tokens"),
            Choice("preserve", "kl", "keeps the other words of forget answers as the original model has them"),
            Choice("pairing", "closest", "questions most like those of the forget rows are damaged first"),
            Choice("retain_per_forget", 2, "one of the closest and one of all"),
        ]
    taken = UnlearnConfig(**{**{choice.name: choice.value for choice in chosen}, **given}).recipe()
    compares = {"alternates", "retain_alternates"} & set(taken.needs)
    if "forms" not in given and not compares and any(row.messages for row in rows):
        chosen.append(
            Choice("forms", "auto", "also as blanks, unfinished sentences and choices, else these bring it back")
        )
    return tuple(choice for choice in chosen if choice.name not in given)


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """The device of a run."""

    device: torch.device
    memory: int
    """Free memory in bytes."""
    bfloat16: bool
    """Whether matrix products are faster in bfloat16 than in float32."""

    @classmethod
    def of(cls, device: torch.device) -> DeviceInfo:
        """Read the properties of a device."""
        return cls(device, free_memory(device), multiplies_bfloat16(device))


def choose(
    given: Mapping[str, Any],
    *,
    recipe: Recipe,
    rows: int,
    hidden: int,
    self_generated_answers: bool,
    place: DeviceInfo,
    fitted: StrategyEstimate,
    auto_memory: bool = False,
) -> tuple[Choice, ...]:
    """Choose the settings of a run that were not given.

    Args:
        given: options that the user set; they stay. With a learning rate and a length, only the retain loss for
            self-generated answers is chosen.
        recipe: the method.
        rows: number of forget rows.
        hidden: hidden size of the model.
        self_generated_answers: whether the retain rows are self-generated answers.
        place: the device.
        fitted: the memory strategy that fits there.
        auto_memory: apply this strategy even where nothing else is chosen.
    """
    length = any(name in given for name in LENGTH_OPTIONS)
    adapters = int(given.get("lora_r", fitted.strategy.options.get("lora_r", 0)))
    needed = (
        f"{fitted.strategy.description}: about {fitted.memory.peak / 1e9:.1f} GB of {place.memory / 1e9:.1f} GB free"
    )
    ways = [Choice(name, value, needed) for name, value in ({"lora_r": 0} | dict(fitted.strategy.options)).items()]
    itself = Choice("retain_loss", "kl", "keeps the answers as they are instead of training on them")
    kept = [itself] if recipe.retain_loss == "nll" else []
    if length and RATE_OPTION in given:  # an expert run: everything else keeps its documented default
        alone = [*(ways if auto_memory else ()), *(kept if self_generated_answers else ())]
        return tuple(choice for choice in alone if choice.name not in given)
    batch = batch_size(given, rows)
    each = math.ceil(rows / (batch * int(given.get("gradient_accumulation_steps", 1))))
    every = eval_every(each)
    choices = [
        *ways,
        Choice(
            RATE_OPTION,
            5e-5 * 576 / hidden * (10 if adapters else 1),
            f"initial value: 5e-5 * 576 / hidden size {hidden}" + (", times 10 for LoRA" if adapters else ""),
        ),
        Choice("per_device_train_batch_size", batch, f"for {rows} forget rows"),
        Choice("gradient_accumulation_steps", 1, "one batch per step, as there are few rows"),
        Choice(
            "max_steps",
            MAX_EVALUATIONS * every,
            f"upper bound; evaluated every {every} steps, ends when the rows are forgotten",
        ),
        Choice("lr_scheduler_type", "constant_with_warmup", "the controller adjusts the learning rate"),
        Choice("warmup_steps", 5, "the first steps of AdamW are its largest"),
        Choice("save_strategy", "steps", "a killed run resumes from a checkpoint"),
        Choice("save_steps", 5 * every, "every fifth evaluation step"),
    ]
    if place.bfloat16 and not given.get("fp16"):
        choices.append(Choice("bf16", True, "faster on this device; weights stay float32"))
    if (
        recipe.scores is not None
        and "retain" in recipe.needs
        and rows < SCORER_PRIOR_ROWS
        and "scorer_from" not in given
    ):
        choices.append(
            Choice("scorer_prior", "rarity", f"{rows} rows are too few to train a scorer from random weights")
        )
    return tuple(
        choice
        for choice in (*choices, *kept)
        if choice.name not in given
        and not (
            length and choice.name in ("max_steps", "lr_scheduler_type", "warmup_steps", "save_strategy", "save_steps")
        )
    )


def batch_size(given: Mapping[str, Any], rows: int) -> int:
    """Return the number of forget rows in a batch."""
    return int(given.get("per_device_train_batch_size", min(8, rows)))


def eval_every(steps_per_epoch: int) -> int:
    """Return the optimizer steps between two evaluation steps: half an epoch, at least 5 and at most 25."""
    return min(25, max(5, steps_per_epoch // 2))
