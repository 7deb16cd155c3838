"""How well token weights agree with secret-token labels, row by row, while training."""

from __future__ import annotations

import torch
from torch import Tensor


def labelled_rows(labels: Tensor, mask: Tensor) -> float:
    """How many rows have both a secret and another counted token; both of shape (batch, tokens), bool."""
    secret, other = (labels & mask).any(dim=1), (~labels & mask).any(dim=1)
    return float((secret & other).sum())


@torch.no_grad()
def row_auroc(weights: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """Chance that a secret token outweighs another one of its row, ties counting half.

    Args:
        weights: token weights, shape (batch, tokens).
        labels: True on secret tokens, same shape.
        mask: True on counted tokens, same shape.

    Returns:
        AUROC in [0, 1] of each row that has both kinds of token, 0 for the others, shape (batch,).
    """
    secret, other = labels & mask, ~labels & mask
    difference = weights[:, :, None] - weights[:, None, :]
    pairs = secret[:, :, None] & other[:, None, :]
    wins = ((difference > 0).double() + 0.5 * (difference == 0).double()) * pairs
    return wins.sum(dim=(1, 2)) / pairs.sum(dim=(1, 2)).clamp(min=1)
