"""Estimates of one model's metrics from its row values. Rows are drawn alike for all models that were measured on them."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from atwu.data.arrays import FloatArray, as_floats
from atwu.evaluation.intervals import Estimate, Resampler, combine
from atwu.evaluation.result import Direction, MetricValue, RowValues


@dataclass(frozen=True, slots=True)
class Recorded:
    """One column on one set, a value per row."""

    values: tuple[float | None, ...]
    direction: Direction
    unscored: int = 0
    digits: int = 3
    shown: bool = True
    """False for values that only serve other columns."""


@lru_cache(maxsize=32)
def resampler(split: str, subjects: tuple[str, ...]) -> Resampler:
    """The draws of a set: they follow from its name and the subjects of its rows."""
    name = split.replace("holdout_rows", "unseen").replace("other_prompts", "reworded")  # draws of earlier results
    return Resampler(subjects, seed=zlib.crc32(name.encode()))


class RowMetrics:
    """Means, intervals and raw values of one model."""

    def __init__(self, rows: Mapping[str, RowValues]) -> None:
        """Bind the row values of every set."""
        self.rows = rows

    def has(self, split: str, metric: str) -> bool:
        """Whether a metric was measured on any row of a set."""
        return split in self.rows and any(v is not None for v in self.rows[split].metrics.get(metric, ()))

    def values(self, split: str, metric: str) -> FloatArray:
        """One value per row, NaN where there is none."""
        return as_floats(self.rows[split].metrics[metric])

    def weights(self, split: str) -> Resampler:
        """The draws of a set."""
        return resampler(split, self.rows[split].subjects)

    def mean(self, split: str, metric: str, *, where: FloatArray | None = None) -> Estimate:
        """Mean over rows, or over those that also have a value in `where`."""
        values = self.values(split, metric)
        if where is not None:
            values = np.where(np.isfinite(where), values, np.nan)
        return self.weights(split).mean(values)

    def derived(self, formula: Callable[..., Any], used: Sequence[tuple[str, str]]) -> AggregateMetric | None:
        """A formula of the means of some (set, column) pairs; None without pairs, or where one was not measured."""
        if not used or not all(self.has(*pair) for pair in used):
            return None
        return AggregateMetric(combine(formula, *(self.mean(*pair) for pair in used)), tuple(used))

    def count(self, split: str, metric: str) -> int:
        """Rows with a value."""
        return int(np.isfinite(self.values(split, metric)).sum())


@dataclass(frozen=True, slots=True)
class ModelComparison:
    """The evaluated model and those it is compared with."""

    this: RowMetrics
    original: RowMetrics | None = None
    retain_only: RowMetrics | None = None


@dataclass(frozen=True, slots=True)
class AggregateMetric:
    """A number that needs several sets or a second model."""

    estimate: Estimate
    used: tuple[tuple[str, str], ...]
    """The (set, column) pairs of the evaluated model it was made from."""
    rows: int | None = None
    """Rows it rests on, where that is not the smallest count of `used`."""


def set_values(
    numbers: RowMetrics, recorded: Mapping[str, Mapping[str, Recorded]]
) -> dict[str, dict[str, MetricValue]]:
    """What is shown of every set: mean, spread over rows and interval of each metric."""
    shown: dict[str, dict[str, MetricValue]] = {}
    for split, metrics in recorded.items():
        for name, kept in metrics.items():
            if not kept.shown:
                continue
            values = as_floats(kept.values)
            known = values[np.isfinite(values)]
            draws = numbers.weights(split)
            low, high = draws.mean(values).interval() or (None, None)
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
