"""Combined weightings: values by hand and by loops, ties, padding, row order, gradient."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata

from atwu.methods.weightings.model_based import mean_of_ranks, product

MASK = torch.tensor([[True, True, True, False], [True, False, True, True]])
FIRST = torch.tensor([[0.1, 0.5, 0.5, 9.0], [3.0, float("nan"), 1.0, 2.0]], dtype=torch.float64)
SECOND = torch.tensor([[0.0, 1.0, 0.0, 9.0], [1.0, float("inf"), 1.0, 1.0]], dtype=torch.float64)


def random_batch(seed=0, rows=5, length=9):
    generator = torch.Generator().manual_seed(seed)
    first = torch.randint(0, 4, (rows, length), generator=generator).double()  # many ties
    second = torch.rand(rows, length, generator=generator, dtype=torch.float64)
    return first, second, torch.rand(rows, length, generator=generator) < 0.6


def test_product():
    assert product(FIRST, SECOND, MASK).tolist() == [[0.0, 0.5, 0.0, 0.0], [3.0, 0.0, 1.0, 2.0]]


def test_product_passes_gradient_on_the_mask_only():
    first, second = FIRST.clone().requires_grad_(), SECOND.clone().requires_grad_()
    product(first, second, MASK).sum().backward()
    assert first.grad.tolist() == [[0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0, 1.0]]
    assert second.grad.tolist() == [[0.1, 0.5, 0.5, 0.0], [3.0, 0.0, 1.0, 2.0]]


@given(st.integers(0, 10_000))
def test_mean_of_ranks_agrees_with_a_plain_loop(seed):
    first, second, mask = random_batch(seed)
    got = mean_of_ranks(first, second, mask)
    for row in range(len(first)):
        counted = mask[row].nonzero().flatten().tolist()
        ranks = sum(rankdata([values[row, place] for place in counted]) for values in (first, second))
        expected = [0.0] * mask.shape[1]
        for place, rank in zip(counted, ranks if counted else [], strict=True):
            expected[place] = (rank - 1) / (2 * len(counted))
        assert got[row].tolist() == pytest.approx(expected)


def test_infinite_values_rank_like_others_and_padding_does_not_tie_with_them():
    values = torch.tensor([[float("inf"), -float("inf"), 0.0, 5.0]])
    mask = torch.tensor([[True, True, True, False]])
    assert mean_of_ranks(values, values, mask)[0].tolist() == pytest.approx([5 / 6, 1 / 6, 1 / 2, 0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int64, torch.bool])
def test_ranks_are_float32_without_gradient(dtype):
    values = torch.tensor([[0, 1, 1]]).to(dtype)
    if dtype.is_floating_point:
        values.requires_grad_()
    got = mean_of_ranks(values, values, torch.ones(1, 3, dtype=torch.bool))
    assert got.dtype == torch.float32
    assert not got.requires_grad
    assert got[0].tolist() == pytest.approx([1 / 6, 2 / 3, 2 / 3])
