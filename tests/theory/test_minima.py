"""Losses of the toy problem, and certified minima."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from theory.instances import random_problem, separated_problem
from theory.minima import convexity, descend_all, minimum, retain_minimum, saturated_objective
from theory.problem import ToyProblem, gradient, measure
from theory.saturation import Objective, modulated, saturated

OBJECTIVE = Objective(retain_weight=1.0, forget_weight=3.0, beta=0.5)


def numeric_gradient(function, point, step=1e-6):
    slopes = np.empty_like(point)
    for index in range(len(point)):
        moved = np.zeros_like(point)
        moved[index] = step
        slopes[index] = (function(point + moved) - function(point - moved)) / (2 * step)
    return slopes


def plain_losses(problem, weights):
    """Compute retain loss and log p of the forget tokens with loops."""
    matrix = weights.reshape(problem.shape)

    def log_p(context, word):
        logits = [sum(w * x for w, x in zip(row, context, strict=True)) for row in matrix]
        return logits[word] - math.log(sum(math.exp(z) for z in logits))

    retain = 0.5 * problem.ridge * sum(w * w for w in weights)
    for context, shares in zip(problem.retain_contexts, problem.retain_shares, strict=True):
        retain -= sum(share * log_p(context, word) for word, share in enumerate(shares))
    return retain, [log_p(c, w) for c, w in zip(problem.forget_contexts, problem.forget_words, strict=True)]


def test_losses_equal_plain_loops():
    problem = random_problem(1)
    weights = np.random.default_rng(0).normal(size=np.prod(problem.shape))
    measured = measure(problem, weights)
    retain, logps = plain_losses(problem, weights)
    assert measured.retain_loss == pytest.approx(retain, abs=1e-12)
    assert measured.logps == pytest.approx(logps, abs=1e-12)


def test_gradients_equal_differences():
    problem = random_problem(2)
    draw = np.random.default_rng(0)
    weights, slopes = draw.normal(size=np.prod(problem.shape)), draw.normal(size=problem.n)

    def function(point):
        measured = measure(problem, point)
        return 1.7 * measured.retain_loss + slopes @ measured.logps

    exact = gradient(problem, weights, measure(problem, weights), retain_scale=1.7, slopes=slopes)
    assert exact == pytest.approx(numeric_gradient(function, weights), abs=1e-7)
    joint = saturated_objective(problem, draw.uniform(size=problem.n), OBJECTIVE)
    assert joint(weights)[1] == pytest.approx(numeric_gradient(lambda point: joint(point)[0], weights), abs=1e-7)


@given(st.floats(-6, -0.01), st.floats(0.05, 1), st.floats(0.2, 3))
@settings(max_examples=60)
def test_slopes_of_the_saturated_losses(logp, score, beta):
    u, g = np.array([logp]), np.array([score])
    for loss in (saturated, modulated):
        slope = (loss(u + 1e-6, g, beta=beta)[0] - loss(u - 1e-6, g, beta=beta)[0]) / 2e-6
        assert loss(u, g, beta=beta)[1] == pytest.approx(slope, abs=1e-6)
        assert loss(u, g, beta=beta)[0] >= -1 / (math.e * beta) - 1e-12


def test_bound_of_the_losses():
    u = np.linspace(-40, 0, 400_001)
    assert saturated(u, np.ones_like(u), beta=0.5)[0].min() == pytest.approx(-2 / math.e, abs=1e-8)
    assert u[saturated(u, np.ones_like(u), beta=0.5)[0].argmin()] == pytest.approx(-2)
    for score in (0.2, 0.5, 1.0):  # for SatGA+ the minimum is independent of the score, its position is not
        values = modulated(u, np.full_like(u, score), beta=0.5)[0]
        assert values.min() == pytest.approx(-2 / math.e, abs=1e-8)
        assert u[values.argmin()] == pytest.approx(-2 / score)
    assert Objective(beta=0.5).depth == pytest.approx(2 / math.e)
    assert Objective(forget_weight=4, beta=2).gain == pytest.approx(2 / math.e)


@given(st.floats(-2, 0), st.floats(-30, 0))
def test_tangents_lie_below_the_loss(touch, elsewhere):
    one = np.ones(1)
    value, slope = saturated(np.array([touch]), one, beta=0.5)
    assert slope >= -1e-12
    assert value + slope * (elsewhere - touch) <= saturated(np.array([elsewhere]), one, beta=0.5)[0] + 1e-12


def test_retain_loss_is_convex_and_log_p_concave():
    problem = random_problem(3)
    draw = np.random.default_rng(0)
    for _ in range(50):
        one, two = 2 * draw.normal(size=(2, np.prod(problem.shape)))
        ends, middle = (measure(problem, one), measure(problem, two)), measure(problem, (one + two) / 2)
        assert middle.retain_loss <= sum(end.retain_loss for end in ends) / 2
        assert (middle.logps >= sum(end.logps for end in ends) / 2 - 1e-12).all()


def test_convexity_bounds_the_hessian():
    problem = separated_problem()
    draw = np.random.default_rng(0)
    multipliers = np.array([0.002, 0.002, 0.003, 0.004, 0.1, 0.05, 0.19, 0.14])
    modulus = convexity(problem, multipliers, retain_weight=1.0)
    assert 0 < modulus < problem.ridge
    for _ in range(20):
        point, direction = draw.normal(size=(2, np.prod(problem.shape)))
        direction /= np.linalg.norm(direction)
        slopes = [
            gradient(problem, at, measure(problem, at), retain_scale=1.0, slopes=multipliers) @ direction
            for at in (3 * point - 1e-4 * direction, 3 * point + 1e-4 * direction)
        ]
        assert (slopes[1] - slopes[0]) / 2e-4 >= modulus - 1e-7


def test_convexity_fails_if_the_ridge_is_too_small():
    problem = separated_problem()
    assert convexity(problem, np.eye(8)[0], retain_weight=1.0) < 0


def test_certificate_encloses_the_minimum():
    problem = separated_problem()
    scores = np.array([1, 0.5, 0, 1, 1, 0, 0.3, 1])
    found = minimum(problem, scores, Objective())
    assert -1e-10 <= found.gap <= 1e-8
    assert min(descend_all(problem, scores, Objective(), count=10, seed=1)) >= found.lower - 1e-10
    assert found.retain_loss >= retain_minimum(problem).value


def test_minimum_equals_a_grid_on_one_feature():
    problem = ToyProblem(
        words=("Kelbury", "Marsk"),
        tokens=("Kelbury",),
        retain_contexts=np.array([[1.0]]),
        retain_shares=np.array([[0.7, 0.3]]),
        forget_contexts=np.array([[1.0]]),
        forget_words=np.array([0]),
        private=np.array([False]),
        ridge=0.1,
    )
    objective = Objective(retain_weight=1.0, forget_weight=3.0, beta=0.5)
    found = minimum(problem, np.ones(1), objective)
    lowest = math.inf
    for one, two in itertools.product(np.linspace(-2, 2, 161), repeat=2):
        p = 1 / (1 + math.exp(two - one))
        retain = -0.7 * math.log(p) - 0.3 * math.log(1 - p) + 0.05 * (one * one + two * two)
        lowest = min(lowest, retain + 3 * p**0.5 * math.log(p))
    assert found.value <= lowest
    assert found.value == pytest.approx(lowest, abs=1e-3)
    assert found.gap <= 1e-8
    with pytest.raises(ValueError, match="ridge"):
        random_problem(0, ridge=0.0)


def test_weights_of_the_objective_are_positive():
    with pytest.raises(ValueError, match="beta"):
        Objective(beta=0)
