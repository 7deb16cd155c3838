"""Where the theorem does not cover SatGA+: the score is also in the exponent, so the value is not concave in the scores.

phi+(g) = min over models of alpha L_r + gamma sum g_t p_t^(beta g_t) log p_t. It equals phi on binary scores. But for every
g > 0 the loss of a token reaches the same minimum -1/(e beta), at p = exp(-1/(beta g)): a small score gains as much as 1.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from theory.minima import Minimum, descend, memorized_model, random_starts, retain_minimum, saturated_objective
from theory.problem import Array, ToyProblem, measure
from theory.relaxed import ScoreGrid, entropy, evaluated, full_grid
from theory.saturation import Objective, modulated


def modulated_minimum(
    problem: ToyProblem, scores: Array, objective: Objective, *, starts: Iterable[Array] = (), extra: int = 0
) -> Minimum:
    """Compute phi+(g) as the best of several starts: an upper bound without certificate.

    Args:
        problem: retain rows and forget tokens.
        scores: g, shape (tokens,).
        objective: weights of the objective.
        starts: initial models in addition to the retain minimum and the memorized model.
        extra: number of random starts.
    """
    function = saturated_objective(problem, scores, objective, loss=modulated)
    fixed = (retain_minimum(problem).weights, memorized_model(problem))
    ends = [descend(function, start) for start in (*starts, *fixed, *random_starts(problem, extra, seed=0))]
    best = min(ends, key=lambda weights: function(weights)[0])
    measured = measure(problem, best)
    return Minimum(function(best)[0], -np.inf, best, measured.retain_loss, measured.logps)


def modulated_grid(problem: ToyProblem, objective: Objective, steps: int) -> ScoreGrid:
    """Compute phi+ on the full grid of [0, 1]^tokens with `steps` points per side; uncertified, so the gap is infinite."""
    return evaluated(problem, objective, full_grid(problem.n, steps), "SatGA+ grid", modulated_minimum)


def needed_entropy(values: Array, side: Array, *, at_zero: float, budget_per_token: float) -> float:
    """Compute the largest lambda_H at which a fractional score on one edge is better than score 0.

    Args:
        values: the value function along the edge, shape (points,).
        side: the scores of these points, in (0, 1), same shape.
        at_zero: the value at the corner with score 0, where the budget is met.
        budget_per_token: lambda_rho/n.
    """
    return float(((at_zero - values - budget_per_token * side**2) / entropy(side)).max())


def concave_from(entropy_weight: float, objective: Objective) -> float:
    """Compute g0 = C/(C + lambda_H), the score above which the entropy outweighs the convexity of SatGA+, for every model.

    A minimizer of the SatGA+ problem has at most one score in (g0, 1); fractional scores below g0 remain possible.
    """
    return objective.gain / (objective.gain + entropy_weight)
