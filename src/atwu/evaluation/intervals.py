"""Bootstrap intervals of means and of functions of means, with rows resampled by cluster (Field and Welsh 2007).

Rows about one subject are dependent, so whole subjects are drawn with replacement. The draws depend on the clusters
only: models measured on the same rows share them, so every difference between models is paired.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from atwu.data.arrays import FloatArray, IntArray, as_floats

DRAWS = 1000
LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its bootstrap draws."""

    value: float
    """NaN if nothing was measured."""
    draws: FloatArray
    """Shape (draws,); NaN where a draw contains no measured row."""

    def interval(self) -> tuple[float, float] | None:
        """Return the percentile interval; None if the value or most draws are undefined, as with a single cluster."""
        known = self.draws[np.isfinite(self.draws)]
        if not np.isfinite(self.value) or known.size < len(self.draws) / 2 or known.size == 0:
            return None
        low, high = np.quantile(known, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return float(low), float(high)


def combine(function: Callable[..., FloatArray | float], *parts: Estimate) -> Estimate:
    """Apply a function to the values and, draw by draw, to the draws of estimates.

    Args:
        function: Elementwise function of one array (or number) per estimate.
        parts: Estimates with the same number of draws.
    """
    with np.errstate(all="ignore"):
        value = float(function(*(np.float64(part.value) for part in parts)))
        draws = np.asarray(function(*(part.draws for part in parts)), dtype=np.float64)
    return Estimate(value, draws)


def in_percent(share: Estimate) -> Estimate:
    """Convert a share to percent."""
    return combine(lambda part: 100 * part, share)


def mean_of(*estimates: Estimate) -> Estimate:
    """Return the mean of estimates, for example over seeds."""
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
        member = np.array([place[name] for name in clusters], dtype=np.int64)
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
        return Estimate(value, draws)
