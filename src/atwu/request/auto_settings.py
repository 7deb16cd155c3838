"""The settings of a run that follow from the rows, the model and the device, each with its reason."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from atwu.methods.recipe import Recipe
from atwu.modeling.device import free_memory, multiplies_bfloat16
from atwu.request.controller import MAX_EVAL_STEPS
from atwu.request.memory_strategy import StrategyEstimate

SCORER_PRIOR_ROWS = 100
"""Forget rows below which the scorer starts from rarity."""
LENGTH_OPTIONS = ("num_train_epochs", "max_steps")
RATE_OPTION = "learning_rate"


@dataclass(frozen=True, slots=True)
class Choice:
    """One setting that was not given."""

    name: str
    value: Any
    reason: str

    def __str__(self) -> str:
        value = f"{self.value:.2g}" if isinstance(self.value, float) else self.value
        return f"{self.name.replace('_', ' ')} {value}: {self.reason}"


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """Where a run happens."""

    device: torch.device
    memory: int
    """Bytes that are free there."""
    bfloat16: bool
    """Whether it multiplies matrices in bfloat16 faster than in float32."""

    @classmethod
    def of(cls, device: torch.device) -> DeviceInfo:
        """Look at a device."""
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
    """Settings for a run on a few rows that nobody has to tune.

    Args:
        given: what the user set, which stays; with a learning rate and a length, only how the model's own answers are kept
            is chosen.
        recipe: the method.
        rows: forget rows.
        hidden: the model's width.
        self_generated_answers: the rows to keep are the model's own answers.
        place: where it runs.
        fitted: the way of training that fits there.
        auto_memory: choose that way even where nothing else is chosen.
    """
    length = any(name in given for name in LENGTH_OPTIONS)
    adapters = int(given.get("lora_r", fitted.strategy.options.get("lora_r", 0)))
    needed = f"{fitted.strategy.description}, about {fitted.memory.peak / 1e9:.1f} GB of {place.memory / 1e9:.1f} GB free"
    ways = [Choice(name, value, needed) for name, value in ({"lora_r": 0} | dict(fitted.strategy.options)).items()]
    itself = Choice("retain_loss", "kl", "what is kept is to stay as it is, not to be learned better")
    kept = [itself] if recipe.retain_loss == "nll" else []
    if length and RATE_OPTION in given:  # somebody knows what they do: the rest has the defaults of the documentation
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
            f"where the search starts: 5e-5 at width 576, less for wider models (this one: {hidden})"
            + (", ten times as much for adapters" if adapters else ""),
        ),
        Choice("per_device_train_batch_size", batch, f"of {rows} forget rows"),
        Choice("gradient_accumulation_steps", 1, "few rows, many steps"),
        Choice(
            "max_steps",
            MAX_EVAL_STEPS * every,
            f"at most; a look every {every} steps, and the end when the rows are forgotten",
        ),
        Choice("lr_scheduler_type", "constant_with_warmup", "the watch changes the rate"),
        Choice("warmup_steps", 5, "AdamW's first steps are its largest"),
        Choice("save_strategy", "steps", "checkpoints to continue from"),
        Choice("save_steps", 5 * every, "every fifth look"),
    ]
    if place.bfloat16 and not given.get("fp16"):
        choices.append(Choice("bf16", True, "this device multiplies faster in bfloat16; weights stay float32"))
    if (
        recipe.scores is not None
        and "retain" in recipe.needs
        and rows < SCORER_PRIOR_ROWS
        and "scorer_from" not in given
    ):
        choices.append(
            Choice("scorer_prior", "rarity", f"with {rows} rows a scorer sees too little to start from nothing")
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
    """Forget rows of a batch."""
    return int(given.get("per_device_train_batch_size", min(8, rows)))


def eval_every(steps_per_epoch: int) -> int:
    """Optimizer steps between two looks: half a pass, at least 5 and at most 25."""
    return min(25, max(5, steps_per_epoch // 2))
