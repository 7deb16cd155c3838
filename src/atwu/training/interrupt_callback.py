"""Callback that ends an interrupted run after its current step, with a checkpoint if checkpoints are enabled."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import torch
from transformers.trainer_callback import TrainerCallback

from atwu._interrupts import DeferredSignal, end_process

if TYPE_CHECKING:
    from atwu.training.token_trainer import TokenTrainer


class Interrupted(TrainerCallback):
    """Save a checkpoint after the step in which any process received a signal, then end the run."""

    def __init__(self, trainer: TokenTrainer) -> None:
        self._trainer = trainer
        self.held: DeferredSignal | None = None
        """Deferred signal during training; None if no checkpoints are written."""
        self._ending = False

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.held is not None:
            came = torch.tensor(float(self.held.number is not None), device=args.device)
            if self._trainer.sum_over_processes(came) > 0:
                self._ending = control.should_save = True

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._ending and self.held is not None:
            self._trainer.accelerator.wait_for_everyone()
            end_process(self.held.number or signal.SIGTERM, "checkpoint saved")
