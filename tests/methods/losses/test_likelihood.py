"""Worked examples of the methods' formulas (running example p = .9, .2, .6, .5), then identities, then gradients."""

from __future__ import annotations

import functools

import pytest
import torch

from atwu.methods.component_inputs import LossTerms, selected_mean, token_mean
from atwu.methods.losses.likelihood import SatGA, SatGAPlus, gradient_ascent

P = torch.tensor([[0.9, 0.2, 0.6, 0.5]], dtype=torch.float64)
LOGPS = P.log()
MASK = torch.ones_like(P, dtype=torch.bool)
G = torch.tensor([[0.1, 0.8, 0.5, 0.2]], dtype=torch.float64)
RETAIN = torch.tensor([[0.8, 0.7, 0.5]], dtype=torch.float64).log()
ONE = torch.ones_like(P)


def saturated_ascent(logps, weights, *, kind=SatGA, **options):
    return kind(**options).values(LossTerms(logps, MASK), weights)


modulated_ascent = functools.partial(saturated_ascent, kind=SatGAPlus)


def close(value):
    return pytest.approx(value, abs=1e-6)


def test_undetached_saturation_is_bounded_below():
    p = torch.linspace(0.001, 0.999, 99801, dtype=torch.float64)
    values = saturated_ascent(p.log(), torch.ones_like(p), beta=7.0, detach_saturation=False)
    assert values.min().item() == close(-0.052554)
    assert p[values.argmin()].item() == pytest.approx(0.866878, abs=1e-4)


@pytest.mark.parametrize(
    ("detach", "expected"),
    [(True, [-0.023223, -0.000024, -0.020914, -0.018946]), (False, [-0.021510, 0.000195, 0.016478, -0.000561])],
)
def test_gradient_of_satga_plus_in_the_token_loss(detach, expected):
    nlls = (-LOGPS).requires_grad_()
    loss = token_mean(modulated_ascent(-nlls, G, beta=7, detach_saturation=detach), MASK)
    (grad,) = torch.autograd.grad(loss, nlls)
    assert grad[0].tolist() == close(expected)


@pytest.mark.parametrize(
    ("detach", "expected"),
    [(True, [-0.024467, -0.000049, -0.021367, -0.065663]), (False, [-0.022663, 0.000393, 0.016835, -0.001943])],
)
def test_gradient_of_satga_plus_in_the_scores(detach, expected):
    scores = G.clone().requires_grad_()
    loss = token_mean(modulated_ascent(LOGPS, scores, beta=7, detach_saturation=detach), MASK)
    (grad,) = torch.autograd.grad(loss, scores)
    assert grad[0].tolist() == close(expected)


def test_weight_one_is_unweighted_and_beta_zero_is_gradient_ascent():
    ga, sat = gradient_ascent(LOGPS, ONE), saturated_ascent(LOGPS, ONE, beta=3.0)
    assert torch.equal(modulated_ascent(LOGPS, ONE, beta=3.0), sat)
    assert torch.equal(saturated_ascent(LOGPS, ONE, beta=0.0), ga)
    assert torch.equal(modulated_ascent(LOGPS, ONE, beta=0.0), ga)
    hard = torch.tensor([[0.0, 1.0, 1.0, 0.0]], dtype=torch.float64)
    assert torch.equal(modulated_ascent(LOGPS, hard, beta=3.0), saturated_ascent(LOGPS, hard, beta=3.0))


def test_weight_zero_has_no_gradient():
    logps = LOGPS.clone().requires_grad_()
    weights = torch.tensor([[0.0, 1.0, 0.0, 1.0]], dtype=torch.float64)
    for loss in (gradient_ascent, saturated_ascent, modulated_ascent):
        options = {} if loss is gradient_ascent else {"beta": 2.0}
        (grad,) = torch.autograd.grad(loss(logps, weights, **options).sum(), logps)
        assert (grad[0] == 0).tolist() == [True, False, True, False]


def test_selected_mean_divides_by_the_selection():
    """Log-probability mask example: selecting .05, .95 and .1 gives -1.783204, without the gap filled -2.649159."""
    logps = torch.tensor([[0.9, 0.05, 0.95, 0.1, 0.99]], dtype=torch.float64).log()
    mask = torch.ones_like(logps, dtype=torch.bool)
    for chosen, expected in (([0, 1, 1, 1, 0], -1.783204), ([0, 1, 0, 1, 0], -2.649159), ([0, 0, 0, 0, 0], 0.0)):
        z = torch.tensor([chosen], dtype=torch.float64)
        assert selected_mean(gradient_ascent(logps, z), z, mask).item() == close(expected)
