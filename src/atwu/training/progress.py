"""What a running training shows and writes: one progress line, and one JSON line per log."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from transformers.trainer_callback import TrainerCallback

from atwu._progress import bar_of

Say = Callable[[str], None]
"""Receives one line of plain text."""


def silent(line: str) -> None:
    """For all processes but the first."""


_SHOWN = {"loss": "loss", "forget_loss": "forget", "retain_loss": "retain", "mean_score": "score"}


class ProgressLine(TrainerCallback):
    """Progress over optimizer steps with the current losses.

    Args:
        expected: gives the steps that a run is likely to take, where it may end before its last; None: all.
        shown: False only counts.
    """

    def __init__(self, expected: Callable[[], int | None] = lambda: None, *, shown: bool = True) -> None:
        self._bar: Any = None
        self._expected, self._shown = expected, shown

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            self._bar = bar_of(
                total=state.max_steps, desc="training", unit="step", initial=state.global_step, shown=self._shown
            )

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> None:
        if self._bar is not None and logs:
            shown = {short: f"{logs[name]:.3f}" for name, short in _SHOWN.items() if name in logs}
            if shown:
                self._bar.set_postfix_str(", ".join(f"{name} {value}" for name, value in shown.items()), refresh=False)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._bar is not None:
            self._bar.total = max(self._expected() or state.max_steps, state.global_step)
            self._bar.update(state.global_step - self._bar.n)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class JsonLog(TrainerCallback):
    """Appends every log to a JSONL file; a resumed run first drops the lines it is about to write again."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not state.is_world_process_zero:
            return
        kept = []
        if self.path.is_file():
            for line in self.path.read_text(encoding="utf-8").splitlines():
                try:
                    if json.loads(line)["step"] <= state.global_step:
                        kept.append(line)
                except (ValueError, KeyError):
                    continue  # the line a killed run was writing
        self.path.write_text("".join(line + "\n" for line in kept), encoding="utf-8")

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> None:
        if state.is_world_process_zero and logs:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(log_line(state.global_step, logs))


def log_line(step: int, logs: Mapping[str, Any]) -> str:
    """What was logged at a step as one line of JSON; numbers that are not finite become null."""
    finite = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in logs.items()
    }
    return json.dumps({"step": step} | finite) + "\n"
