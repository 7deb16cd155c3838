"""Update the retain weight of a run as the multiplier of a limit on the retain loss (PDU)."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers.trainer_callback import TrainerCallback

from atwu.methods.losses.primal_dual import LimitedNLL, updated_multiplier
from atwu.methods.recipe import Recipe
from atwu.training.scorer_steps import MethodRun

MULTIPLIER_NAME = "retain_multiplier.json"


class DualAscent(TrainerCallback):
    """Callback that changes the retain weight after every optimizer step, and its state."""

    def __init__(self, trainer: MethodRun, limited: LimitedNLL) -> None:
        self._trainer, self._limited = trainer, limited
        self.multiplier = trainer.recipe.factors.retain_weight
        self._loss = torch.zeros((), device=trainer.args.device)

    def applied(self, recipe: Recipe) -> Recipe:
        """Return the recipe with the current retain weight."""
        return dataclasses.replace(recipe, factors=dataclasses.replace(recipe.factors, retain_weight=self.multiplier))

    def collect(self, retain: Tensor) -> None:
        """Add a micro-batch's share of the retain loss of the current optimizer step."""
        self._loss += retain.detach().to(self._loss)

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        trainer, limited = self._trainer, self._limited
        # The value is the same in all processes; logged terms are summed over processes.
        trainer.add_part("retain_weight", torch.tensor(self.multiplier / trainer.args.world_size))
        loss = float(trainer.sum_over_processes(self._loss))
        self._loss.zero_()
        if (state.epoch or 0) >= limited.dual_warmup:
            self.multiplier = updated_multiplier(
                self.multiplier, loss, limit=limited.retain_bound, step=limited.dual_step
            )

    def save(self, folder: str) -> None:
        """Write the multiplier into a checkpoint."""
        (Path(folder) / MULTIPLIER_NAME).write_text(json.dumps(self.multiplier) + "\n", encoding="utf-8")

    def load(self, folder: str) -> None:
        """Load the multiplier from a checkpoint."""
        self.multiplier = json.loads((Path(folder) / MULTIPLIER_NAME).read_text(encoding="utf-8"))
