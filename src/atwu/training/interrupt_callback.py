"""A run to which a signal comes ends after its step and with a checkpoint, where checkpoints are written."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import torch
from transformers.trainer_callback import TrainerCallback

from atwu._interrupts import DeferredSignal, end

if TYPE_CHECKING:
    from atwu.training.token_trainer import TokenTrainer


class Interrupted(TrainerCallback):
    """Has a checkpoint written after the step in which a signal came to any of the processes, and ends there."""

    def __init__(self, trainer: TokenTrainer) -> None:
        self._trainer = trainer
        self.held: DeferredSignal | None = None
        """Signals that came while training; None where no checkpoint is written for them."""
        self._ending = False

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.held is not None:
            came = torch.tensor(float(self.held.number is not None), device=args.device)
            if self._trainer.sum_over_processes(came) > 0:
                self._ending = control.should_save = True

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._ending and self.held is not None:
            self._trainer.accelerator.wait_for_everyone()
            end(self.held.number or signal.SIGTERM, "checkpoint saved")
