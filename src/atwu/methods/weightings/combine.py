"""Combine two token weightings, for a whole batch.

All arguments have shape (batch, tokens). Values outside the mask, NaN included, have no effect and become 0.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Combination = Literal["product", "mean_of_ranks"]


def combined(first: Tensor, second: Tensor, mask: Tensor, *, how: Combination) -> Tensor:
    if how == "product":
        return product(first, second, mask)
    return mean_of_ranks(first, second, mask)


def product(first: Tensor, second: Tensor, mask: Tensor) -> Tensor:
    """`first * second`: large only if both are. Both receive a gradient."""
    # Mask both factors first: otherwise a NaN outside the mask would reach the gradient.
    return torch.where(mask, first, 0) * torch.where(mask, second, 0)


@torch.no_grad()
def mean_of_ranks(first: Tensor, second: Tensor, mask: Tensor) -> Tensor:
    """Mean of the two ranks of each token within its row: only the order of each weighting matters, not its scale.

    Rank r among n counted tokens becomes `(r - 1/2) / n`; tied tokens get their mean rank; the mean of a row is 1/2.

    Returns:
        Weights in (0, 1) on the mask, without gradient, shape (batch, tokens), float32 or wider.
    """
    return (_scaled_ranks(first, mask) + _scaled_ranks(second, mask)) / 2


def _scaled_ranks(values: Tensor, mask: Tensor) -> Tensor:
    dtype = torch.promote_types(values.dtype, torch.float32)
    # Infinite values sort behind all counted tokens, so that a row's ranks do not depend on its padding.
    padded = torch.where(mask, values.to(dtype), torch.inf).contiguous()
    ordered = padded.sort(dim=-1).values
    count = mask.sum(-1, keepdim=True)
    below = torch.searchsorted(ordered, padded)
    # A counted token may have an infinite weight itself; it ties with the padding, which is not counted.
    up_to = torch.minimum(torch.searchsorted(ordered, padded, right=True), count)
    # Tokens with smaller values have the ranks up to `below`, ties those up to `up_to`: mid-rank - 1/2 = (below + up_to) / 2.
    ranks = (below + up_to).to(dtype) / (2 * count.clamp(min=1)).to(dtype)
    return torch.where(mask, ranks, 0)
