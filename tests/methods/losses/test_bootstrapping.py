from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import one_hot

from atwu.methods.component_inputs import LossTerms
from atwu.methods.losses.bootstrapping import SequenceBootstrapping, TokenBootstrapping, belief_logp


def test_worked_example():
    """The two likeliest of (0.5, 0.3, 0.2) weigh 5/8 and 3/8."""
    logps = torch.tensor([[0.5, 0.3, 0.2]], dtype=torch.float64).log()
    expected = (5 * math.log(0.5) + 3 * math.log(0.3)) / 8
    assert belief_logp(logps, tokens=2).item() == pytest.approx(expected, abs=1e-12)


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
    terms = LossTerms(logps[ids, ids], torch.ones(6, dtype=torch.bool), distance=belief_logp(logps, tokens=tokens))
    torch.testing.assert_close(loss.values(terms, torch.ones(6, dtype=torch.float64)), expected)


def test_the_target_has_no_gradient():
    logits = torch.tensor([[1.0, 0.0]], dtype=torch.float64, requires_grad=True)
    belief_logp(logits.log_softmax(-1), tokens=2).sum().backward()
    # With q = p and constant, the gradient q - p sum(q) is 0.
    assert logits.grad.abs().max() < 1e-15


def test_worked_example_of_sequences():
    """Two answer tokens of probability 1/2 and 1/8, an own answer of one token of 1/4: -(0.75 x 2 + 0.25 x 2) log 2."""
    logps, own = (torch.tensor([values]).log() for values in ([0.5, 0.125], [0.25]))
    terms = LossTerms(
        logps, torch.ones(1, 2, dtype=torch.bool), alternate_logps=own, alternate_mask=torch.ones(1, 1).bool()
    )
    value = SequenceBootstrapping(belief_weight=0.25).values(terms, torch.ones(1, 2))
    assert value.tolist() == pytest.approx([-2 * math.log(2)], abs=1e-6)
