from __future__ import annotations

import math

import pytest
import torch

from atwu.methods.losses.cross_entropy_unlearning import cross_entropy_unlearning

P = torch.tensor([[0.6, 0.3, 0.1]], dtype=torch.float64)
IDS = torch.tensor([[0]])


def test_worked_example():
    """Without token 0 the target is (0, 3/4, 1/4)."""
    expected = -(0.75 * math.log(0.3) + 0.25 * math.log(0.1))
    assert cross_entropy_unlearning(P.log(), IDS).item() == pytest.approx(expected, abs=1e-12)


def test_the_gradient_lowers_the_token_by_its_probability_and_keeps_the_proportions_of_the_others():
    logits = P.log().requires_grad_()
    cross_entropy_unlearning(logits.log_softmax(-1), IDS).sum().backward()
    torch.testing.assert_close(logits.grad, P - torch.tensor([[0.0, 0.75, 0.25]], dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_cross_entropy_to_the_masked_softmax(dtype):
    """The published form: a soft-label cross entropy on logits."""
    logits = 5 * torch.randn(7, 11, generator=torch.Generator().manual_seed(0), dtype=dtype)
    ids = torch.arange(7)[:, None]
    target = logits.clone().scatter_(1, ids, -math.inf).softmax(-1)
    expected = torch.nn.functional.cross_entropy(logits, target, reduction="none")
    torch.testing.assert_close(cross_entropy_unlearning(logits.log_softmax(-1), ids), expected)
