"""Bootstrap intervals of means and of functions of means, with rows resampled by cluster (Field and Welsh 2007).

Rows about one subject are dependent, so whole subjects are drawn with replacement. The draws depend on the clusters
only: models measured on the same rows share them, so every difference between models is paired.

Percentiles of the draws alone are too narrow with few clusters: a nominal 95 % covers 51 % at 2 clusters and 88 % at 8. So
their distance from the value is multiplied by `widening`, after which the coverage is 94 to 95 % at 4 clusters and more
(`tests/evaluation/test_intervals.py`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from atwu.data.arrays import FloatArray, IntArray, as_floats

DRAWS = 1000
LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    value: float
    """NaN if nothing was measured."""
    draws: FloatArray
    """Shape (draws,); NaN where a draw contains no measured row."""
    clusters: int = 0
    """Number of clusters that were resampled, the smallest of those of its parts; 0: a constant."""

    def interval(self, within: tuple[float | None, float | None] = (None, None)) -> tuple[float, float] | None:
        """Return the widened percentile interval, within the smallest and largest possible value; if all clusters are at one of
        these, the exact interval.

        None if the value or most draws are undefined, as with one cluster.
        """
        ends = self.percentiles()
        if ends is None:
            return None
        low, high = ends
        factor = widening(self.clusters)
        # A skewed statistic may lie outside the percentiles of its draws; they are then not drawn towards it.
        low, high = (
            min(low, self.value - factor * (self.value - low)),
            max(high, self.value + factor * (high - self.value)),
        )
        bottom, top = within
        if low == high and bottom is not None and top is not None:
            reach = (top - bottom) * of_equal_values(self.clusters)
            low, high = low - reach * (low == top), high + reach * (high == bottom)
        least = -math.inf if bottom is None else min(bottom, self.value)
        most = math.inf if top is None else max(top, self.value)
        return float(max(low, least)), float(min(high, most))

    def percentiles(self) -> tuple[float, float] | None:
        """Return the percentiles of the draws, as `interval` but not widened."""
        known = self.draws[np.isfinite(self.draws)]
        if not np.isfinite(self.value) or known.size < len(self.draws) / 2 or known.size == 0:
            return None
        low, high = np.quantile(known, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return float(low), float(high)


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


def of_equal_values(clusters: int) -> float:
    """Return the largest share at which no cluster of K shows what the share counts, with probability 2.5 %: 1 - .025^(1/K).

    It is the end of the exact interval (Clopper and Pearson 1934) of clusters that are all 0, of which every draw is 0, too.
    """
    return 1.0 - ((1 - LEVEL) / 2) ** (1 / clusters) if clusters > 1 else 0.0


def combine(function: Callable[..., FloatArray | float], *parts: Estimate) -> Estimate:
    """Apply a function to the values and, draw by draw, to the draws of estimates.

    Args:
        function: Elementwise function of one array (or number) per estimate.
        parts: Estimates with the same number of draws.
    """
    with np.errstate(all="ignore"):
        value = float(function(*(np.float64(part.value) for part in parts)))
        draws = np.asarray(function(*(part.draws for part in parts)), dtype=np.float64)
    return Estimate(value, draws, min((part.clusters for part in parts if part.clusters), default=0))


def in_percent(share: Estimate) -> Estimate:
    return combine(lambda part: 100 * part, share)


def mean_of(*estimates: Estimate) -> Estimate:
    return combine(lambda *parts: np.mean(parts, axis=0), *estimates)


class Resampler:
    """Bootstrap resampler of one set: draws rows by cluster."""

    def __init__(self, clusters: Sequence[str], *, draws: int = DRAWS, seed: int = 0) -> None:
        """Draw the clusters.

        Args:
            clusters: Cluster of every row, such as its subject, shape (rows,).
            seed: Seed of the draws; they depend only on it and on the number of clusters.
        """
        names = sorted(set(clusters))
        self.clusters = len(names)
        place = {name: index for index, name in enumerate(names)}
        self._member = member = np.array([place[name] for name in clusters], dtype=np.int64)
        generator = np.random.default_rng([seed, len(names)])
        times = generator.multinomial(len(names), np.full(len(names), 1 / len(names)), size=draws)
        self.weights: IntArray = times[:, member] * (len(names) > 1)
        """How often each row was drawn, shape (draws, rows); all zero with a single cluster, which gives no
        interval."""

    def mean(self, values: Sequence[float | None] | FloatArray) -> Estimate:
        """Return the mean over the rows that have a value (neither None nor NaN)."""
        known = as_floats(values)
        there = np.isfinite(known)
        filled = np.where(there, known, 0.0)
        with np.errstate(all="ignore"):
            value = float(filled.sum() / there.sum()) if there.any() else float("nan")
            draws = (self.weights @ filled) / (self.weights @ there.astype(np.int64))
        return Estimate(value, draws, len(np.unique(self._member[there])))
