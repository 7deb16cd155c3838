"""Minimize over the model, with a lower bound that certifies the minimum although the forget losses are not convex.

Reason: f(u) = u exp(beta u) lies above its tangent at any u in [-1/beta, 0], and u = log p is concave
in the weights with a Hessian that retain rows of the same context, or the ridge, outweigh. Then retain loss plus tangents is a
convex lower bound of the objective, with equality at the point found. Proof: theory/README.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.optimize import minimize

from theory.problem import Array, ToyProblem, gradient, measure
from theory.saturation import Objective, saturated

GAP_TOLERANCE = 1e-6
_MORE_STARTS = 4


@dataclass(frozen=True, slots=True)
class Minimum:
    """A minimum over the model.

    Attributes:
        value: the objective at the model found, an upper bound of the true minimum.
        lower: a lower bound of the true minimum; -inf if unknown.
        weights: the model, flat.
        retain_loss: L_r of the model.
        logps: log p of each forget token under the model, shape (tokens,).
    """

    value: float
    lower: float
    weights: Array
    retain_loss: float
    logps: Array

    @property
    def gap(self) -> float:
        """Largest possible distance of `value` from the true minimum."""
        return self.value - self.lower


def descend(function: Callable[[Array], tuple[float, Array]], start: Array, *, tolerance: float = 1e-10) -> Array:
    """Minimize by L-BFGS from one start, to machine precision; the function returns value and gradient."""
    options = {"gtol": tolerance, "ftol": 1e-16, "maxiter": 3000, "maxfun": 6000, "maxcor": 30}
    weights: Array = minimize(function, start, jac=True, method="L-BFGS-B", options=options).x
    return weights


@lru_cache(maxsize=64)
def retain_minimum(problem: ToyProblem) -> Minimum:
    """Minimize the retain loss alone; certified by strong convexity."""

    def function(weights: Array) -> tuple[float, Array]:
        measured = measure(problem, weights)
        none = np.zeros(problem.n)
        return measured.retain_loss, gradient(problem, weights, measured, retain_scale=1.0, slopes=none)

    weights = descend(function, np.zeros(np.prod(problem.shape)))
    value, slope = function(weights)
    measured = measure(problem, weights)
    return Minimum(value, value - float(slope @ slope) / (2 * problem.ridge), weights, value, measured.logps)


def memorized_model(problem: ToyProblem) -> Array:
    """Return the model before unlearning, trained on retain rows and forget tokens."""
    slopes = np.full(problem.n, -1.0 / problem.n)

    def function(weights: Array) -> tuple[float, Array]:
        measured = measure(problem, weights)
        value = measured.retain_loss + float(slopes @ measured.logps)
        return value, gradient(problem, weights, measured, retain_scale=1.0, slopes=slopes)

    return descend(function, np.zeros(np.prod(problem.shape)))


def convexity(problem: ToyProblem, multipliers: Array, *, retain_weight: float) -> float:
    """Compute a lower bound of the modulus of convexity of retain_weight * L_r + sum_t multipliers_t * log p_t.

    Multipliers are non-negative, shape (tokens,). The curvature of retain rows with the same context compensates that of a
    forget token, since it has the same form; the ridge must compensate the rest.
    """
    spare = retain_weight * problem.retain_shares.sum(axis=1)
    rest = multipliers.astype(float).copy()
    for t, context in enumerate(problem.forget_contexts):
        for row in np.flatnonzero((problem.retain_contexts == context).all(axis=1)):
            used = min(spare[row], rest[t])
            spare[row] -= used
            rest[t] -= used
    # The Hessian of log-sum-exp in the logits is at most 1/2.
    left = retain_weight * problem.ridge * np.eye(problem.shape[1])
    left -= 0.5 * (problem.forget_contexts.T * rest) @ problem.forget_contexts
    return float(np.linalg.eigvalsh(left)[0])


def lower_bound(problem: ToyProblem, scores: Array, objective: Objective, weights: Array) -> float:
    """Compute a lower bound of min over models of alpha L_r + gamma sum g_t f_t, from any model near the minimum.

    Each f_t is replaced by its tangent where log p_t >= -1/beta, by its minimum elsewhere.
    """
    measured = measure(problem, weights)
    values, slopes = saturated(measured.logps, scores, beta=objective.beta)
    tangent = measured.logps >= objective.log_level
    multipliers = objective.forget_weight * np.where(tangent, slopes, 0.0)
    modulus = convexity(problem, multipliers, retain_weight=objective.retain_weight)
    if modulus <= 0:
        return -np.inf
    below = objective.forget_weight * np.where(tangent, values, -scores * objective.depth)
    slope = gradient(problem, weights, measured, retain_scale=objective.retain_weight, slopes=multipliers)
    return objective.retain_weight * measured.retain_loss + float(below.sum()) - float(slope @ slope) / (2 * modulus)


def saturated_objective(
    problem: ToyProblem, scores: Array, objective: Objective, *, loss: Callable[..., tuple[Array, Array]] = saturated
) -> Callable[[Array], tuple[float, Array]]:
    """Return alpha L_r + gamma sum g_t f_t as a function of the weights, with gradient; f is SatGA's by default."""

    def function(weights: Array) -> tuple[float, Array]:
        measured = measure(problem, weights)
        values, slopes = loss(measured.logps, scores, beta=objective.beta)
        value = objective.retain_weight * measured.retain_loss + objective.forget_weight * float(values.sum())
        slopes = objective.forget_weight * slopes
        return value, gradient(problem, weights, measured, retain_scale=objective.retain_weight, slopes=slopes)

    return function


def minimum(
    problem: ToyProblem, scores: Array, objective: Objective, *, starts: Iterable[Array] = (), seed: int = 0
) -> Minimum:
    """Minimize alpha L_r + gamma sum g_t f_t with SatGA's f over models, for fixed scores g in [0, 1], shape (tokens,).

    Starts (those given, retain minimum, memorized model, random ones) are tried until the certified gap is small enough.
    """

    function = saturated_objective(problem, scores, objective)
    value, lower, best = np.inf, -np.inf, np.empty(0)
    for start in _all_starts(problem, starts, seed):
        weights = descend(function, start)
        lower = max(lower, lower_bound(problem, scores, objective, weights))
        reached = function(weights)[0]
        if reached < value:
            value, best = reached, weights
        if value - lower <= GAP_TOLERANCE:
            break
    measured = measure(problem, best)
    return Minimum(value, lower, best, measured.retain_loss, measured.logps)


def random_starts(problem: ToyProblem, count: int, *, seed: int, spread: float = 3.0) -> list[Array]:
    """Draw random models, far from any minimum."""
    draw = np.random.default_rng([seed, count])
    return [spread * draw.normal(size=np.prod(problem.shape)) for _ in range(count)]


def descend_all(problem: ToyProblem, scores: Array, objective: Objective, *, count: int, seed: int) -> list[float]:
    """Minimize from random starts and return the values reached."""
    function = saturated_objective(problem, scores, objective)
    return [function(descend(function, start))[0] for start in random_starts(problem, count, seed=seed)]


def _all_starts(problem: ToyProblem, given: Iterable[Array], seed: int) -> Iterable[Array]:
    yield from given
    yield retain_minimum(problem).weights
    yield memorized_model(problem)
    yield from random_starts(problem, _MORE_STARTS, seed=seed)
