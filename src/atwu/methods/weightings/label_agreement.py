"""Agreement of token weights with labelled tokens during training, row by row."""

from __future__ import annotations

import torch
from torch import Tensor


def labelled_rows(labels: Tensor, mask: Tensor) -> float:
    """Count the rows with both labelled and unlabelled counted tokens; arguments of shape (batch, tokens), bool."""
    labelled, other = (labels & mask).any(dim=1), (~labels & mask).any(dim=1)
    return float((labelled & other).sum())


@torch.no_grad()
def row_auroc(weights: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """AUROC per row: probability that a labelled token has a larger weight than an unlabelled one; ties count half.

    Args:
        weights: token weights, shape (batch, tokens).
        labels: True on labelled tokens, same shape.
        mask: True on counted tokens, same shape.

    Returns:
        AUROC in [0, 1] of each row with both kinds of tokens, 0 for other rows, shape (batch,).
    """
    labelled, other = labels & mask, ~labels & mask
    difference = weights[:, :, None] - weights[:, None, :]
    pairs = labelled[:, :, None] & other[:, None, :]
    wins = ((difference > 0).double() + 0.5 * (difference == 0).double()) * pairs
    return wins.sum(dim=(1, 2)) / pairs.sum(dim=(1, 2)).clamp(min=1)
