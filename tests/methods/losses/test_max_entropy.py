from __future__ import annotations

import math

import pytest
import torch

from atwu.methods.losses.max_entropy import kl_from_uniform


def test_worked_example():
    """-log 2 - (log 0.8 + log 0.2) / 2 for two tokens; 0 at the uniform distribution."""
    logps = torch.tensor([[0.8, 0.2], [0.5, 0.5]], dtype=torch.float64).log()
    expected = [-math.log(2) - (math.log(0.8) + math.log(0.2)) / 2, 0.0]
    assert kl_from_uniform(logps).tolist() == pytest.approx(expected, abs=1e-12)


def test_equals_the_published_form():
    """KL of the uniform distribution from a softmax to which 1e-12 is added."""
    logits = 3 * torch.randn(6, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    log_q = (logits.softmax(-1) + 1e-12).log()
    expected = torch.nn.functional.kl_div(log_q, torch.full_like(log_q, 1 / 9), reduction="none").sum(-1)
    torch.testing.assert_close(kl_from_uniform(logits.log_softmax(-1)), expected, atol=1e-8, rtol=0)


def test_an_impossible_token_costs_a_finite_amount_without_gradient():
    logits = torch.tensor([[0.0, 1.0, -math.inf]], requires_grad=True)
    value = kl_from_uniform(logits.log_softmax(-1))
    value.sum().backward()
    assert value.isfinite().all()
    assert logits.grad[:, :2].isfinite().all()
