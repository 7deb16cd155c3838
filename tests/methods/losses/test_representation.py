"""Distances between hidden states, and the steering vector."""

from __future__ import annotations

import pytest
import torch

from atwu.methods.losses.reduction import mean_of_means
from atwu.methods.losses.representation import squared_distance, steering_vector

F64 = torch.float64
V = torch.tensor([1.0, 2.0, 2.0], dtype=F64)
FORGET = torch.tensor([[1.0, 2.0, 0.0], [0.0, 1.0, 1.0]], dtype=F64)
RETAIN = torch.tensor([[0.5, 0.5, 0.5]], dtype=F64)
STARTING = torch.tensor([[0.5, 1.0, 0.0]], dtype=F64)


def test_worked_example():
    forget = squared_distance(FORGET, V)
    assert forget.tolist() == pytest.approx([1.333333, 1.0], abs=1e-6)
    forget_term = mean_of_means(forget[None], torch.ones(1, 2, dtype=torch.bool)).item()
    retain_term = mean_of_means(squared_distance(RETAIN, STARTING)[None], torch.ones(1, 1, dtype=torch.bool)).item()
    assert forget_term == pytest.approx(1.166667, abs=1e-6)
    assert retain_term == pytest.approx(0.166667, abs=1e-6)
    assert 0.66 * forget_term + 1.27 * retain_term == pytest.approx(0.981667, abs=1e-6)


def test_equals_plain_loops_in_value_and_gradient():
    draw = torch.Generator().manual_seed(0)
    states = torch.randn(5, 6, generator=draw, dtype=F64)
    for target in (torch.randn(6, generator=draw, dtype=F64), torch.randn(5, 6, generator=draw, dtype=F64)):
        leaf, plain_leaf = states.clone().requires_grad_(), states.clone().requires_grad_()
        rows = target.expand(5, 6)
        expected = torch.stack([sum((plain_leaf[t, i] - rows[t, i]) ** 2 for i in range(6)) / 6 for t in range(5)])
        values = squared_distance(leaf, target)
        assert torch.allclose(values, expected, rtol=0, atol=1e-8)
        grads = [torch.autograd.grad(v.sum(), at)[0] for v, at in ((values, leaf), (expected, plain_leaf))]
        assert torch.allclose(*grads, rtol=0, atol=1e-8)


def test_target_gets_no_gradient():
    states, target = FORGET.clone().requires_grad_(), V.clone().requires_grad_()
    assert torch.autograd.grad(squared_distance(states, target).sum(), target, allow_unused=True) == (None,)


@pytest.mark.parametrize(
    ("states", "target", "result"),
    [
        (torch.bfloat16, torch.float32, torch.float32),
        (torch.float16, torch.float16, torch.float32),
        (torch.float32, torch.float64, torch.float32),
        (torch.float64, torch.float32, torch.float64),
    ],
)
def test_distances_are_at_least_float32(states, target, result):
    h = torch.full((1, 4), 300.0, dtype=states, requires_grad=True)  # its square overflows float16
    value = squared_distance(h, torch.zeros(4, dtype=target))
    assert value.dtype == result
    assert value.item() == 90_000.0
    assert torch.autograd.grad(value, h)[0].tolist() == [[150.0] * 4]


def test_steering_vector_is_the_same_everywhere():
    v = steering_vector(3, coefficient=2.0)
    u = [0.4962565899, 0.7682217956, 0.0884774327]  # first uniform draws of seed 0
    length = sum(x * x for x in u) ** 0.5
    assert v.dtype == torch.float32
    assert v.tolist() == pytest.approx([2 * x / length for x in u], rel=1e-6)
    torch.manual_seed(5)
    state = torch.get_rng_state()
    torch.set_default_dtype(F64)
    try:
        again = steering_vector(3, coefficient=2.0)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(again, v)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("coefficient", [0.5, 4.39])
def test_steering_vector_has_the_given_length(coefficient):
    v = steering_vector(64, coefficient=coefficient)
    assert v.norm().item() == pytest.approx(coefficient, rel=1e-6)
    assert (v >= 0).all()
    assert torch.allclose(v / coefficient, steering_vector(64, coefficient=1.0), rtol=1e-6)
