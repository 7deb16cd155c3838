"""Forgetting that lasts: the forget loss is taken beside the weights, so that a small move of them does not undo it.

Sharpness-aware minimisation (Foret et al. 2021) for forgetting and random smoothing are those of Fan et al. 2025, "Towards LLM
Unlearning Resilient to Relearning Attacks": the forget loss at moved weights, the retain loss at the weights as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn


def sam_perturbation(loss: Tensor, weights: Sequence[Tensor], *, radius: float) -> list[Tensor]:
    """`radius * g / |g|`: the move of that length which raises a loss most, to first order.

    Args:
        loss: a scalar, whose graph is kept.
        weights: leaves of it, or not.
        radius: Euclidean length of the move over all weights together.

    Returns:
        A tensor for each weight; all 0 where the loss does not depend on them.
    """
    found = torch.autograd.grad(loss, list(weights), retain_graph=True, allow_unused=True)
    gradients = [torch.zeros_like(weight) if g is None else g for weight, g in zip(weights, found, strict=True)]
    length = torch.stack([gradient.float().square().sum() for gradient in gradients]).sum().sqrt()
    scale = radius / length.clamp(min=torch.finfo(torch.float32).tiny)
    return [gradient.mul_(scale.to(gradient)) for gradient in gradients]


def noise(weights: Sequence[Tensor], *, deviation: float, seed: Sequence[int]) -> Iterator[Tensor]:
    """A normal move of each weight tensor, with `deviation` times the root mean square of its entries; one at a time.

    Args:
        weights: floating point tensors.
        deviation: >= 0; rounding to 4 bits moves weights by about a tenth.
        seed: whole numbers >= 0 that decide every draw.
    """
    state = int(np.random.SeedSequence(list(seed)).generate_state(1, np.uint64)[0] >> 1)
    generator = torch.Generator(weights[0].device if weights else "cpu").manual_seed(state)
    for weight in weights:
        drawn = torch.randn(weight.shape, generator=generator, device=weight.device, dtype=torch.float32)
        size = weight.detach().float().square().mean().sqrt()
        yield drawn.mul_(deviation * size).to(weight.dtype)


@contextmanager
def weights_moved(weights: Sequence[Tensor], moves: Iterable[Tensor]) -> Iterator[None]:
    """Weights with their moves added; on leaving they are what they were, bit by bit.

    Graphs made before or inside remain good for the values they were made with: backward passes of the former belong outside,
    those of the latter inside.
    """
    kept = [weight.detach().clone() for weight in weights]
    try:
        for weight, move in zip(weights, moves, strict=True):
            weight.data.add_(move)
        torch.clear_autocast_cache()  # weights that were converted before
        yield
    finally:
        for weight, before in zip(weights, kept, strict=True):
            weight.data.copy_(before)
        torch.clear_autocast_cache()


def loss_at_perturbed_weights(
    kept: Tensor | None, forget: Callable[[], Tensor], weights: Sequence[nn.Parameter], moves: Iterable[Tensor]
) -> Tensor:
    """`kept + forget at the moved weights`, a scalar whose backward pass gives the gradients of that sum.

    Args:
        kept: a loss at the weights as they are, or None.
        forget: computes the other loss with the weights as they are then.
        weights: what is trained.
        moves: one for each.
    """
    with weights_moved(weights, moves):
        value = forget()
        found = torch.autograd.grad(value, list(weights), allow_unused=True)
    pairs = [(weight, gradient) for weight, gradient in zip(weights, found, strict=True) if gradient is not None]
    linear = sum(((weight * gradient).sum() for weight, gradient in pairs), start=value.new_zeros(()))
    total = linear - linear.detach() + value.detach()
    return total if kept is None else kept + total
