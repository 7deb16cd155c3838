"""The study of the relaxed problem: thresholds on grids, on all edges, and in gradient search."""

from __future__ import annotations

import itertools

import numpy as np

from theory.claims import Claim
from theory.problem import Array
from theory.relaxed import (
    Regularizer,
    ScoreGrid,
    best_vertex,
    edge_margin,
    entropy_for_local,
    fractional,
    lowest,
    search,
    thresholds,
    value_edges,
    value_grid,
    worst_curvature,
)
from theory.rows import RelaxedRow, SearchRow
from theory.saturation import Objective
from theory.supports import SupportTable, choose, scores_of

ABOVE = 1.001  # just above a threshold
_MULTIPLES = (ABOVE, 2.0, 4.0, 16.0)
_STARTS = 40
_CURVATURE = 1e-6
_PAIR, _TRIPLE = [3, 5], [0, 3, 5]  # one private and one shared token; two private tokens and one shared token
Phases = tuple[tuple[float, ...], tuple[tuple[int, ...], ...]]


def relaxation(
    table: SupportTable, *, seed: int
) -> tuple[tuple[RelaxedRow, ...], tuple[SearchRow, ...], Phases, list[Claim]]:
    """Return result rows, searches, phases of the figure, and claims for the separated problem."""
    objective = table.objective
    pair = value_grid(table.problem.restrict(_PAIR), objective, 31)
    triple = value_grid(table.problem.restrict(_TRIPLE), objective, 11)
    edges = value_edges(table.problem.restrict(_TRIPLE), objective, 101)
    curvature = max(worst_curvature(pair.values, 31, 2), worst_curvature(triple.values, 11, 3))
    rows = [
        row(lowest(edges, regularizer(objective, 3, k, entropy, budget)), "satga", k, entropy, budget)
        for k, entropy, budget in (
            (1, ABOVE, ABOVE),
            (2, ABOVE, ABOVE),
            (1, ABOVE, 0.5),
            (1, 0.5, 1.1),
            (2, 0.5, 1.1),
            (1, 0.5, 4.0),
        )
    ]
    grids = ((pair, 2), (triple, 3))
    above = [
        (row(lowest(grid, regularizer(objective, n, k, entropy, budget)), "satga", k, entropy, budget), k)
        for grid, n in grids
        for k in range(1, n)
        for entropy, budget in itertools.product(_MULTIPLES, repeat=2)
    ]
    margins, winners = _all_tokens(table)
    searches = tuple(_search(table, entropy, budget, seed) for entropy, budget in _search_weights(table))
    below_budget, below_entropy = rows[2], rows[3]
    claims = [
        Claim(
            "the value function is concave in the scores",
            True,
            curvature <= _CURVATURE,
            f"grids of 2 and 3 tokens, largest second difference {curvature:.0e}",
        ),
        Claim(
            "a minimizer has at most one fractional score, for any lambda_H > 0",
            True,
            _at_most_one(objective, grids),
            "grids of 2 and 3 tokens, 100 pairs of weights, both sides of the thresholds",
        ),
        Claim(
            "above lambda_H = C/(4 log 2), lambda_rho = nC the minimizers are binary, tight and private",
            True,
            all(one.binary and one.tight and one.scores[-1] == 0 for one, _ in above),
            f"{len(above)} grid minimizers, 2 and 3 tokens",
        ),
        Claim(
            f"the same for all {table.problem.n} tokens and every budget",
            True,
            min(margins) > 0 and winners,
            f"{table.problem.n << (table.problem.n - 1)} edges of the cube, J exceeds the best corner by {min(margins):.1e}",
        ),
        Claim(
            "with lambda_rho at half its threshold the minimizer is tight",
            False,
            below_budget.tight,
            f"scores {_format_scores(below_budget)} for k = {below_budget.k}",
        ),
        Claim(
            "with lambda_H at half its threshold the minimizer is binary",
            False,
            below_entropy.binary,
            f"scores {_format_scores(below_entropy)} for k = {below_entropy.k}",
        ),
        Claim(
            "with lambda_H >= lambda_rho/(2n) a search always ends at binary scores",
            True,
            searches[1].binary == searches[1].starts,
            f"{searches[1].binary} of {searches[1].starts}; {searches[0].binary} of {searches[0].starts} below it",
        ),
        Claim(
            "every such search finds the global minimum",
            False,
            searches[1].best == searches[1].starts,
            f"{searches[1].best} of {searches[1].starts} starts; every corner is a local minimum",
        ),
    ]
    return tuple(rows), searches, _phases(edges, objective), claims


