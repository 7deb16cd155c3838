"""Callbacks of a training run: its start, one progress line, one JSON line per logged step, the end after an interruption."""

from __future__ import annotations

import json
import logging
import math
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers.trainer_callback import TrainerCallback

from atwu._command import DeferredSignal, end_process
from atwu._progress import progress_bar

Say = Callable[[str], None]
"""Receives one line of plain text."""


def logged(line: str) -> None:
    """Log a status message; the default in Python code."""
    logging.getLogger("atwu").info(line)


def silent(line: str) -> None:
    """Ignore a status message; for all processes but the main one."""


_SHOWN = {"loss": "loss", "forget_loss": "forget", "retain_loss": "retain", "mean_score": "score"}


class ProgressLine(TrainerCallback):
    """Progress over optimizer steps with the current losses and the estimated remaining time.

    Args:
        trainer: the `TokenTrainer`, which says when it expects to end.
    """

    def __init__(self, trainer: Any) -> None:
        self._bar: Any = None
        self._trainer = trainer
        self._losses = ""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            self._bar = progress_bar(
                total=self._total(state),
                desc="training",
                unit="step",
                initial=state.global_step,
                shown=not args.disable_tqdm,
            )

    def _total(self, state: Any) -> int:
        # A controller may end training before the last step.
        most, done = int(state.max_steps), int(state.global_step)
        return max(min(self._trainer.expected_steps or most, most), done)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> None:
        if self._bar is not None and logs:
            shown = [f"{short} {logs[name]:.3f}" for name, short in _SHOWN.items() if name in logs]
            if shown:  # the logs of evaluations and of the end have no losses of a step
                self._losses = ", ".join(shown)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._bar is not None:
            self._bar.total = self._total(state)
            self._bar.set_postfix_str(self._losses, refresh=False)
            self._bar.update(state.global_step - self._bar.n)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._bar is not None:
            self._bar.set_postfix_str(self._losses, refresh=False)
            self._bar.close()
            self._bar = None


class JsonLog(TrainerCallback):
    """Append every log to a JSONL file; a resumed run first writes the logs in its checkpoint."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            # A resumed run repeats the steps after its checkpoint, so that what was logged of them goes.
            self.path.write_text(log_text(state), encoding="utf-8")

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> None:
        if state.is_world_process_zero and logs:
            # Opened for each line, so that a kill loses none.
            with self.path.open("a", encoding="utf-8") as file:
                file.write(log_line(state.global_step, logs))


def log_text(state: Any) -> str:
    """Return all logs of a trainer's state as the lines of `log.jsonl`."""
    return "".join(
        log_line(logs["step"], {name: value for name, value in logs.items() if name != "step"})
        for logs in state.log_history
    )


def log_line(step: int, logs: Mapping[str, Any]) -> str:
    """Format the logs of a step as one line of JSON, sorted by name; non-finite numbers become null."""
    # JSON has no NaN, and readers other than Python's refuse the word.
    finite = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in sorted(logs.items())
    }
    return json.dumps({"step": step} | finite) + "\n"


class AtStart(TrainerCallback):
    """Calls a function before the first step of a run, but not of a resumed one."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 0:
            self._call()


class Interrupted(TrainerCallback):
    """Save a checkpoint after the step in which any process received a signal, then end the run."""

    def __init__(self, sum_over_processes: Callable[[Tensor], Tensor], wait: Callable[[], object]) -> None:
        self._sum, self._wait = sum_over_processes, wait
        self.held: DeferredSignal | None = None
        """Deferred signal during training; None if no checkpoints are written."""
        self._ending = False

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.held is not None:
            # A signal may reach one process only, and all must stop after the same step.
            came = torch.tensor(float(self.held.number is not None), device=args.device)
            if self._sum(came) > 0:
                self._ending = control.should_save = True

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # Only now: the trainer writes the checkpoint between the end of the step and this event.
        if self._ending and self.held is not None:
            self._wait()
            end_process(self.held.number or signal.SIGTERM, "checkpoint saved")
