"""Retain conflict: the smallest increase of the retain loss at which given tokens are forgotten, and separation.

c(S) = min { L_r : log p_t <= log level for t in S } - min L_r, by the augmented Lagrangian method with a dual lower bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from theory.minima import convexity, descend, retain_minimum
from theory.problem import Array, Flags, ToyProblem, gradient, measure

VIOLATION_TOLERANCE = 1e-8
_PENALTY = 10.0
_ROUNDS = 40


@dataclass(frozen=True, slots=True)
class Conflict:
    """Conflict of one support.

    Attributes:
        value: the increase of the retain loss that was found.
        lower: a lower bound of the smallest increase; -inf if unknown.
        weights: the model, flat.
        logps: log p of each forget token under the model, shape (tokens,).
        multipliers: Lagrange multiplier of each constraint, shape (tokens,), 0 outside the support.
        violation: worst violation of a constraint or of complementary slackness, in units of log p.
    """

    value: float
    lower: float
    weights: Array
    logps: Array
    multipliers: Array
    violation: float

    @property
    def gap(self) -> float:
        """Largest possible distance of `value` from the true conflict."""
        return self.value - self.lower


def conflict(
    problem: ToyProblem,
    support: Array,
    *,
    log_level: float,
    start: Array | None = None,
    multipliers: Array | None = None,
) -> Conflict:
    """Compute c(S) for the tokens where `support` is not 0, shape (tokens,).

    Args:
        problem: retain rows and forget tokens.
        support: S.
        log_level: log of the probability at or below which a token is forgotten.
        start: initial model; default: the retain minimum.
        multipliers: initial Lagrange multipliers, shape (tokens,); default: 0. They affect the speed, not the result.
    """
    chosen: Flags = np.asarray(support) > 0
    baseline = retain_minimum(problem)
    weights = baseline.weights if start is None else start
    multipliers = np.zeros(problem.n) if multipliers is None else np.maximum(multipliers, 0.0)
    violation = np.inf
    for _ in range(_ROUNDS):
        before = multipliers

        def function(weights: Array, before: Array = before) -> tuple[float, Array]:
            measured = measure(problem, weights)
            updated = _updated_multipliers(chosen, before, measured.logps, log_level)
            value = measured.retain_loss + float((updated**2 - before**2).sum()) / (2 * _PENALTY)
            return value, gradient(problem, weights, measured, retain_scale=1.0, slopes=updated)

        weights = descend(function, weights)
        measured = measure(problem, weights)
        multipliers = _updated_multipliers(chosen, before, measured.logps, log_level)
        excess = measured.logps - log_level
        violation = float(np.abs(np.where(chosen, np.maximum(excess, -multipliers), 0.0)).max(initial=0.0))
        if violation <= VIOLATION_TOLERANCE:
            break
    modulus = convexity(problem, multipliers, retain_weight=1.0)
    lower = -np.inf
    if modulus > 0:
        slope = gradient(problem, weights, measured, retain_scale=1.0, slopes=multipliers)
        dual = measured.retain_loss + float(multipliers @ (measured.logps - log_level))
        lower = dual - float(slope @ slope) / (2 * modulus) - baseline.value
    rise = measured.retain_loss - baseline.value
    return Conflict(rise, lower, weights, measured.logps, multipliers, violation)


def _updated_multipliers(chosen: Flags, before: Array, logps: Array, log_level: float) -> Array:
    updated: Array = np.where(chosen, np.maximum(0.0, before + _PENALTY * (logps - log_level)), 0.0)
    return updated


def marginals(values: Array, token: int) -> Array:
    """Compute values[S + token] - values[S] for all S without the token; values by bit mask, shape (2^tokens,)."""
    masks = np.arange(len(values))
    without = masks[(masks >> token) & 1 == 0]
    differences: Array = values[without | 1 << token] - values[without]
    return differences


@dataclass(frozen=True, slots=True)
class Separation:
    """Marginal conflicts over all supports.

    Attributes:
        largest_private: largest conflict that a private token adds, over all supports.
        smallest_shared: smallest conflict that a shared token adds.
        slack: range over all supports of c(S) - V(S)/alpha, which is due to the finite forget weight.
    """

    largest_private: float
    smallest_shared: float
    slack: float

    @property
    def holds(self) -> bool:
        """Whether tokens separate uniformly, slack of the penalty included; implies the exchange condition."""
        return self.largest_private + self.slack < self.smallest_shared


def separation(conflicts: Array, penalized: Array, private: Flags, *, retain_weight: float) -> Separation:
    """Compute the marginal conflicts over all supports; both arrays by bit mask, shape (2^tokens,)."""
    difference = conflicts - penalized / retain_weight
    return Separation(
        largest_private=max(float(marginals(conflicts, int(t)).max()) for t in np.flatnonzero(private)),
        smallest_shared=min(float(marginals(conflicts, int(t)).min()) for t in np.flatnonzero(~private)),
        slack=float(difference.max() - difference.min()),
    )
