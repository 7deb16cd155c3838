"""Token weights read off the model's own next-token distribution. All are constants: no gradient flows through them."""

from __future__ import annotations

import torch
from torch import Tensor


def uniform(logps: Tensor) -> Tensor:
    """Every token counts alike; shape of `logps`."""
    return torch.ones_like(logps)


def saturation(logps: Tensor, *, beta: float) -> Tensor:
    """`p^beta`: tokens that are already forgotten count less (WGA, Wang et al. 2025).

    Args:
        logps: log p(x_t | x_<t), any shape.
        beta: exponent >= 0; larger drops a token earlier.
    """
    return (beta * logps.detach()).exp()


def importance(logps: Tensor, *, beta2: float) -> Tensor:
    """`(1 - p)^beta2`: tokens the model finds hard count more (Yang et al. 2025).

    Args:
        logps: log p(x_t | x_<t), any shape.
        beta2: exponent >= 0; larger concentrates on less likely tokens.
    """
    return (-torch.expm1(logps.detach())).clamp(min=0).pow(beta2)


def satimp(logps: Tensor, *, beta1: float, beta2: float) -> Tensor:
    """`p^beta1 (1 - p)^beta2`, largest at p = beta1 / (beta1 + beta2) (SatImp, Yang et al. 2025)."""
    return saturation(logps, beta=beta1) * importance(logps, beta2=beta2)


def entropy_share(entropy: Tensor, mask: Tensor) -> Tensor:
    """`n H_t / sum H`: the share of each token in its row's uncertainty (ETW, Koh et al. 2026). Sums to n in each row.

    Args:
        entropy: next-token entropy in nats, shape (batch, tokens).
        mask: True on counted tokens, same shape.

    Returns:
        Weights >= 0, shape (batch, tokens); all ones in a row without any uncertainty.
    """
    entropy = entropy.detach() * mask
    total, count = entropy.sum(-1, keepdim=True), mask.sum(-1, keepdim=True)
    return torch.where(total > 0, count * entropy / total.clamp(min=torch.finfo(entropy.dtype).tiny), 1.0) * mask
