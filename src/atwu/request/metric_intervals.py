"""Numbers that a request measured, with intervals. Its rows are often about one person, whom an evaluation gives none.

Subjects are drawn where there are several, as everywhere; of a single subject the rows are drawn, so that the interval says
what other rows about that subject would change.
"""

from __future__ import annotations

from atwu.evaluation.intervals import Resampler
from atwu.evaluation.result import EvalResult, RowValues
from atwu.evaluation.row_statistics import resampler


def row_resampler(split: str, rows: RowValues) -> Resampler:
    """The draws of a set."""
    return resampler(split, rows.subjects if len(set(rows.subjects)) > 1 else rows.ids)


def metric_value(result: EvalResult, split: str, name: str) -> float | None:
    """A number of a set; None where it was not measured."""
    found = result.sets.get(split, {}).get(name)
    return None if found is None else found.value


def metric_interval(result: EvalResult, split: str, name: str) -> tuple[float, float] | None:
    """95 % interval of a number of a set; None where a single row, or no row, has it."""
    found = result.sets.get(split, {}).get(name)
    if found is not None and found.low is not None and found.high is not None:
        return found.low, found.high
    rows = result.rows.get(split)
    if found is None or rows is None or name not in rows.metrics:
        return None
    return row_resampler(split, rows).mean(rows.metrics[name]).interval()
