"""The relaxed problem: scores in [0, 1] instead of a support, with entropy and budget terms.

J(g) = phi(g) + lambda_H sum_t H(g_t) + lambda_rho n (mean g - rho)^2 with
phi(g) = min over models of alpha L_r + gamma sum g_t f_t.
phi is concave and decreases by 0 to C = gamma/(e beta) per unit of a score: all thresholds follow (theory/README.md).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import entr
from tqdm import tqdm

from theory.minima import Minimum, memorized_model, minimum, retain_minimum
from theory.problem import Array, ToyProblem, gradient, measure
from theory.saturation import Objective, saturated
from theory.supports import SupportTable, scores_of

_EDGE = 1e-12  # distance of scores from 0 and 1 in the search, where the slope of the entropy is infinite


@dataclass(frozen=True, slots=True)
class Regularizer:
    """lambda_H, lambda_rho and the budget k = rho n in tokens."""

    entropy_weight: float
    budget_weight: float
    k: int

    def value(self, scores: Array) -> Array:
        """Compute the sum of both terms for scores of shape (..., tokens); shape (...)."""
        over = scores.sum(axis=-1) - self.k
        total: Array = (
            self.entropy_weight * entropy(scores).sum(axis=-1) + self.budget_weight / scores.shape[-1] * over**2
        )
        return total


def entropy(scores: Array) -> Array:
    """Compute H(g) = -g log g - (1 - g) log(1 - g), elementwise; 0 at 0 and 1."""
    values: Array = entr(scores) + entr(1.0 - scores)
    return values


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Sufficient weights of the regularizers.

    Attributes:
        entropy: lambda_H from which global minimizers are binary and tight, if lambda_rho exceeds `budget`.
        budget: threshold of lambda_rho.
    """

    entropy: float
    budget: float


def thresholds(objective: Objective, tokens: int) -> Thresholds:
    """Compute the thresholds lambda_H >= C/(4 log 2) and lambda_rho > n C with C = gamma/(e beta)."""
    return Thresholds(entropy=objective.gain / (4 * math.log(2)), budget=tokens * objective.gain)


def entropy_for_local(budget_weight: float, tokens: int) -> float:
    """Compute lambda_rho/(2 n), the lambda_H from which every local minimizer is binary."""
    return budget_weight / (2 * tokens)


@dataclass(frozen=True, slots=True, eq=False)
class ScoreGrid:
    """phi on a set of scores: `scores` (points, tokens), `values` (points,), and the largest certified gap."""

    scores: Array
    values: Array
    gap: float


def value_grid(problem: ToyProblem, objective: Objective, steps: int) -> ScoreGrid:
    """Compute phi on the full grid of [0, 1]^tokens with `steps` points per side."""
    return evaluated(problem, objective, full_grid(problem.n, steps), "grid")


def value_edges(problem: ToyProblem, objective: Objective, steps: int) -> ScoreGrid:
    """Compute phi on the edges of the cube, where at most one score is fractional."""
    side = np.linspace(0.0, 1.0, steps)
    points: list[list[float]] = []
    for token in range(problem.n):
        for rest in itertools.product((0.0, 1.0), repeat=problem.n - 1):
            points.extend([*rest[:token], score, *rest[token:]] for score in side)
    return evaluated(problem, objective, np.array(points), "edges")


def full_grid(tokens: int, steps: int) -> Array:
    """Return the grid points of [0, 1]^tokens with `steps` per side, shape (steps^tokens, tokens)."""
    return np.array(list(itertools.product(np.linspace(0.0, 1.0, steps), repeat=tokens)))


def evaluated(
    problem: ToyProblem,
    objective: Objective,
    scores: Array,
    title: str,
    minimize_at: Callable[..., Minimum] = minimum,
) -> ScoreGrid:
    """Compute the value function at scores of shape (points, tokens); each search also starts from the previous minimum."""
    values, gap, last = np.empty(len(scores)), 0.0, retain_minimum(problem).weights
    for index in tqdm(range(len(scores)), title, leave=False, disable=None):
        found = minimize_at(problem, scores[index], objective, starts=[last])
        values[index], gap, last = found.value, max(gap, found.gap), found.weights
    return ScoreGrid(scores, values, gap)


def lowest(grid: ScoreGrid, regularizer: Regularizer) -> Array:
    """Return the grid point with the lowest J, shape (tokens,)."""
    point: Array = grid.scores[np.argmin(grid.values + regularizer.value(grid.scores))]
    return point


def fractional(scores: Array) -> int:
    """Count the scores that are neither 0 nor 1, up to rounding errors."""
    return int(((scores > 1e-6) & (scores < 1 - 1e-6)).sum())


