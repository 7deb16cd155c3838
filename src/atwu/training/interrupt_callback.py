"""Callback that ends an interrupted run after its current step, with a checkpoint if checkpoints are enabled."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers.trainer_callback import TrainerCallback

from atwu._interrupts import DeferredSignal, end_process


class Interrupted(TrainerCallback):
    """Save a checkpoint after the step in which any process received a signal, then end the run.

    Args:
        sum_over_processes: sums a tensor over all processes.
        wait: waits for all processes.
    """

    def __init__(self, sum_over_processes: Callable[[Tensor], Tensor], wait: Callable[[], object]) -> None:
        self._sum, self._wait = sum_over_processes, wait
        self.held: DeferredSignal | None = None
        """Deferred signal during training; None if no checkpoints are written."""
        self._ending = False

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.held is not None:
            came = torch.tensor(float(self.held.number is not None), device=args.device)
            if self._sum(came) > 0:
                self._ending = control.should_save = True

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._ending and self.held is not None:
            self._wait()
            end_process(self.held.number or signal.SIGTERM, "checkpoint saved")
