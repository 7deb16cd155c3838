"""Check options of the optimizer and of the schedule, which transformers would read only when training begins."""

from __future__ import annotations

import re
import typing
from typing import Any

import torch
from transformers import SchedulerType, TrainingArguments, get_scheduler, trainer_optimizer
from transformers.training_args import OptimizerNames

from atwu._names import did_you_mean


def check_optimizer_names(config: TrainingArguments) -> None:
    """Refuse an unknown optimizer or schedule by the name of its option, which transformers leaves out."""
    for option, names in (("optim", OptimizerNames), ("lr_scheduler_type", SchedulerType)):
        given, allowed = getattr(config, option), [each.value for each in names]
        if given not in allowed:
            raise ValueError(
                f"{option} is {given!r}; choose from {', '.join(allowed)}.{did_you_mean(str(given), allowed)}"
            )


def check_optimization(config: TrainingArguments) -> None:
    if config.optim_args:
        _check_optim_args(config, config.optim_args)
    name, given = SchedulerType(config.lr_scheduler_type), config.lr_scheduler_kwargs
    trial = torch.optim.SGD([torch.zeros(1, requires_grad=True)])
    try:
        get_scheduler(
            name, trial, num_warmup_steps=1, num_training_steps=2, scheduler_specific_kwargs=typing.cast(Any, given)
        )
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"lr_scheduler_type {name.value} does not work with lr_scheduler_kwargs={given}: {error}."
        ) from None


def _check_optim_args(config: TrainingArguments, text: str) -> None:
    if any(pair.count("=") != 1 for pair in text.split(",")):
        raise ValueError(f"optim_args must be NAME=VALUE pairs with commas between them, got {text!r}.")
    given = _Options(pair.replace(" ", "").split("=") for pair in text.split(","))
    context = trainer_optimizer.OptimizerContext(config, None, {}, {}, given)
    try:
        trainer_optimizer._OPTIMIZER_HANDLERS[config.optim](context)
    except (ImportError, ValueError) as error:  # no package, or no model; training says so
        if not given.read:
            return
        if re.match("could not convert|invalid (literal|truth value)", str(error)):
            name = list(given.read)[-1]
            raise ValueError(f"optim_args sets {name}={given[name]!r}, which is not a valid value ({error}).") from None
    if unknown := sorted(given.keys() - given.read.keys()):  # those of `rmsprop_bnb` stay text, which it does not take
        allowed = f"takes {', '.join(given.read)}" if given.read else "takes none; leave optim_args out"
        raise ValueError(
            f"optim_args sets {unknown[0]!r}, but the optimizer {OptimizerNames(config.optim).value} {allowed}."
        )


class _Options(dict[str, str]):
    """Options that record which names are read."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.read: dict[str, None] = {}

    def __contains__(self, name: Any) -> bool:
        self.read[name] = None
        return name in self.keys()

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name, default) if name in self else default

    pop = get
