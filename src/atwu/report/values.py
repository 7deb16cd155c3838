"""A model's numbers by line (a set and a metric), and how a number is printed. Needs no pandas."""

from __future__ import annotations

import math
from typing import Literal

from atwu.evaluation.columns import OVERALL
from atwu.evaluation.result import Direction, EvalResult, MetricValue

REFERENCES = ("original", "retain-only")
"""Models that are there to compare with and take no part in the ranking."""
ARROWS: dict[Direction, str] = {"up": " ↑", "down": " ↓", "none": ""}
MISSING = "–"

Line = tuple[str, str]
"""Set (or `OVERALL`) and metric."""
Mark = Literal["best", "second", "degraded"]


def cell_of(result: EvalResult, line: Line) -> MetricValue | None:
    """A model's value on a line; None where there is no number."""
    split, metric = line
    cell = (result.overall if split == OVERALL else result.sets.get(split, {})).get(metric)
    return None if cell is None or cell.value is None or math.isnan(cell.value) else cell


def shown_number(value: float | None, digits: int) -> str:
    """A number as printed, without a minus in front of zero."""
    shown = f"{value:.{digits}f}"
    return shown[1:] if shown.startswith("-") and not shown.strip("-0.") else shown


def shown_interval(cell: MetricValue) -> str:
    """`[low, high]`, or nothing where a value has no interval."""
    if cell.low is None or cell.high is None:
        return ""
    return f"[{shown_number(cell.low, cell.digits)}, {shown_number(cell.high, cell.digits)}]"


def seeds_told(cell: MetricValue, runs: int) -> str:
    """`2 of 3 seeds` for a mean that not all runs of a method have a value for; else empty."""
    return f"{cell.seeds} of {runs} seeds" if cell.seeds < runs else ""
