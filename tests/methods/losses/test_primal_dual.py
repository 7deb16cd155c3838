from __future__ import annotations

import pytest
import torch

from atwu.methods.losses.divergence import LogitMargin
from atwu.methods.losses.likelihood import LimitedNLL


def test_equals_the_margin_of_logits():
    logits = 5 * torch.randn(6, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = (logits.max(dim=-1).values - logits.mean(dim=-1)) ** 2
    torch.testing.assert_close(LogitMargin().from_distributions(logits.log_softmax(-1), None, None), expected)


@pytest.mark.parametrize(("retain", "expected"), [(0.5, 101.0), (0.3, 100.0), (0.1, 99.0), (-30.0, 0.0)])
def test_the_multiplier_rises_above_the_limit_and_never_becomes_negative(retain, expected):
    """100 + 5 (L - 0.3)."""
    loss = LimitedNLL(retain_bound=0.3, dual_step=5.0, dual_warmup=1.0)
    assert loss.next_weight(100.0, retain=retain, epoch=0.5) == 100.0
    assert loss.next_weight(100.0, retain=retain, epoch=1.0) == pytest.approx(expected)
