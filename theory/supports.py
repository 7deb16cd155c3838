"""Solve the fixed-budget problem by enumeration: which k tokens does the joint minimizer over model and support forget?

Supports are bit masks, bit t for token t. V(S) = min over models of alpha (L_r - min L_r) + gamma sum_S (f_t - min f) is the
penalized conflict; for a fixed number of tokens the joint objective is V(S) plus a constant, because f is bounded below.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from theory.conflicts import conflict
from theory.minima import minimum, retain_minimum
from theory.problem import Array, ToyProblem
from theory.saturation import Objective, saturated


@dataclass(frozen=True, slots=True, eq=False)
class SupportTable:
    """Every support of a problem; arrays by bit mask, shape (2^tokens,).

    Attributes:
        problem: the problem.
        objective: weights of the objective.
        conflicts: c(S).
        conflict_gaps: largest possible error of `conflicts`.
        violations: worst violation of the constraints of c(S).
        penalised: V(S), an upper bound.
        gaps: largest possible error of `penalised`.
        rises: L_r - min L_r at the minimizer of V(S).
        slack_bound: a bound of max_S (c(S) - V(S)/alpha) from the multipliers.
    """

    problem: ToyProblem
    objective: Objective
    conflicts: Array
    conflict_gaps: Array
    violations: Array
    penalised: Array
    gaps: Array
    rises: Array
    slack_bound: float

    @property
    def sizes(self) -> NDArray[np.intp]:
        """Number of tokens in each support."""
        return sizes(self.problem.n)

    @property
    def vertex_values(self) -> Array:
        """min over models of alpha L_r + gamma sum_S f_t, the value at the binary scores of each support."""
        base = self.objective.retain_weight * retain_minimum(self.problem).value
        values: Array = base + self.penalised - self.objective.gain * self.sizes
        return values


def sizes(tokens: int) -> NDArray[np.intp]:
    """Count the set bits of each mask, shape (2^tokens,)."""
    masks = np.arange(1 << tokens)
    counts: NDArray[np.intp] = ((masks[:, None] >> np.arange(tokens)) & 1).sum(axis=1)
    return counts


def scores_of(support: int, tokens: int) -> Array:
    """Convert a bit mask to scores in {0, 1}, shape (tokens,)."""
    scores: Array = ((support >> np.arange(tokens)) & 1).astype(float)
    return scores


def enumerate_supports(problem: ToyProblem, objective: Objective) -> SupportTable:
    """Compute conflict and penalized conflict of all 2^tokens supports."""
    count = 1 << problem.n
    conflicts, conflict_gaps, violations, penalised, gaps, rises, squares = np.zeros((7, count))
    baseline = retain_minimum(problem).value
    for support in tqdm(range(1, count), "supports", leave=False, disable=None):
        scores = scores_of(support, problem.n)
        joint = minimum(problem, scores, objective)
        multipliers = (
            objective.forget_weight * saturated(joint.logps, scores, beta=objective.beta)[1] / objective.retain_weight
        )
        constrained = conflict(
            problem, scores, log_level=objective.log_level, start=joint.weights, multipliers=multipliers
        )
        constant = objective.retain_weight * baseline - objective.gain * scores.sum()
        conflicts[support] = constrained.value
        conflict_gaps[support] = constrained.gap
        violations[support] = constrained.violation
        penalised[support] = joint.value - constant
        gaps[support] = joint.gap
        rises[support] = joint.retain_loss - baseline
        squares[support] = constrained.multipliers @ constrained.multipliers
    ratio = objective.retain_weight / (2 * objective.forget_weight * objective.beta)
    return SupportTable(
        problem=problem,
        objective=objective,
        conflicts=conflicts,
        conflict_gaps=conflict_gaps,
        violations=violations,
        penalised=penalised,
        gaps=gaps,
        rises=rises,
        slack_bound=float(np.e * ratio * squares.max()),
    )


@dataclass(frozen=True, slots=True)
class Choice:
    """The best support at one budget.

    Attributes:
        k: tokens to forget.
        support: the support as a bit mask.
        penalised: its V.
        lead: certified distance to the next best support of this size; inf if there is no other.
        rise: L_r - min L_r of its model.
        private: number of its private tokens.
    """

    k: int
    support: int
    penalised: float
    lead: float
    rise: float
    private: int


def choose(table: SupportTable, k: int) -> Choice:
    """Return the support of k tokens with the lowest V."""
    masks = np.flatnonzero(table.sizes == k)
    winner = masks[np.argmin(table.penalised[masks])]
    others = masks[masks != winner]
    lower = table.penalised[others] - table.gaps[others]
    return Choice(
        k=k,
        support=int(winner),
        penalised=float(table.penalised[winner]),
        lead=float(lower.min() - table.penalised[winner]) if len(others) else float("inf"),
        rise=float(table.rises[winner]),
        private=int(winner & table.problem.oracle).bit_count(),
    )


def is_recovered(choice: Choice, problem: ToyProblem) -> bool:
    """Return whether a choice has private tokens only, or all of them if the budget exceeds their number."""
    return choice.private == min(choice.k, int(problem.private.sum()))


def exchange_margin(table: SupportTable) -> float:
    """Compute min over S, private p and shared s outside S of V(S + s) - V(S + p), certified; > 0: the theorem applies."""
    private = [1 << int(t) for t in np.flatnonzero(table.problem.private)]
    shared = [1 << int(t) for t in np.flatnonzero(~table.problem.private)]
    masks = np.arange(len(table.penalised))
    lower = table.penalised - table.gaps
    margin = np.inf
    for p in private:
        for s in shared:
            without = masks[masks & (p | s) == 0]
            margin = min(margin, float((lower[without | s] - table.penalised[without | p]).min()))
    return margin
