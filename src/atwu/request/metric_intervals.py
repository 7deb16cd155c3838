"""Metric values of a request with confidence intervals, also when all rows share one subject.

With several subjects, subjects are resampled, as in every evaluation; with one subject, its rows are.
"""

from __future__ import annotations

from dataclasses import dataclass

from atwu.evaluation.intervals import Resampler
from atwu.evaluation.registry import find_column
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

    @property
    def within_chance(self) -> bool:
        """Whether the criterion is met, but the interval of `after` reaches beyond the limit."""
        if not self.met or self.low is None or self.high is None or self.limit is None:
            return False
        return self.low < self.limit < self.high


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
    column = find_column(name, split)
    within = (None, None) if column is None else column[1].range
    return row_resampler(split, rows).mean(rows.metrics[name]).interval(within)


def lower_bound_of_rows(result: EvalResult, split: str, name: str) -> float | None:
    """Return the lower end of the interval of a metric over these rows, whoever they are about; None without values.

    Whether a model knows these very facts does not depend on how few subjects they have.
    """
    rows = result.rows.get(split)
    if rows is None or name not in rows.metrics:
        return None
    found = resampler(split, rows.ids).mean(rows.metrics[name])
    return (found.interval() or (found.value, found.value))[0]


def upper_percentile(result: EvalResult, split: str, name: str) -> float | None:
    """Return the upper 95 % percentile of the bootstrap draws of a metric; None without values.

    As the limit of a criterion it is not widened: few rows must not make a limit lenient.
    """
    rows = result.rows.get(split)
    if rows is None or name not in rows.metrics:
        return None
    found = row_resampler(split, rows).mean(rows.metrics[name]).percentiles()
    return None if found is None else found[1]
