"""A model's numbers by set and metric. Does not need pandas."""

from __future__ import annotations

import math
from typing import Literal

from atwu.evaluation.columns import OVERALL
from atwu.evaluation.result import EvalResult, MetricValue

REFERENCE_MODELS = ("original", "retain-only")
"""Reference models, which are not ranked."""
MISSING_CELL = "–"

MetricKey = tuple[str, str]
"""Set (or `OVERALL`) and metric."""
Mark = Literal["best", "second", "degraded"]


def cell_of(result: EvalResult, key: MetricKey) -> MetricValue | None:
    """Return a model's value of a metric; None if there is no number."""
    split, metric = key
    cell = (result.overall if split == OVERALL else result.sets.get(split, {})).get(metric)
    return None if cell is None or cell.value is None or math.isnan(cell.value) else cell
