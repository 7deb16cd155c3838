from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import one_hot

from atwu.methods.component_inputs import LossTerms
from atwu.methods.losses.likelihood import TokenBootstrapping


@pytest.mark.parametrize(("share", "tokens"), [(0.0, 3), (0.5, 3), (1.0, 50)])
def test_equals_ascent_on_a_soft_target(share, tokens):
    """A soft label of logits outside the likeliest tokens set to -inf, mixed with the one-hot label."""
    logits = 2 * torch.randn(6, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ids = torch.arange(6)
    smallest = logits.topk(min(tokens, 9)).values[:, -1:]
    belief = logits.masked_fill(logits < smallest, -math.inf).softmax(-1)
    target = share * belief + (1 - share) * one_hot(ids, 9)
    expected = -torch.nn.functional.cross_entropy(logits, target, reduction="none")
    logps = logits.log_softmax(-1)
    loss = TokenBootstrapping(belief_weight=share, belief_tokens=tokens)
    terms = LossTerms(
        logps[ids, ids], torch.ones(6, dtype=torch.bool), distance=loss.from_distributions(logps, None, None)
    )
    torch.testing.assert_close(loss.values(terms, torch.ones(6, dtype=torch.float64)), expected)


def test_the_target_has_no_gradient():
    logits = torch.tensor([[1.0, 0.0]], dtype=torch.float64, requires_grad=True)
    TokenBootstrapping(belief_tokens=2).from_distributions(logits.log_softmax(-1), None, None).sum().backward()
    # With q = p and constant, the gradient q - p sum(q) is 0.
    assert logits.grad.abs().max() < 1e-15
