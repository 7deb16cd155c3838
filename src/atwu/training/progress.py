"""What a running training shows and writes: one progress line, and one JSON line per log."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm
from transformers.trainer_callback import TrainerCallback

_SHOWN = {"loss": "loss", "forget_loss": "forget", "retain_loss": "retain", "mean_score": "score"}


class ProgressLine(TrainerCallback):
    """A tqdm bar over optimizer steps with the current losses."""

    def __init__(self) -> None:
        self._bar: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            self._bar = tqdm(
                total=state.max_steps,
                initial=state.global_step,
                desc="training",
                unit="step",
                dynamic_ncols=True,
                mininterval=0.2 if sys.stderr.isatty() else 15,  # a log file wants few lines
            )

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> None:
        if self._bar is not None and logs:
            shown = {short: f"{logs[name]:.3f}" for name, short in _SHOWN.items() if name in logs}
            if shown:
                self._bar.set_postfix(shown, refresh=False)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._bar is not None:
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
                finite = {name: value if math.isfinite(value) else None for name, value in logs.items()}
                file.write(json.dumps({"step": state.global_step} | finite) + "\n")
