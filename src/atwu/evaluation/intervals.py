"""Bootstrap intervals of means and of anything computed from means, with rows drawn in clusters (Field and Welsh 2007).

Rows about one subject are dependent, so whole subjects are drawn with replacement. The draws depend on the clusters
alone: two models measured on the same rows get the same draws, which makes every difference between them paired.
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
    """A number and what it would have been on resampled rows."""

    value: float
    """NaN when nothing was measured."""
    draws: FloatArray
    """Shape (draws,); NaN where a draw holds no measured row."""

    def interval(self) -> tuple[float, float] | None:
        """Percentile interval; None when the number or most of its draws are undefined, as those of a single cluster are."""
        known = self.draws[np.isfinite(self.draws)]
        if not np.isfinite(self.value) or known.size < len(self.draws) / 2 or known.size == 0:
            return None
        low, high = np.quantile(known, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return float(low), float(high)


def combine(function: Callable[..., FloatArray | float], *parts: Estimate) -> Estimate:
    """A function of estimates, applied to the numbers and to every draw alike.

    Args:
        function: takes one array (or number) per part, element-wise, and gives the same.
        parts: estimates with equally many draws.
    """
    with np.errstate(all="ignore"):
        value = float(function(*(np.float64(part.value) for part in parts)))
        draws = np.asarray(function(*(part.draws for part in parts)), dtype=np.float64)
    return Estimate(value, draws)


def in_percent(share: Estimate) -> Estimate:
    """A share as it is published."""
    return combine(lambda part: 100 * part, share)


def mean_of(*estimates: Estimate) -> Estimate:
    """Their mean, such as that over seeds."""
    return combine(lambda *parts: np.mean(parts, axis=0), *estimates)


class Resampler:
    """Draws the rows of one set by cluster."""

    def __init__(self, clusters: Sequence[str], *, draws: int = DRAWS, seed: int = 0) -> None:
        """Draw.

        Args:
            clusters: cluster of every row, such as its subject; shape (rows,).
            seed: of the draws; with the sorted cluster names it decides them.
        """
        names = sorted(set(clusters))
        self.clusters = len(names)
        place = {name: index for index, name in enumerate(names)}
        member = np.array([place[name] for name in clusters], dtype=np.int64)
        generator = np.random.default_rng([seed, len(names)])
        times = generator.multinomial(len(names), np.full(len(names), 1 / len(names)), size=draws)
        self.weights: IntArray = times[:, member] * (len(names) > 1)
        """How often each row was drawn, shape (draws, rows); never with a single cluster, which tells nothing of others."""

    def mean(self, values: Sequence[float | None] | FloatArray) -> Estimate:
        """Mean over the rows that have a value; None and NaN are none."""
        known = as_floats(values)
        there = np.isfinite(known)
        filled = np.where(there, known, 0.0)
        with np.errstate(all="ignore"):
            value = float(filled.sum() / there.sum()) if there.any() else float("nan")
            draws = (self.weights @ filled) / (self.weights @ there.astype(np.int64))
        return Estimate(value, draws)
