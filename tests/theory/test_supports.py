"""Retain conflicts, separation, and the fixed-budget theorem by enumeration."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from theory.conflicts import conflict, marginals, separation
from theory.instances import overlapping_problem, random_problem, separated_problem
from theory.minima import minimum, retain_minimum
from theory.problem import ToyProblem, gradient, measure
from theory.saturation import Objective
from theory.supports import choose, enumerate_supports, exchange_margin, is_recovered, scores_of, sizes


@pytest.fixture(scope="module")
def separated():
    return enumerate_supports(separated_problem(), Objective())


@pytest.fixture(scope="module")
def overlapping():
    return enumerate_supports(overlapping_problem().restrict([0, 1, 2, 3, 5, 7]), Objective())


def one_feature(share: float) -> ToyProblem:
    """Two words, one context: the weights differ by the logit of p, and the ridge is negligible."""
    return ToyProblem(
        words=("Kelbury", "Marsk"),
        tokens=("Kelbury",),
        retain_contexts=np.ones((1, 1)),
        retain_shares=np.array([[share, 1 - share]]),
        forget_contexts=np.ones((1, 1)),
        forget_words=np.array([0]),
        private=np.array([False]),
        ridge=1e-7,
    )


@pytest.mark.parametrize("share", [0.4, 0.7, 0.95])
def test_conflict_is_a_divergence_on_one_feature(share):
    level = math.exp(-2)
    expected = share * math.log(share / level) + (1 - share) * math.log((1 - share) / (1 - level))
    found = conflict(one_feature(share), np.ones(1), log_level=-2.0)
    assert found.value == pytest.approx(expected, abs=1e-5)
    assert found.lower == pytest.approx(expected, abs=1e-5)
    assert found.multipliers[0] == pytest.approx((share - level) / (1 - level), abs=1e-5)


def test_forgotten_tokens_have_no_conflict():
    found = conflict(one_feature(0.1), np.ones(1), log_level=-2.0)
    assert found.value == pytest.approx(0, abs=1e-12)
    assert found.multipliers[0] == 0


def test_conflict_equals_another_solver():
    problem = separated_problem()
    support = scores_of(0b10010001, 8)
    rows = np.flatnonzero(support)

    def retain(weights):
        measured = measure(problem, weights)
        slope = gradient(problem, weights, measured, retain_scale=1.0, slopes=np.zeros(8))
        return measured.retain_loss, slope

    def room_slope(weights):
        measured = measure(problem, weights)
        return [-gradient(problem, weights, measured, retain_scale=0.0, slopes=np.eye(8)[t]) for t in rows]

    start = retain_minimum(problem)
    other = minimize(
        retain,
        start.weights,
        jac=True,
        method="SLSQP",
        constraints={
            "type": "ineq",
            "fun": lambda weights: -2.0 - measure(problem, weights).logps[rows],
            "jac": room_slope,
        },
        options={"ftol": 1e-13, "maxiter": 300},
    )
    found = conflict(problem, support, log_level=-2.0)
    assert found.value == pytest.approx(other.fun - start.value, abs=1e-7)
    assert abs(found.gap) <= 1e-8
    assert found.violation <= 1e-8


@pytest.mark.night
def test_enumeration_is_certified(separated):
    assert separated.gaps.max() <= 1e-6
    assert np.abs(separated.conflict_gaps).max() <= 1e-6
    assert separated.violations.max() <= 1e-6
    assert (separated.penalised <= separated.conflicts + 1e-7).all()


@pytest.mark.night
def test_enumeration_equals_plain_loops(separated):
    problem, objective = separated.problem, separated.objective
    for k in (1, 4, 5):
        values = {}
        for tokens in itertools.combinations(range(8), k):
            scores = np.array([float(t in tokens) for t in range(8)])
            values[tokens] = minimum(problem, scores, objective).value
        winner = min(values, key=values.get)
        choice = choose(separated, k)
        assert tuple(t for t in range(8) if choice.support >> t & 1) == winner
        assert separated.vertex_values[choice.support] == pytest.approx(values[winner], abs=1e-9)
        ordered = sorted(values.values())
        assert choice.lead == pytest.approx(ordered[1] - ordered[0], abs=1e-8)


def test_sizes_and_marginals():
    assert sizes(3).tolist() == [0, 1, 1, 2, 1, 2, 2, 3]
    assert marginals(np.array([0.0, 1.0, 10.0, 12.0]), 0).tolist() == [1, 2]
    assert marginals(np.array([0.0, 1.0, 10.0, 12.0]), 1).tolist() == [10, 11]


@pytest.mark.night
def test_separation_and_its_consequences(separated):
    private = separated.problem.private
    found = separation(separated.conflicts, separated.penalised, private, retain_weight=1.0)
    assert found.holds
    assert found.slack <= separated.slack_bound + 1e-6
    margin = exchange_margin(separated)
    plain = min(
        separated.penalised[s | 1 << j] - separated.penalised[s | 1 << i]
        for s in range(256)
        for i, j in itertools.product(range(4), range(4, 8))
        if not s >> i & 1 and not s >> j & 1
    )
    assert 0 < margin == pytest.approx(plain, abs=1e-6)
    choices = [choose(separated, k) for k in range(1, 9)]
    assert all(is_recovered(choice, separated.problem) for choice in choices)
    assert choices[3].support == separated.problem.oracle == 0b1111
    assert [choice.private for choice in choices] == [1, 2, 3, 4, 4, 4, 4, 4]
    assert choices[4].rise > 10 * choices[3].rise


@pytest.mark.night
def test_without_separation_a_shared_word_is_selected(overlapping):
    private = overlapping.problem.private
    assert not separation(overlapping.conflicts, overlapping.penalised, private, retain_weight=1.0).holds
    assert exchange_margin(overlapping) < 0
    wrong = choose(overlapping, 4)
    assert wrong.support == 0b100111
    assert wrong.lead > 1e-4
    assert not is_recovered(wrong, overlapping.problem)


def test_too_small_a_forget_weight_leaves_a_slack_that_breaks_the_condition():
    table = enumerate_supports(separated_problem().restrict([3, 5]), Objective(forget_weight=0.01))
    found = separation(table.conflicts, table.penalised, table.problem.private, retain_weight=1.0)
    assert found.largest_private < found.smallest_shared
    assert not found.holds


@pytest.mark.night
def test_theorem_on_random_problems():
    met = 0
    for seed in range(8):
        problem = random_problem(seed, private=2, shared=2)
        table = enumerate_supports(problem, Objective(forget_weight=10, beta=0.5))
        if exchange_margin(table) > 0:
            met += 1
            assert all(is_recovered(choose(table, k), problem) for k in range(1, 5))
        found = separation(table.conflicts, table.penalised, problem.private, retain_weight=1.0)
        if found.holds and table.gaps.max() < 1e-6:
            assert exchange_margin(table) > 0
    assert met >= 4


@pytest.mark.night
@given(st.integers(0, 10_000), st.floats(0, 1.5))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_exchange_decides_for_any_values(separated, seed, noise):
    """The step from the exchange condition to the support is independent of softmax regression."""
    draw = np.random.default_rng(seed)
    costs = np.where(separated.problem.private, 1.0, 2.0)
    values = np.stack([scores_of(s, 8) for s in range(256)]) @ costs + noise * draw.uniform(size=256)
    table = replace(separated, penalised=values, gaps=np.zeros(256))
    if exchange_margin(table) > 0:
        assert all(is_recovered(choose(table, k), table.problem) for k in range(1, 9))
