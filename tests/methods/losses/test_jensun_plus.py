from __future__ import annotations

import pytest
import torch

from atwu.methods.component_inputs import first_token_half
from atwu.methods.losses.divergence import JSToRefusalRow, jensen_shannon, js_slope, js_to_tokens
from atwu.methods.recipe import recipe

MASK = torch.tensor([[False, True, True, True], [True, False, False, False], [False, False, False, False]])


def test_half_of_a_row_is_its_first_token():
    """4 / 2 + (2 + 6) / 2 / 2; a single token; an empty row."""
    values = torch.tensor([[9.0, 4.0, 2.0, 6.0], [3.0, 9.0, 9.0, 9.0], [9.0, 9.0, 9.0, 9.0]])
    assert first_token_half(values, MASK).tolist() == [4.0, 3.0, 0.0]


def test_slopes_equal_the_gradient_in_the_logits():
    logits = 2 * torch.randn(5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    other = 2 * torch.randn(5, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64).log_softmax(-1)
    ids = torch.arange(5)[:, None]
    for loss, slope in (
        (lambda logps: jensen_shannon(logps, other), lambda logps: js_slope(logps, other)),
        (lambda logps: js_to_tokens(logps, ids), lambda logps: JSToRefusalRow().slope(logps, None, ids)),
    ):
        leaf = logits.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(leaf.log_softmax(-1)).sum(), leaf)
        torch.testing.assert_close(slope(logits.log_softmax(-1)), gradient.square().sum(-1), atol=1e-12, rtol=1e-9)


def test_needs_a_retain_loss_with_slopes():
    with pytest.raises(ValueError, match=r"'js_refusal_row'.*js_first.*'nll'"):
        recipe("jensun_plus", retain_loss="nll")
    assert recipe("jensun_plus", retain_loss="none").retain_component is None
