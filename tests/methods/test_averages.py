"""The reductions differ on answers of unequal length: p = .9, .2 and .6, .5, .25, padded to one batch."""

from __future__ import annotations

import pytest
import torch

from atwu.methods.component_inputs import reduce_loss, sequence_mean, token_mean

VALUES = -torch.tensor([[0.9, 0.2, 0.7], [0.6, 0.5, 0.25]], dtype=torch.float64).log()
MASK = torch.tensor([[True, True, False], [True, True, True]])


def close(value):
    return pytest.approx(value, abs=1e-6)


def mean_of_means(values, mask, count=None):
    return reduce_loss(values, mask, mask, "row_means", rows=count)


def test_worked_example():
    assert (VALUES * MASK).sum(-1).tolist() == close([1.714798, 2.590267])
    assert token_mean(VALUES, MASK).item() == close(0.861013)
    assert mean_of_means(VALUES, MASK).item() == close(0.860410)
    assert sequence_mean((VALUES * MASK).sum(-1)).item() == close((1.714798 + 2.590267) / 2)


@pytest.mark.parametrize("count", [5, 5.0, torch.tensor(5)])
def test_micro_batches_add_up(count):
    values, mask = torch.cat([VALUES, VALUES.flip(0), VALUES[:1]]), torch.cat([MASK, MASK.flip(0), MASK[:1]])
    parts = [slice(0, 1), slice(1, 3), slice(3, 5)]
    total = sum(mean_of_means(values[part], mask[part], count=count) for part in parts)
    assert total.item() == pytest.approx(mean_of_means(values, mask).item(), abs=1e-12)
    rows = values.sum(-1)
    total = sum(sequence_mean(rows[part], count=count) for part in parts)
    assert total.item() == pytest.approx(sequence_mean(rows).item(), abs=1e-12)


def test_a_sequence_without_counted_tokens_contributes_zero():
    mask = torch.tensor([[False, False, False], [True, True, True]])
    values = VALUES.clone().requires_grad_()
    value = mean_of_means(values, mask)
    assert value.item() == close(2.590267 / 3 / 2)
    assert not torch.autograd.grad(value, values)[0][0].any()
    assert mean_of_means(VALUES[:0], MASK[:0]).item() == 0.0