def worst_curvature(values: Array, steps: int, tokens: int) -> float:
    """Compute the largest second difference on a full grid, along axes and diagonals; <= 0 for a concave function."""
    cube = values.reshape((steps,) * tokens)
    worst = -np.inf
    for direction in itertools.product((-1, 0, 1), repeat=tokens):
        if not any(direction):
            continue
        low = tuple(slice(max(0, -2 * step), steps - max(0, 2 * step)) for step in direction)
        middle = tuple(slice(each.start + step, each.stop + step) for each, step in zip(low, direction, strict=True))
        high = tuple(
            slice(each.start + 2 * step, each.stop + 2 * step) for each, step in zip(low, direction, strict=True)
        )
        worst = max(worst, float((cube[low] - 2 * cube[middle] + cube[high]).max()))
    return worst


def edge_margin(table: SupportTable, regularizer: Regularizer, *, steps: int = 999) -> float:
    """Compute a lower bound of J on the open edges minus J at the best corner; negative: a fractional score may be optimal.

    On an edge the concave phi lies above its chord, so this bounds all scores with one fractional coordinate, and only those
    can be minimizers. Near a corner the bound tends to a value >= 0.
    """
    n = table.problem.n
    masks = np.arange(1 << n)
    values, lower = table.vertex_values, table.vertex_values - table.gaps
    best = float((values + _at_vertices(regularizer, n)).min())
    inner = np.linspace(0.0, 1.0, steps + 2)[1:-1]
    worst = np.inf
    for token in range(n):
        without = masks[(masks >> token) & 1 == 0]
        chord = np.outer(lower[without], 1 - inner) + np.outer(lower[without | 1 << token], inner)
        over = table.sizes[without][:, None] + inner - regularizer.k
        bound = chord + regularizer.entropy_weight * entropy(inner) + regularizer.budget_weight / n * over**2
        worst = min(worst, float(bound.min()) - best)
    return worst


def best_vertex(table: SupportTable, regularizer: Regularizer) -> int:
    """Return the support whose binary scores have the lowest J."""
    return int(np.argmin(table.vertex_values + _at_vertices(regularizer, table.problem.n)))


def _at_vertices(regularizer: Regularizer, tokens: int) -> Array:
    return regularizer.value(np.stack([scores_of(support, tokens) for support in range(1 << tokens)]))


@dataclass(frozen=True, slots=True, eq=False)
class SearchResult:
    """Result of one search over model and scores: the scores (tokens,) and J."""

    scores: Array
    value: float


def search(
    problem: ToyProblem,
    objective: Objective,
    regularizer: Regularizer,
    *,
    starts: int,
    seed: int = 0,
) -> list[SearchResult]:
    """Minimize J jointly over model and scores by projected L-BFGS, from the memorized model.

    The first start has all scores 1/2, as an untrained scorer; the others are random.
    """
    size = int(np.prod(problem.shape))
    memorized = memorized_model(problem)
    draw = np.random.default_rng([seed, starts])

    def function(point: Array) -> tuple[float, Array]:
        weights, scores = point[:size], point[size:]
        measured = measure(problem, weights)
        per_score, _ = saturated(measured.logps, np.ones(problem.n), beta=objective.beta)
        values, slopes = saturated(measured.logps, scores, beta=objective.beta)
        total = objective.retain_weight * measured.retain_loss + objective.forget_weight * float(values.sum())
        slopes = objective.forget_weight * slopes
        by_weights = gradient(problem, weights, measured, retain_scale=objective.retain_weight, slopes=slopes)
        over = scores.sum() - regularizer.k
        by_scores = objective.forget_weight * per_score + regularizer.entropy_weight * np.log1p(-scores)
        by_scores += 2 * regularizer.budget_weight / problem.n * over - regularizer.entropy_weight * np.log(scores)
        return total + float(regularizer.value(scores)), np.concatenate([by_weights, by_scores])

    bounds: Iterable[tuple[float | None, float | None]] = [(None, None)] * size + [(_EDGE, 1 - _EDGE)] * problem.n
    found = []
    for number in tqdm(range(starts), "search", leave=False, disable=None):
        scores = draw.uniform(0.02, 0.98, size=problem.n) if number else np.full(problem.n, 0.5)
        start = np.concatenate([memorized, scores])
        options = {"gtol": 1e-9, "ftol": 1e-15, "maxiter": 3000, "maxfun": 6000, "maxcor": 30}
        end = minimize(function, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        found.append(SearchResult(end.x[size:], float(end.fun)))
    return found
