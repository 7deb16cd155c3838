"""Retain losses: what keeps the model's other knowledge in place."""

from __future__ import annotations

from torch import Tensor


def nll(logps: Tensor) -> Tensor:
    """Negative log-likelihood per token of the retain answers, in nats.

    Args:
        logps: log p(x_t | x_<t) under the current model, any shape.
    """
    return -logps
