"""Distances between hidden states, and the steering vector."""

from __future__ import annotations

import pytest
import torch

from atwu.methods.losses.representation import squared_distance, steering_vector

F64 = torch.float64
V = torch.tensor([1.0, 2.0, 2.0], dtype=F64)
FORGET = torch.tensor([[1.0, 2.0, 0.0], [0.0, 1.0, 1.0]], dtype=F64)
RETAIN = torch.tensor([[0.5, 0.5, 0.5]], dtype=F64)


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
