"""Evaluations of an unlearning run and the file that records them."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from atwu._file_reading import read_json, type_adapter, validated
from atwu._renamed import upgrade

HISTORY_SCHEMA: Final = "atwu.history/2"


@dataclass(frozen=True, slots=True)
class EvaluationRecord:
    """Measurements of one evaluation during training."""

    step: int
    probability: float
    """Mean `key_token_probability` of the forget rows, as written or with other prompts, whichever is higher."""
    accuracy: float
    """The same for `key_token_accuracy`."""
    retain_losses: tuple[float, ...]
    """Mean loss of each set of retained data, in nats/token."""
    learning_rate: float
    leak: float | None = None
    """`Leak.excess` at the goal, 0 without a leak; None for an evaluation that is not at the goal."""


@dataclass(frozen=True, slots=True)
class TrainingHistory:
    """All evaluations of a run, as its history file stores them."""

    eval_steps: tuple[EvaluationRecord, ...]
    """All evaluations in order; the file format fixes the name."""
    kept_step: int
    """Step whose weights the run ended with."""
    rollbacks: int
    retain_loss_increase: float | None
    """Increase of the loss on retained data at that step, in nats/token; None if it is not a number."""
    change_scale: float = 1.0
    """Factor on the change of the weights since the start, chosen after training."""
    schema: Literal["atwu.history/2"] = HISTORY_SCHEMA


def read_history(file: Path) -> TrainingHistory:
    """Read the training history of a run, also of an earlier version; an increase that is not a number is NaN."""
    record = read_json(file)
    if isinstance(record, dict):
        record = upgrade({"schema": "atwu.history/1"} | record)
    history: TrainingHistory = validated(record, type_adapter(TrainingHistory), what=str(file))
    return (
        history
        if history.retain_loss_increase is not None
        else dataclasses.replace(history, retain_loss_increase=math.nan)
    )
