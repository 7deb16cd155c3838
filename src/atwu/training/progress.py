"""Progress display and log of a training run: one progress line, and one JSON line per logged step."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from transformers.trainer_callback import TrainerCallback

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
    """Progress over optimizer steps with the current losses.

    Args:
        expected: returns the expected number of steps if the run may stop early; None: all steps.
        shown: False only counts.
    """

    def __init__(self, expected: Callable[[], int | None] = lambda: None, *, shown: bool = True) -> None:
        self._bar: Any = None
        self._expected, self._shown = expected, shown

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            self._bar = progress_bar(
                total=self._total(state), desc="training", unit="step", initial=state.global_step, shown=self._shown
            )

    def _total(self, state: Any) -> int:
        most, done = int(state.max_steps), int(state.global_step)
        return max(min(self._expected() or most, most), done)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> None:
        if self._bar is not None and logs:
            shown = {short: f"{logs[name]:.3f}" for name, short in _SHOWN.items() if name in logs}
            if shown:
                self._bar.set_postfix_str(", ".join(f"{name} {value}" for name, value in shown.items()), refresh=False)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._bar is not None:
            self._bar.total = self._total(state)
            self._bar.update(state.global_step - self._bar.n)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class JsonLog(TrainerCallback):
    """Append every log to a JSONL file; a resumed run first writes the logs in its checkpoint."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            self.path.write_text(log_text(state), encoding="utf-8")

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> None:
        if state.is_world_process_zero and logs:
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
    finite = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in sorted(logs.items())
    }
    return json.dumps({"step": step} | finite) + "\n"
