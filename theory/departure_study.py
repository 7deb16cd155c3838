"""The study of SatGA+: the same grids and thresholds as for SatGA."""

from __future__ import annotations

import numpy as np

from theory.claims import Claim
from theory.departure import concave_from, modulated_grid, modulated_minimum, needed_entropy
from theory.instances import separated_problem
from theory.minima import minimum, retain_minimum
from theory.problem import Array, ToyProblem
from theory.relaxed import ScoreGrid, lowest, thresholds, value_grid, worst_curvature
from theory.relaxed_study import ABOVE, regularizer, row
from theory.rows import NeededRow, RelaxedRow
from theory.saturation import Objective

_PAIR, _PRIVATE_PAIR = [3, 5], [0, 3]  # one private and one shared token; two private tokens
_STEPS = 11
_RIDGES = (1e-2, 1e-3, 1e-4)
_SIDE = np.concatenate([np.geomspace(1e-3, 0.05, 12, endpoint=False), np.linspace(0.05, 0.95, 10)])
Lines = tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]


def departure(objective: Objective) -> tuple[tuple[RelaxedRow, ...], tuple[NeededRow, ...], Lines, list[Claim]]:
    """Return result rows, the required lambda_H, curves of the figure, and claims."""
    problem = separated_problem().restrict(_PAIR)
    plain = value_grid(problem, objective, _STEPS)
    plus = modulated_grid(problem, objective, _STEPS)
    fine = _edges_near_zero(problem, objective)
    every = ScoreGrid(np.vstack([plus.scores, fine.scores]), np.concatenate([plus.values, fine.values]), plus.gap)
    corners = np.isin(plus.scores, (0.0, 1.0)).all(axis=1)
    apart = float(np.abs(plain.values - plus.values)[corners].max())
    curvature = worst_curvature(plus.values, _STEPS, 2)
    rows, inside = [], True
    for entropy in (ABOVE, 4.0, 16.0):
        weights = regularizer(objective, 2, 1, entropy, ABOVE)
        found = lowest(every, weights)
        rows.append(row(found, "satga_plus", 1, entropy, ABOVE))
        edge = concave_from(weights.entropy_weight, objective)
        inside = inside and int(((found > edge) & (found < 1)).sum()) <= 1
    lines = [_edge_values(separated_problem(ridge=ridge).restrict(_PRIVATE_PAIR), objective) for ridge in _RIDGES]
    needed = tuple(_needed(ridge, values, objective) for ridge, values in zip(_RIDGES, lines, strict=True))
    at_zero, satga, satga_plus = lines[0]
    claims = [
        Claim(
            "on binary scores SatGA+ equals SatGA, so the fixed-budget theorem covers it",
            True,
            apart <= 1e-6,
            f"corners differ by {apart:.0e}",
        ),
        Claim(
            "SatGA+'s value function is concave in the scores",
            False,
            curvature <= 1e-6,
            f"second difference {curvature / objective.gain:.2f} C on the grid",
        ),
        Claim(
            "SatGA+'s minimizers are binary above the same thresholds",
            False,
            rows[0].binary,
            f"scores ({rows[0].scores[0]:g}, {rows[0].scores[1]:g}) of a private and a shared token, k = 1",
        ),
        Claim(
            "at most one score lies in (g0, 1), g0 = C/(C + lambda_H)",
            True,
            inside,
            "minimizers of the SatGA+ grid at 1, 4 and 16 times the threshold",
        ),
        Claim(
            "for SatGA+, some multiple of C suffices for lambda_H for every ridge",
            False,
            needed[-1].satga_plus < 1.5 * needed[0].satga_plus,
            ", ".join(f"{one.satga_plus:.0f} times the threshold at ridge {one.ridge:g}" for one in needed)
            + f"; SatGA {max(one.satga for one in needed):.2f}",
        ),
    ]
    scale = objective.gain
    drawn = (
        (0.0, *map(float, _SIDE)),
        (0.0, *(float(value - at_zero) / scale for value in satga)),
        (0.0, *(float(value - at_zero) / scale for value in satga_plus)),
    )
    return tuple(rows), needed, drawn, claims


def _edges_near_zero(problem: ToyProblem, objective: Objective) -> ScoreGrid:
    """Evaluate points with one score 1 and the other below the first step of the grid."""
    small = _SIDE[_SIDE < 1 / (_STEPS - 1)]
    scores = np.array([point for score in small for point in ((1.0, score), (score, 1.0))])
    values = np.array([modulated_minimum(problem, point, objective).value for point in scores])
    return ScoreGrid(scores, values, float("nan"))


def _edge_values(problem: ToyProblem, objective: Objective) -> tuple[float, Array, Array]:
    """Compute the values at (1, 0), and along (1, r) for both losses."""
    at_zero = minimum(problem, np.array([1.0, 0.0]), objective).value
    satga, plus, last = np.empty(len(_SIDE)), np.empty(len(_SIDE)), retain_minimum(problem).weights
    for index, score in enumerate(_SIDE):
        point = np.array([1.0, score])
        satga[index] = minimum(problem, point, objective).value
        found = modulated_minimum(problem, point, objective, starts=[last])
        plus[index], last = found.value, found.weights
    return at_zero, satga, plus


def _needed(ridge: float, values: tuple[float, Array, Array], objective: Objective) -> NeededRow:
    at_zero, satga, plus = values
    limit = thresholds(objective, 2).entropy
    budget = ABOVE * objective.gain
    return NeededRow(
        ridge=ridge,
        satga=needed_entropy(satga, _SIDE, at_zero=at_zero, budget_per_token=budget) / limit,
        satga_plus=needed_entropy(plus, _SIDE, at_zero=at_zero, budget_per_token=budget) / limit,
    )
