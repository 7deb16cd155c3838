"""Distances between hidden states, and the steering vector."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from atwu.methods.component_inputs import LossInputs
from atwu.methods.losses.reduction import mean_of_means
from atwu.methods.losses.representation import Redirection, squared_distance, steering_vector
from atwu.modeling.reference import Reference

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


def test_worked_example_of_redirection():
    """(1, 0) should become (1, 0) + 2 (1, 1) = (3, 2); the state (3, 0) is (0 + 4) / 2 away."""
    out = SimpleNamespace(layer_states=torch.tensor([[3.0, 0.0]]), to_grid=lambda values: values)
    inputs = LossInputs(Reference(forget_layer=torch.tensor([[1.0, 0.0]])), refusal_direction=torch.tensor([1.0, 1.0]))
    assert Redirection(redirect_coeff=2.0).distance(cast(Any, out), inputs).tolist() == [2.0]
