"""Bootstrap intervals of means and of functions of means, with rows resampled by cluster (Field and Welsh 2007).

Rows about one subject are dependent, so whole subjects are drawn with replacement. The draws depend on the clusters
only: models measured on the same rows share them, so every difference between models is paired.

Percentiles of the draws alone are too narrow with few clusters: a nominal 95 % covers 51 % at 2 clusters and 88 % at 8. So
their distance from the value is multiplied by `widening`. Where at least half of the clusters are alike, as in most paired
differences, the draws do not know of clusters that differ but were not met, and `unseen_share` bounds how many these are.
Coverage at 4 clusters and more is then 93 % or higher (`tests/evaluation/test_intervals.py`).
"""

from __future__ import annotations

import dataclasses
import functools
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from atwu.data.arrays import FloatArray, IntArray
from atwu.evaluation.columns import GENERAL_TEXT

if TYPE_CHECKING:
    from atwu.evaluation.result import RowValues

DRAWS = 1000
"""Bootstrap draws; 25 of them lie beyond each end of an interval."""
LEVEL = 0.95

ValueRange = tuple[float | None, float | None]
"""Smallest and largest possible value; None: unbounded."""
ClusterSet = tuple[int, ...]
"""Names the clusters that were resampled together."""


@dataclass(frozen=True, slots=True)
class Estimate:
    value: float
    """NaN if nothing was measured."""
    draws: FloatArray
    """Shape (draws,); NaN where a draw contains no measured row."""
    clusters: int = 0
    """Number of clusters that were resampled, the smallest of those of its parts; 0: a constant."""
    alike: Mapping[ClusterSet, FloatArray] = field(default_factory=dict)
    """For every set of clusters, the value if all its clusters were like one of them, shape (clusters,); NaN for a cluster
    without measured rows."""
    within: ValueRange = (None, None)

    def bounded(self, within: ValueRange) -> Estimate:
        """Return the same estimate with its smallest and largest possible value."""
        return dataclasses.replace(self, within=within)

    def interval(self) -> tuple[float, float] | None:
        """Return the widened percentile interval, extended for unseen clusters, within the smallest and largest possible value.

        None if the value or most draws are undefined, as with one cluster, or if nothing tells how far an unseen cluster may
        be: all are alike, and the value has no bounds.
        """
        ends = self.percentiles()
        if ends is None:
            return None
        bottom, top = self.within
        least = -math.inf if bottom is None else min(bottom, self.value)
        most = math.inf if top is None else max(top, self.value)
        down, up = self._reach_of_unseen(least, most)
        # Without bounds, nothing tells how far an unseen cluster may be.
        if not math.isfinite(down) or not math.isfinite(up):
            return None
        low, high = ends
        factor = widening(self.clusters)
        # A skewed statistic may lie outside the percentiles of its draws; they are then not drawn towards it.
        low = min(low, self.value - factor * (self.value - low), self.value - down)
        high = max(high, self.value + factor * (high - self.value), self.value + up)
        return float(max(low, least)), float(min(high, most))

    def _reach_of_unseen(self, least: float, most: float) -> tuple[float, float]:
        """Return how far below and above the value the ends are at least, because of clusters that differ but were not met.

        If `k` of a set's K clusters differ from the other, equal ones, unseen ones may be as far from these as the largest of a
        uniform distribution of which `k` are known, (k + 1) / k times the largest seen; with `k` = 0, at the ends of the range.
        """
        # All draws are equal: no cluster was seen to differ.
        if self.clusters > 1 and len(np.unique(_round_off(self.draws[np.isfinite(self.draws)]))) == 1:
            share = unseen_share(0, self.clusters)
            return _times(share, self.value - least), _times(share, most - self.value)
        # Sets of clusters are independent, so their reaches add up as errors do.
        squares = np.zeros(2)
        for values in self.alike.values():
            known = values[np.isfinite(values)]
            if not known.size:
                continue
            _, first, counts = np.unique(_round_off(known), return_index=True, return_counts=True)
            usual, count = float(known[first[counts.argmax()]]), int(counts.max())
            differing = len(known) - count
            # With fewer alike, the draws themselves know of clusters that differ.
            if not differing or count < max(2, len(known) / 2):
                continue
            largest = (differing + 1) / differing * float(np.abs(known - usual).max())
            distances = np.array([min(largest, max(usual - least, 0.0)), min(largest, max(most - usual, 0.0))])
            squares += (unseen_share(differing, len(known)) * distances) ** 2
        down, up = np.sqrt(squares)
        return float(down), float(up)

    def percentiles(self) -> tuple[float, float] | None:
        """Return the percentiles of the draws, as `interval` but not widened."""
        # With a value in few draws only, their percentiles would be those of a selection.
        known = self.draws[np.isfinite(self.draws)]
        if not np.isfinite(self.value) or known.size < len(self.draws) / 2 or known.size == 0:
            return None
        low, high = np.quantile(known, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return float(low), float(high)


def _times(share: float, distance: float) -> float:
    """Return the product, 0 for a distance of 0 and infinity for an infinite one."""
    return share * distance if distance else 0.0


def _round_off(values: FloatArray) -> FloatArray:
    """Return values of which those are equal that differ by rounding only: by 1e-9, or by that share of the largest."""
    return np.round(values / max(1.0, float(np.abs(values).max())), 9)


@dataclass(frozen=True, slots=True)
class AggregateMetric:
    """A value that needs several sets or a reference model."""

    estimate: Estimate
    used: tuple[tuple[str, str], ...]
    """(set, column) pairs of the evaluated model that it is computed from."""
    rows: int | None = None
    """Number of rows; None: the smallest count of `used`."""


@functools.cache
def widening(clusters: int) -> float:
    """Factor of the half-widths of a bootstrap interval of few clusters, t / z * sqrt(K / (K - 1)).

    The quantile of Student's t with K - 1 degrees of freedom takes the place of the normal one, and the variance of the
    draws, which divides by K, becomes the unbiased one (Hesterberg 2015, "What teachers should know about the bootstrap").

    Args:
        clusters: K; below 2 the factor is 1.
    """
    if clusters < 2:
        return 1.0
    from scipy.stats import norm, t

    tail = (1 + LEVEL) / 2
    return float(t.ppf(tail, clusters - 1) / norm.ppf(tail) * math.sqrt(clusters / (clusters - 1)))


def unseen_share(differing: int, clusters: int) -> float:
    """Return by how much the share of clusters that differ may exceed the share seen, with probability 2.5 %.

    It is the upper end of the exact interval of a share (Clopper and Pearson 1934) minus the share itself; 1 - .025^(1/K)
    where none of K clusters differs.
    """
    from scipy.stats import beta

    if differing >= clusters:
        return 0.0
    end = beta.ppf((1 + LEVEL) / 2, differing + 1, clusters - differing)
    return float(end) - differing / clusters


def combine(function: Callable[..., FloatArray | float], *parts: Estimate) -> Estimate:
    """Apply a function to the values and, draw by draw, to the draws of estimates; the result has no bounds.

    Args:
        function: Elementwise function of one array (or number) per estimate.
        parts: Estimates with the same number of draws.
    """
    # A part that has no clusters of a set is constant over them.
    sizes = {name: len(values) for part in parts for name, values in part.alike.items()}
    # A draw may divide by zero; it becomes NaN or infinite, and percentiles leave it out.
    with np.errstate(all="ignore"):
        value = float(function(*(np.float64(part.value) for part in parts)))
        draws = np.asarray(function(*(part.draws for part in parts)), dtype=np.float64)
        alike = {}
        for name, size in sizes.items():
            values = [part.alike.get(name, np.full(size, part.value)) for part in parts]
            alike[name] = np.asarray(function(*values), dtype=np.float64)
    return Estimate(value, draws, min((part.clusters for part in parts if part.clusters), default=0), alike)


def subtract(first: Estimate, second: Estimate, within: ValueRange) -> Estimate:
    """Return the paired difference of two values of one metric.

    Args:
        within: smallest and largest possible value of the metric.
    """
    bottom, top = within
    difference = combine(np.subtract, first, second)
    # A difference of values in [0, 1] lies in [-1, 1].
    if bottom is None or top is None:
        return difference
    return difference.bounded((bottom - top, top - bottom))


def in_percent(share: Estimate) -> Estimate:
    return combine(lambda part: 100 * part, share)


def mean_of(*estimates: Estimate) -> Estimate:
    """Return the mean of estimates of one metric, within the bounds of the first."""
    return combine(lambda *parts: np.mean(parts, axis=0), *estimates).bounded(estimates[0].within)


class Resampler:
    """Bootstrap resampler of one set: draws rows by cluster."""

    def __init__(self, clusters: Sequence[str], *, draws: int = DRAWS, seed: int = 0) -> None:
        """Draw the clusters.

        Args:
            clusters: Cluster of every row, such as its subject, shape (rows,).
            seed: Seed of the draws; they depend only on it and on the number of clusters.
        """
        # Sorted, so that the draws do not depend on the order of rows.
        names = sorted(set(clusters))
        self.clusters = len(names)
        place = {name: index for index, name in enumerate(names)}
        self._name: ClusterSet = (seed, self.clusters)
        self._member = member = np.array([place[name] for name in clusters], dtype=np.int64)
        generator = np.random.default_rng([seed, len(names)])
        times = generator.multinomial(len(names), np.full(len(names), 1 / len(names)), size=draws)
        # Rows of one cluster are drawn together. With one cluster every draw is equal, which is no interval.
        self.weights: IntArray = times[:, member] * (len(names) > 1)
        """How often each row was drawn, shape (draws, rows); all zero with a single cluster, which gives no
        interval."""

    def mean(self, values: Sequence[float | None] | FloatArray) -> Estimate:
        """Return the mean over the rows that have a value (neither None nor NaN)."""
        numbers = np.asarray(values, dtype=np.float64)  # None becomes NaN
        there = np.isfinite(numbers)
        filled = np.where(there, numbers, 0.0)
        sums, counts = (np.bincount(self._member, part, self.clusters) for part in (filled, there))
        with np.errstate(all="ignore"):
            value = float(filled.sum() / there.sum()) if there.any() else float("nan")
            draws = (self.weights @ filled) / (self.weights @ there.astype(np.int64))
            alike = sums / counts
        return Estimate(value, draws, len(np.unique(self._member[there])), {self._name: alike})


@lru_cache(maxsize=32)
def resampler(split: str, subjects: tuple[str, ...]) -> Resampler:
    """Return the bootstrap resampler of a set; its draws depend only on the set's name and the rows' subjects."""
    # Seeded by its former name, so that recorded intervals are reproduced.
    if split == GENERAL_TEXT:
        split = "prose"
    return Resampler(subjects, seed=zlib.crc32(split.encode()))


class RowMetrics:
    def __init__(self, rows: Mapping[str, RowValues]) -> None:
        self.rows = rows

    def has(self, split: str, metric: str) -> bool:
        """Return whether a metric has a value on any row of a set."""
        return split in self.rows and any(v is not None for v in self.rows[split].metrics.get(metric, ()))

    def values(self, split: str, metric: str) -> FloatArray:
        """Return one value per row, NaN where undefined."""
        return np.asarray(self.rows[split].metrics[metric], dtype=np.float64)

    def resampler_of(self, split: str) -> Resampler:
        return resampler(split, self.rows[split].subjects)

    def mean(self, split: str, metric: str, *, where: FloatArray | None = None) -> Estimate:
        """Return the mean over rows, or over the rows that also have a value in `where`."""
        values = self.values(split, metric)
        if where is not None:
            values = np.where(np.isfinite(where), values, np.nan)
        return self.resampler_of(split).mean(values)

    def apply_formula(self, formula: Any, used: Sequence[tuple[str, str]]) -> AggregateMetric | None:
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


def difference(first: MeasuredColumn, second: MeasuredColumn, within: ValueRange) -> Estimate:
    """Return first minus second, both over the rows on which both have a value.

    Args:
        within: smallest and largest possible value of the column.
    """
    (one, other), _ = joint_means(first, second)
    return subtract(one, other, within)


def joint_means(*parts: MeasuredColumn) -> tuple[list[Estimate], int]:
    """Return the mean of every column over the rows on which all have a value, and the number of these rows."""
    # A sum is NaN unless every column has a value.
    every = np.sum([side.values(split, name) for side, split, name in parts], axis=0)
    means = [side.mean(split, name, where=every) for side, split, name in parts]
    return means, int(np.isfinite(every).sum())
