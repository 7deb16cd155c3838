"""Where SatGA+ leaves the theorem: its score stands in the exponent as well, so the value is not concave in the scores.

phi+(g) = min over models of alpha L_r + gamma sum g_t p_t^(beta g_t) log p_t. It equals phi on binary scores. But for every
g > 0 the loss of a token can reach the same depth -1/(e beta), at p = exp(-1/(beta g)): a small score is worth as much as 1.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np

from theory.minima import descend, memorised_model, random_starts, retain_minimum
from theory.problem import Array, ToyProblem, gradient, measure
from theory.relaxed import ScoreGrid, entropy
from theory.saturation import Objective, modulated
from theory.supports import Track, silent


def modulated_minimum(
    problem: ToyProblem, scores: Array, objective: Objective, *, starts: Iterable[Array] = (), extra: int = 0
) -> tuple[float, Array]:
    """phi+(g), the best over several starts, and its model; an upper bound without certificate.

    Args:
        problem: retain rows and forget tokens.
        scores: g, shape (tokens,).
        objective: the weights.
        starts: models tried besides the retain minimum and the memorised model.
        extra: number of random starts.
    """

    def function(weights: Array) -> tuple[float, Array]:
        measured = measure(problem, weights)
        values, slopes = modulated(measured.logps, scores, beta=objective.beta)
        value = objective.retain_weight * measured.retain_loss + objective.forget_weight * float(values.sum())
        slopes = objective.forget_weight * slopes
        return value, gradient(problem, weights, measured, retain_scale=objective.retain_weight, slopes=slopes)

    fixed = [retain_minimum(problem).weights, memorised_model(problem)]
    best, model = np.inf, fixed[0]
    for start in (*starts, *fixed, *random_starts(problem, extra, seed=0)):
        weights = descend(function, start)
        value = function(weights)[0]
        if value < best:
            best, model = value, weights
    return float(best), model


def modulated_grid(problem: ToyProblem, objective: Objective, steps: int, *, track: Track = silent) -> ScoreGrid:
    """phi+ on the full grid of [0, 1]^tokens with `steps` points a side; the gap is unknown."""
    side = np.linspace(0.0, 1.0, steps)
    scores = np.array(list(itertools.product(side, repeat=problem.n)))
    values, last = np.empty(len(scores)), retain_minimum(problem).weights
    for index in track(range(len(scores)), "SatGA+ grid"):
        values[index], last = modulated_minimum(problem, scores[index], objective, starts=[last])
    return ScoreGrid(scores, values, float("nan"))


def needed_entropy(values: Array, side: Array, *, at_zero: float, budget_per_token: float) -> float:
    """The lambda_H below which a fractional score on one edge beats not selecting its token.

    Args:
        values: the value function along the edge, shape (points,).
        side: the scores there, in (0, 1), same shape.
        at_zero: the value at the corner where that score is 0 and the budget is met.
        budget_per_token: lambda_rho/n.
    """
    return float(((at_zero - values - budget_per_token * side**2) / entropy(side)).max())


def concave_from(entropy_weight: float, objective: Objective) -> float:
    """The score g0 = C/(C + lambda_H) from which the entropy outweighs SatGA+'s convexity, for every model.

    A minimiser of the SatGA+ problem has at most one score in (g0, 1); fractional scores below g0 stay possible.
    """
    return objective.gain / (objective.gain + entropy_weight)
