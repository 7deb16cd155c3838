"""Two token weightings made into one, for a whole batch at once.

All arguments have shape (batch, tokens); what lies off the mask, NaN included, has no effect and comes back as 0.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Combination = Literal["product", "mean_of_ranks"]


def combined(first: Tensor, second: Tensor, mask: Tensor, *, how: Combination) -> Tensor:
    """`product` or `mean_of_ranks` of two weightings."""
    return (product if how == "product" else mean_of_ranks)(first, second, mask)


def product(first: Tensor, second: Tensor, mask: Tensor) -> Tensor:
    """`first * second`: heavy only where both are. Gradient flows to both.

    Args:
        first: token weights >= 0, shape (batch, tokens).
        second: the same of another weighting.
        mask: True on counted tokens, same shape.

    Returns:
        Weights, shape (batch, tokens).
    """
    # Each side is masked first: a NaN under the mask would otherwise reach the gradient.
    return torch.where(mask, first, 0) * torch.where(mask, second, 0)


@torch.no_grad()
def mean_of_ranks(first: Tensor, second: Tensor, mask: Tensor) -> Tensor:
    """Mean of the two ranks of each token within its row: only the order of each weighting matters, not its scale.

    A rank r among n counted tokens counts as `(r - 1/2) / n`; tied tokens share their mean rank; a row's mean is 1/2.

    Args:
        first: token weights or scores of any range, shape (batch, tokens).
        second: the same of another weighting.
        mask: True on counted tokens, same shape.

    Returns:
        Weights in (0, 1) on the mask, without gradient, shape (batch, tokens), float32 or wider.
    """
    return (_scaled_ranks(first, mask) + _scaled_ranks(second, mask)) / 2


def _scaled_ranks(values: Tensor, mask: Tensor) -> Tensor:
    dtype = torch.promote_types(values.dtype, torch.float32)
    padded = torch.where(mask, values.to(dtype), torch.inf).contiguous()
    ordered = padded.sort(dim=-1).values
    count = mask.sum(-1, keepdim=True)
    below = torch.searchsorted(ordered, padded)
    up_to = torch.minimum(torch.searchsorted(ordered, padded, right=True), count)  # padding ties with an infinite value
    ranks = (below + up_to).to(dtype) / (2 * count.clamp(min=1)).to(dtype)  # mid-rank - 1/2 = (below + up_to) / 2
    return torch.where(mask, ranks, 0)
