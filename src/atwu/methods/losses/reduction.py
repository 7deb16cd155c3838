"""Average loss values per token or per sequence to a scalar.

`values` has one value per token, shape (batch, tokens), and `mask` is True on counted tokens; `sequence_mean` takes one value
per sequence, shape (batch,). `count` is a denominator to use instead of this batch's own, so that a mean can span several
micro-batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from atwu.methods.component import Reduction


def reduce_loss(
    values: Tensor,
    weights: Tensor,
    mask: Tensor,
    reduction: Reduction,
    *,
    tokens: float | None = None,
    rows: float | None = None,
    selected: float | None = None,
) -> Tensor:
    """Average the values of a loss; the counts are denominators of the whole batch, default this micro-batch."""
    if reduction == "sequences":
        return sequence_mean(values, count=rows)
    if reduction == "row_means":
        return mean_of_means(values, mask, count=rows)
    if reduction == "selected":
        return selected_mean(values, weights, mask, count=selected)
    return token_mean(values, mask, count=tokens)


def token_mean(values: Tensor, mask: Tensor, *, count: float | None = None) -> Tensor:
    """Mean of `values` over the counted tokens of the whole batch, a scalar."""
    total = (values * mask).sum()
    if count is None:
        return total / mask.sum().clamp(min=1)
    return total / count


def selected_mean(values: Tensor, weights: Tensor, mask: Tensor, *, count: float | None = None) -> Tensor:
    """Sum of already weighted `values` over the total weight, at least 1, a scalar.

    Args:
        weights: the 0/1 selection contained in `values`, same shape.
        count: total weight to divide by instead of this batch's own.
    """
    total = (values * mask).sum()
    # At least 1: in a batch without a selected token the total is 0, and so is the loss.
    if count is None:
        return total / (weights * mask).sum().clamp(min=1)
    return total / max(count, 1)


def sequence_mean(values: Tensor, *, count: float | None = None) -> Tensor:
    """Mean of one value per sequence, a scalar."""
    if count is None:
        count = max(values.shape[0], 1)
    return values.sum() / count


def mean_of_means(values: Tensor, mask: Tensor, *, count: float | None = None) -> Tensor:
    """Mean over sequences of the mean over counted tokens, a scalar; short and long answers have equal weight.

    Args:
        mask: True on counted tokens, same shape; a sequence without any contributes 0.
    """
    return sequence_mean(row_means(values, mask), count=count)


def row_means(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over the counted tokens of each row, shape (batch,); 0 for a row without any."""
    return (values * mask).sum(-1) / mask.sum(-1).clamp(min=1)


def shares(weights: Tensor, mask: Tensor) -> Tensor:
    """Normalize weights within each row to mean 1, `n w_t / sum of w`; shape of `weights`.

    Args:
        weights: token weights >= 0, shape (batch, tokens).
        mask: True on counted tokens, same shape; n per row.
    """
    counted = weights * mask
    return counted * mask.sum(-1, keepdim=True) / counted.sum(-1, keepdim=True).clamp(min=1e-8)
