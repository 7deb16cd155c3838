"""A model's numbers by line (a set and a metric). Needs no pandas."""

from __future__ import annotations

import math
from typing import Literal

from atwu.evaluation.columns import OVERALL
from atwu.evaluation.result import EvalResult, MetricValue

REFERENCE_MODELS = ("original", "retain-only")
"""Models that are there to compare with and take no part in the ranking."""
MISSING_CELL = "–"

TableLine = tuple[str, str]
"""Set (or `OVERALL`) and metric."""
Mark = Literal["best", "second", "degraded"]


def cell_of(result: EvalResult, line: TableLine) -> MetricValue | None:
    """A model's value on a line; None where there is no number."""
    split, metric = line
    cell = (result.overall if split == OVERALL else result.sets.get(split, {})).get(metric)
    return None if cell is None or cell.value is None or math.isnan(cell.value) else cell
