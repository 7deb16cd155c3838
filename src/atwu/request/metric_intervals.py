"""Metric values of a request with confidence intervals, also when all rows share one subject.

With several subjects, subjects are resampled, as in every evaluation; with one subject, its rows are.
"""

from __future__ import annotations

from dataclasses import dataclass

from atwu.evaluation.intervals import Resampler
from atwu.evaluation.result import EvalResult, RowValues
from atwu.evaluation.row_statistics import resampler


@dataclass(frozen=True, slots=True)
class VerdictMetric:
    """One metric on one set, before and after unlearning."""

    set: str
    metric: str
    """Its title."""
    before: float | None
    after: float | None
    low: float | None
    high: float | None
    """95 % interval of `after`."""
    limit: float | None = None
    """Largest value of `after` that meets the criterion, on the neighbour set the smallest; None without one."""
    met: bool | None = None
    """Whether the criterion is met; None where the metric decides nothing."""


def row_resampler(split: str, rows: RowValues) -> Resampler:
    """Return the bootstrap resampler of a set."""
    return resampler(split, rows.subjects if len(set(rows.subjects)) > 1 else rows.ids)


def metric_value(result: EvalResult, split: str, name: str) -> float | None:
    """Return a metric of a set; None if it was not measured."""
    found = result.sets.get(split, {}).get(name)
    return None if found is None else found.value


def metric_interval(result: EvalResult, split: str, name: str) -> tuple[float, float] | None:
    """Return the 95 % interval of a metric of a set; None for fewer than two rows."""
    found = result.sets.get(split, {}).get(name)
    if found is not None and found.low is not None and found.high is not None:
        return found.low, found.high
    rows = result.rows.get(split)
    if found is None or rows is None or name not in rows.metrics:
        return None
    return row_resampler(split, rows).mean(rows.metrics[name]).interval()
