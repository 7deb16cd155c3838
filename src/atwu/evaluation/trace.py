"""The record of a run's token weights over training: word scores of some rows, and their AUROC against labels.

Reports read it, so nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from pydantic import with_config

from atwu._file_reading import read_declared
from atwu.evaluation.result import STRICT

TRACE_NAME = "trace.json"
TRACE_SCHEMA: Final = "atwu.trace/1"


@with_config(STRICT)
@dataclass(frozen=True, slots=True)
class TracedRow:
    """Word scores of one row over the run."""

    set: str
    """`forget`, or `holdout` for a row that was never trained on."""
    question: str
    answer: str
    forget_spans: tuple[tuple[int, int], ...] | None
    words: tuple[tuple[int, int], ...]
    """Character range of every word of `answer`."""
    scores: tuple[tuple[float | None, ...], ...]
    """One score per word for every traced step; None if no token overlaps the word."""


@with_config(STRICT)
@dataclass(frozen=True, slots=True)
class Trace:
    weighting: str
    steps: tuple[int, ...]
    """Optimizer steps at which weights were recorded; the first is 0."""
    rows: tuple[TracedRow, ...]
    auroc: Mapping[str, tuple[float | None, ...]]
    """`forget` and `holdout` -> mean AUROC within rows for every traced step."""
    seconds: float = 0.0
    """Time spent on tracing; part of the run's training time."""
    schema: Literal["atwu.trace/1"] = TRACE_SCHEMA


def read_trace(path: str | Path) -> Trace:
    return read_declared(path, Trace, TRACE_SCHEMA, what="trace", made_by="atwu study run")
