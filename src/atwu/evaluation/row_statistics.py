"""Means of row values with their bootstrap draws (`intervals.py`), of one model and of those it is compared with.

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
from atwu.evaluation.intervals import AggregateMetric, Estimate, Resampler, ValueRange, combine, subtract
from atwu.evaluation.result import RowValues


@lru_cache(maxsize=32)
def resampler(split: str, subjects: tuple[str, ...]) -> Resampler:
    """Return the bootstrap resampler of a set; its draws depend only on the set's name and the rows' subjects."""
    # Seeded by the former name of a set, so that intervals recorded before the renaming are reproduced.
    for new, old in (
        ("holdout_rows", "unseen"),
        ("other_prompts", "other prompt"),
        ("general_text", "prose"),
    ):  # old name
        split = split.replace(new, old)
    return Resampler(subjects, seed=zlib.crc32(split.encode()))


class RowMetrics:
    def __init__(self, rows: Mapping[str, RowValues]) -> None:
        self.rows = rows

    def has(self, split: str, metric: str) -> bool:
        """Return whether a metric has a value on any row of a set."""
        return split in self.rows and any(v is not None for v in self.rows[split].metrics.get(metric, ()))

    def values(self, split: str, metric: str) -> FloatArray:
        """Return one value per row, NaN where undefined."""
        return as_floats(self.rows[split].metrics[metric])

    def resampler_of(self, split: str) -> Resampler:
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
        return int(np.isfinite(self.values(split, metric)).sum())


MeasuredColumn = tuple[RowMetrics, str, str]
"""Model, set and column."""


@dataclass(frozen=True, slots=True)
class ModelComparison:
    """Row metrics of the evaluated model and of its reference models."""

    this: RowMetrics
    original: RowMetrics | None = None
    retain_only: RowMetrics | None = None
    tasks: Mapping[str, float] = field(default_factory=dict)
    """Values of the evaluated model on lm-evaluation-harness tasks."""

    @staticmethod
    def joint(formula: Any, *parts: MeasuredColumn) -> tuple[Estimate, int]:
        """Apply a formula to the means over the rows on which all columns have a value.

        Returns:
            The value, and the number of these rows.
        """
        means, rows = _joint_means(parts)
        return combine(formula, *means), rows


def difference(first: MeasuredColumn, second: MeasuredColumn, within: ValueRange) -> Estimate:
    """Return first minus second, both over the rows on which both have a value.

    Args:
        within: smallest and largest possible value of the column.
    """
    (one, other), _ = _joint_means((first, second))
    return subtract(one, other, within)


def _joint_means(parts: Sequence[MeasuredColumn]) -> tuple[list[Estimate], int]:
    """Return the mean of every column over the rows on which all have a value, and the number of these rows."""
    every = np.sum([side.values(split, name) for side, split, name in parts], axis=0)  # NaN unless all have one
    means = [side.mean(split, name, where=every) for side, split, name in parts]
    return means, int(np.isfinite(every).sum())
