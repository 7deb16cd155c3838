"""Means and bootstrap intervals of the metrics of one model.

All models measured on the same rows share the resampled rows.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from atwu.data.arrays import FloatArray, as_floats
from atwu.evaluation.columns import Direction
from atwu.evaluation.intervals import AggregateMetric, Estimate, Resampler, combine
from atwu.evaluation.result import MetricValue, RowValues


@dataclass(frozen=True, slots=True)
class ColumnValues:
    """Values of one column on one set, one per row."""

    values: tuple[float | None, ...]
    direction: Direction
    unscored: int = 0
    digits: int = 3
    shown: bool = True
    """False for values that only serve as input of other columns."""
    range: tuple[float | None, float | None] = (None, None)
    """Smallest and largest possible value, as in `Column`."""


@lru_cache(maxsize=32)
def resampler(split: str, subjects: tuple[str, ...]) -> Resampler:
    """Return the bootstrap resampler of a set; its draws depend only on the set's name and the rows' subjects."""
    # Seeded by the former name of a set, so that intervals recorded before the renaming are reproduced.
    for new, old in (("holdout_rows", "unseen"), ("other_prompts", "reworded"), ("general_text", "prose")):  # old name
        split = split.replace(new, old)
    return Resampler(subjects, seed=zlib.crc32(split.encode()))


class RowMetrics:
    """Means, intervals and row values of one model."""

    def __init__(self, rows: Mapping[str, RowValues]) -> None:
        """Store the row values of every set."""
        self.rows = rows

    def has(self, split: str, metric: str) -> bool:
        """Return whether a metric has a value on any row of a set."""
        return split in self.rows and any(v is not None for v in self.rows[split].metrics.get(metric, ()))

    def values(self, split: str, metric: str) -> FloatArray:
        """Return one value per row, NaN where undefined."""
        return as_floats(self.rows[split].metrics[metric])

    def resampler_of(self, split: str) -> Resampler:
        """Return the bootstrap resampler of a set."""
        return resampler(split, self.rows[split].subjects)

    def mean(self, split: str, metric: str, *, where: FloatArray | None = None) -> Estimate:
        """Return the mean over rows, or over the rows that also have a value in `where`."""
        values = self.values(split, metric)
        if where is not None:
            values = np.where(np.isfinite(where), values, np.nan)
        return self.resampler_of(split).mean(values)

    def derived(self, formula: Any, used: Sequence[tuple[str, str]]) -> AggregateMetric | None:
        """Apply a formula to the means of (set, column) pairs; None without pairs, or if one was not measured."""
        if not used or not all(self.has(*pair) for pair in used):
            return None
        return AggregateMetric(combine(formula, *(self.mean(*pair) for pair in used)), tuple(used))

    def count(self, split: str, metric: str) -> int:
        """Return the number of rows with a value."""
        return int(np.isfinite(self.values(split, metric)).sum())


@dataclass(frozen=True, slots=True)
class ModelComparison:
    """Row metrics of the evaluated model and of its reference models."""

    this: RowMetrics
    original: RowMetrics | None = None
    retain_only: RowMetrics | None = None
    tasks: Mapping[str, float] = field(default_factory=dict)
    """Values of the evaluated model on lm-evaluation-harness tasks."""


def task_values(found: Mapping[str, MetricValue]) -> dict[str, float]:
    """Return the tasks that have a value."""
    return {name: score.value for name, score in found.items() if score.value is not None}


def metric_values_by_set(
    numbers: RowMetrics, recorded: Mapping[str, Mapping[str, ColumnValues]]
) -> dict[str, dict[str, MetricValue]]:
    """Return mean, standard deviation and interval of each shown metric, by set and name."""
    shown: dict[str, dict[str, MetricValue]] = {}
    for split, metrics in recorded.items():
        for name, kept in metrics.items():
            if not kept.shown:
                continue
            values = as_floats(kept.values)
            known = values[np.isfinite(values)]
            draws = numbers.resampler_of(split)
            low, high = draws.mean(values).interval(kept.range) or (None, None)
            shown.setdefault(split, {})[name] = MetricValue(
                value=float(known.mean()) if known.size else None,
                n=int(known.size),
                direction=kept.direction,
                std=float(known.std()) if known.size else None,
                low=low,
                high=high,
                clusters=draws.clusters,
                skipped=len(values) - int(known.size),
                unscored=kept.unscored,
                digits=kept.digits,
            )
    return shown
