"""Soft scores: above and below the thresholds, and SatGA+."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from theory.departure import concave_from, modulated_grid, modulated_minimum, needed_entropy
from theory.instances import random_problem, separated_problem
from theory.minima import minimum
from theory.relaxed import (
    Regularizer,
    best_vertex,
    edge_margin,
    entropy,
    entropy_for_local,
    fractional,
    lowest,
    search,
    thresholds,
    value_edges,
    value_grid,
    worst_curvature,
)
from theory.saturation import Objective
from theory.supports import choose, enumerate_supports, scores_of

OBJECTIVE = Objective()


@pytest.fixture(scope="module")
def pair():
    """Return the 21 x 21 grid of a private and a shared token."""
    return value_grid(separated_problem().restrict([3, 5]), OBJECTIVE, 21)


@pytest.fixture(scope="module")
def plus_pair():
    return modulated_grid(separated_problem().restrict([3, 5]), OBJECTIVE, 11)


def weights(n, k, *, entropy, budget):
    limits = thresholds(OBJECTIVE, n)
    return Regularizer(entropy * limits.entropy, budget * limits.budget, k)


def test_regularizer_by_hand():
    scores = np.array([[0.5, 1.0, 0.0], [1.0, 1.0, 1.0]])
    expected = [2 * math.log(2) + 9 * 3 * (0.5 - 1 / 3) ** 2, 9 * 3 * (1 - 1 / 3) ** 2]
    assert Regularizer(2.0, 9.0, 1).value(scores) == pytest.approx(expected)


def test_thresholds_by_hand():
    limits = thresholds(Objective(forget_weight=2.0, beta=1.0), 5)
    assert limits.entropy == pytest.approx(2 / (math.e * 4 * math.log(2)))
    assert limits.budget == pytest.approx(10 / math.e)
    assert entropy_for_local(10.0, 5) == 1.0


@given(st.floats(0, 1))
def test_entropy_lies_above_its_parabola(score):
    assert entropy(np.array(score)) >= 4 * math.log(2) * score * (1 - score) - 1e-12


@given(st.floats(0.01, 0.99), st.floats(0, 1), st.floats(1, 5), st.floats(1.0001, 5), st.integers(0, 3))
@settings(max_examples=200)
def test_fractional_score_is_never_better_above_the_thresholds(score, slope, entropy_factor, budget_factor, over):
    """One coordinate in units of C: the value decreases by `slope` <= 1 per score, and `over` tokens exceed the budget."""
    gained = slope * score
    paid = entropy_factor * entropy(np.array(score)) / (4 * math.log(2)) + budget_factor * (2 * over + score) * score
    assert paid > gained


def test_thresholds_are_sharp_at_their_corner():
    """A token without any conflict that the budget excludes: value -C g, k = 0, n = 1."""
    score = np.linspace(0, 1, 1001)
    for entropy_factor, binary in ((1.001, True), (0.98, False)):
        paid = entropy_factor * entropy(score) / (4 * math.log(2)) + 1.001 * score**2 - score
        assert (score[paid.argmin()] in (0, 1)) is binary
    assert score[(0.98 * entropy(score) / (4 * math.log(2)) + 1.001 * score**2 - score).argmin()] == pytest.approx(
        0.5, abs=0.1
    )


@pytest.mark.night
def test_value_is_concave_and_falls_by_at_most_the_gain(pair):
    assert pair.gap <= 1e-8
    assert worst_curvature(pair.values, 21, 2) <= 1e-7
    cube = pair.values.reshape(21, 21)
    for axis in (0, 1):
        steps = np.diff(cube, axis=axis) * 20
        assert steps.max() <= 1e-6
        assert steps.min() >= -OBJECTIVE.gain - 1e-6


def test_worst_curvature_sees_a_convex_diagonal():
    side = np.linspace(0, 1, 5)
    x, y = np.meshgrid(side, side, indexing="ij")
    assert worst_curvature((-(x**2) - y**2).ravel(), 5, 2) < 0
    assert worst_curvature((x * y).ravel(), 5, 2) == pytest.approx(2 * 0.25**2)


@pytest.mark.night
@pytest.mark.parametrize(("entropy_factor", "budget_factor"), itertools.product((1.001, 3, 20), repeat=2))
def test_minimizers_above_the_thresholds(pair, entropy_factor, budget_factor):
    found = lowest(pair, weights(2, 1, entropy=entropy_factor, budget=budget_factor))
    assert found.tolist() == [1, 0]


@pytest.mark.night
def test_minimizers_below_the_thresholds(pair):
    assert lowest(pair, weights(2, 1, entropy=1.001, budget=0.5)).tolist() == [1, 1]
    half = lowest(pair, weights(2, 1, entropy=0.5, budget=1.1))
    assert half[0] == 1
    assert 0.2 < half[1] < 0.7
    edges = value_edges(separated_problem().restrict([3, 5]), OBJECTIVE, 41)
    assert lowest(edges, weights(2, 1, entropy=0.5, budget=1.1)) == pytest.approx(half, abs=0.05)


@pytest.mark.night
def test_at_most_one_fractional_score(pair):
    for entropy_factor, budget_factor in itertools.product(np.geomspace(0.02, 5, 12), repeat=2):
        assert fractional(lowest(pair, weights(2, 1, entropy=entropy_factor, budget=budget_factor))) <= 1


@pytest.mark.night
@pytest.mark.parametrize("seed", range(4))
def test_relaxed_theorem_on_random_problems(seed):
    problem = random_problem(seed, private=2, shared=2)
    table = enumerate_supports(problem, OBJECTIVE)
    for k in range(1, 4):
        above = weights(4, k, entropy=1.001, budget=1.001)
        assert best_vertex(table, above) == choose(table, k).support
        if table.gaps.max() < 1e-6:
            assert edge_margin(table, above) > 0
        assert edge_margin(table, weights(4, k, entropy=0.2, budget=1.001)) < 0


@pytest.mark.night
def test_search_ends_at_corners_but_not_at_the_best():
    problem = separated_problem().restrict([0, 3, 5, 7])
    limits = thresholds(OBJECTIVE, 4)
    above = Regularizer(entropy_for_local(1.001 * limits.budget, 4), 1.001 * limits.budget, 2)
    ends = search(problem, OBJECTIVE, above, starts=8, seed=3)
    again = search(problem, OBJECTIVE, above, starts=8, seed=3)
    assert [end.value for end in ends] == [end.value for end in again]
    assert all(fractional(end.scores) == 0 for end in ends)
    corner = scores_of(0b0011, 4)
    best = minimum(problem, corner, OBJECTIVE).value + float(above.value(corner))
    assert all(end.value >= best - 1e-6 for end in ends)
    assert any(end.value > best + 1e-3 for end in ends)


@pytest.mark.night
def test_satga_plus_equals_satga_on_corners(pair, plus_pair):
    for scores, value in zip(plus_pair.scores, plus_pair.values, strict=True):
        if fractional(scores) == 0:
            same = (pair.scores == scores).all(axis=1)
            assert value == pytest.approx(float(pair.values[same][0]), abs=1e-8)


@pytest.mark.night
def test_satga_plus_is_not_concave_and_prefers_a_fraction(plus_pair):
    assert worst_curvature(plus_pair.values, 11, 2) > 0.5 * OBJECTIVE.gain
    above = weights(2, 1, entropy=1.001, budget=1.001)
    found = lowest(plus_pair, above)
    assert fractional(found) == 1
    assert ((found >= concave_from(above.entropy_weight, OBJECTIVE)) & (found < 1)).sum() <= 1


def test_satga_plus_curvature_bound():
    """g p^(beta g) log p is nowhere more convex in g than 1/(e beta g^2), reached at its lowest p."""
    beta, step = 0.7, 1e-4
    for score in (0.1, 0.4, 0.9):
        u = np.linspace(-40, 0, 20_001)
        before, here, behind = (g * u * np.exp(beta * g * u) for g in (score - step, score, score + step))
        second = (before - 2 * here + behind) / step**2
        assert second.max() == pytest.approx(1 / (math.e * beta * score**2), rel=1e-3)
        assert u[second.argmax()] == pytest.approx(-1 / (beta * score), abs=0.02)


@pytest.mark.night
def test_entropy_needed_by_satga_plus_grows_without_the_ridge():
    side = np.geomspace(0.01, 0.9, 12)
    needed = {}
    for ridge in (1e-2, 1e-3):
        problem = separated_problem(ridge=ridge).restrict([0, 3])
        points = [np.array([1.0, score]) for score in side]
        at_zero = minimum(problem, np.array([1.0, 0.0]), OBJECTIVE).value
        plain = np.array([minimum(problem, point, OBJECTIVE).value for point in points])
        plus = np.array([modulated_minimum(problem, point, OBJECTIVE).value for point in points])
        limit = thresholds(OBJECTIVE, 2).entropy
        needed[ridge] = [
            needed_entropy(values, side, at_zero=at_zero, budget_per_token=OBJECTIVE.gain) / limit
            for values in (plain, plus)
        ]
    assert needed[1e-2][0] <= 1
    assert needed[1e-3][0] <= 1
    assert 5 < needed[1e-2][1] < needed[1e-3][1] / 1.5


@given(st.floats(0.01, 0.99), st.floats(0.2, 3))
def test_detached_saturation_has_no_joint_objective(p, beta):
    """A function of (log p, g) has equal mixed derivatives; the detached model step and the score step do not."""
    power = p**beta
    score_of_model_step = power  # d/dg of g p^beta, the detached slope in log p
    model_of_score_step = power * (1 + beta * math.log(p))  # d/dlog p of p^beta log p, the slope in g
    assert score_of_model_step - model_of_score_step == pytest.approx(-beta * power * math.log(p))
    assert score_of_model_step > model_of_score_step
