"""RMU: move hidden states of forget answers to a fixed random vector, keep those of retain answers (Li et al. 2024).

Both sides are a squared distance per token; which layer's output it is taken of is the caller's affair.
"""

from __future__ import annotations

import torch
from torch import Tensor


def steering_vector(size: int, *, coefficient: float, seed: int = 0) -> Tensor:
    """The vector that forget states are steered to: `c u / |u|`, u uniform on [0, 1) in each coordinate.

    Drawn from a generator of its own: every process and machine gets the same one, and no other draw changes.

    Args:
        size: length of a hidden state.
        coefficient: length c of the vector; larger scrambles more.
        seed: seed of the draw.

    Returns:
        Shape (size,), float32, on the CPU.
    """
    generator = torch.Generator(device="cpu").manual_seed(seed)
    u = torch.rand(size, generator=generator, dtype=torch.float32, device="cpu").double()
    # In float64, so that the order in which a machine adds up does not show after rounding.
    return (coefficient * u / u.square().sum().sqrt()).float()


def squared_distance(states: Tensor, target: Tensor) -> Tensor:
    """`|h - t|^2 / d`: squared difference averaged over the hidden axis, in float32 (float64 for float64 states).

    Args:
        states: hidden states of the current model, shape (tokens, hidden).
        target: what they are compared with, no gradient: the steering vector, shape (hidden,), or the starting model's
            states, shape (tokens, hidden).

    Returns:
        Shape (tokens,).
    """
    dtype = torch.float64 if states.dtype == torch.float64 else torch.float32
    return (states.to(dtype) - target.detach().to(dtype)).square().mean(-1)