def regularizer(objective: Objective, n: int, k: int, entropy: float, budget: float) -> Regularizer:
    """Return a regularizer with weights given as multiples of their thresholds for n tokens."""
    limits = thresholds(objective, n)
    return Regularizer(entropy * limits.entropy, budget * limits.budget, k)


def row(scores: Array, forget_loss: str, k: int, entropy: float, budget: float) -> RelaxedRow:
    """Describe the minimizing scores."""
    return RelaxedRow(
        forget_loss=forget_loss,
        k=k,
        entropy=entropy,
        budget=budget,
        scores=tuple(round(float(score), 6) for score in scores),
        binary=fractional(scores) == 0,
        tight=abs(float(scores.sum()) - k) < 1e-6,
        guaranteed=entropy >= 1 and budget > 1 and forget_loss == "satga",
    )


def _format_scores(one: RelaxedRow) -> str:
    return "(" + ", ".join(f"{score:g}" for score in one.scores) + ")"


def _at_most_one(objective: Objective, grids: tuple[tuple[ScoreGrid, int], ...]) -> bool:
    multiples = np.geomspace(0.05, 20.0, 10)
    return all(
        fractional(lowest(grid, regularizer(objective, n, 1, entropy, budget))) <= 1
        for grid, n in grids
        for entropy, budget in itertools.product(multiples, repeat=2)
    )


def _all_tokens(table: SupportTable) -> tuple[list[float], bool]:
    n = table.problem.n
    margins, same = [], True
    for k in range(1, n):
        weights = regularizer(table.objective, n, k, ABOVE, ABOVE)
        margins.append(edge_margin(table, weights))
        same = same and best_vertex(table, weights) == choose(table, k).support
    return margins, same


def _search_weights(table: SupportTable) -> tuple[tuple[float, float], ...]:
    limits = thresholds(table.objective, table.problem.n)
    local = entropy_for_local(ABOVE * limits.budget, table.problem.n) / limits.entropy
    return (ABOVE, ABOVE), (local, ABOVE)


def _search(table: SupportTable, entropy: float, budget: float, seed: int) -> SearchRow:
    problem, k = table.problem, int(table.problem.private.sum())
    weights = regularizer(table.objective, problem.n, k, entropy, budget)
    found = search(problem, table.objective, weights, starts=_STARTS, seed=seed)
    winner = best_vertex(table, weights)
    lowest_value = table.vertex_values[winner] + float(weights.value(scores_of(winner, problem.n)))
    distances = [end.value - lowest_value for end in found]
    return SearchRow(
        entropy=entropy,
        budget=budget,
        starts=len(found),
        binary=sum(fractional(end.scores) == 0 for end in found),
        tight=sum(abs(float(end.scores.sum()) - k) < 1e-6 for end in found),
        best=sum(bool(distance < 1e-6) for distance in distances),
        distance=float(min(distances)),
        from_half=tuple(round(float(score), 3) for score in found[0].scores),
    )


def _phases(edges: ScoreGrid, objective: Objective) -> Phases:
    multiples = tuple(float(value) for value in np.linspace(0.05, 2.0, 40))
    phases = []
    for budget in multiples:
        line = []
        for entropy in multiples:
            scores = lowest(edges, regularizer(objective, 3, 1, entropy, budget))
            binary, tight = fractional(scores) == 0, abs(float(scores.sum()) - 1) < 1e-6
            line.append(0 if binary and tight else 1 if binary else 2)
        phases.append(tuple(line))
    return multiples, tuple(phases)
