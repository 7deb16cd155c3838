"""Robust unlearning: the forget loss at perturbed weights, so that small weight changes do not undo forgetting.

Implements sharpness-aware minimization (Foret et al. 2021) and randomized smoothing as in Fan et al. 2025, "Towards LLM
Unlearning Resilient to Relearning Attacks": the forget loss at perturbed weights, the retain loss at the original ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn


def sam_perturbation(loss: Tensor, weights: Sequence[Tensor], *, radius: float) -> list[Tensor]:
    """Compute `radius * g / |g|`, the perturbation of that norm which increases a loss most, to first order.

    Args:
        loss: a scalar, whose graph is kept.
        weights: trained weights; the loss may not depend on all of them.
    """
    known = torch.autograd.grad(loss, list(weights), retain_graph=True, allow_unused=True)
    gradients = [torch.zeros_like(weight) if g is None else g for weight, g in zip(weights, known, strict=True)]
    length = torch.stack([gradient.float().square().sum() for gradient in gradients]).sum().sqrt()
    scale = radius / length.clamp(min=torch.finfo(torch.float32).tiny)
    return [gradient.mul_(scale.to(gradient)) for gradient in gradients]


def gaussian_noise(weights: Sequence[Tensor], *, deviation: float, seed: Sequence[int]) -> Iterator[Tensor]:
    """Draw Gaussian noise for each weight tensor, with `deviation` times the root mean square of its entries; one at a
    time.

    Args:
        deviation: >= 0; 4-bit quantization corresponds to about 0.1.
        seed: integers >= 0 that determine every draw.
    """
    state = int(np.random.SeedSequence(list(seed)).generate_state(1, np.uint64)[0] >> 1)
    generator = torch.Generator(weights[0].device if weights else "cpu").manual_seed(state)
    for weight in weights:
        drawn = torch.randn(weight.shape, generator=generator, device=weight.device, dtype=torch.float32)
        size = weight.detach().float().square().mean().sqrt()
        yield drawn.mul_(deviation * size).to(weight.dtype)


@contextmanager
def perturbed_weights(weights: Sequence[Tensor], moves: Iterable[Tensor]) -> Iterator[None]:
    """Add perturbations to the weights during the block; afterwards they are restored bit by bit.

    Run backward passes of graphs built outside the block outside it, and of those built inside the block inside it.
    """
    kept = [weight.detach().clone() for weight in weights]
    try:
        for weight, move in zip(weights, moves, strict=True):
            weight.data.add_(move)
        torch.clear_autocast_cache()  # removes weights converted before the change
        yield
    finally:
        for weight, before in zip(weights, kept, strict=True):
            weight.data.copy_(before)
        torch.clear_autocast_cache()


def loss_at_perturbed_weights(
    kept: Tensor | None, forget: Callable[[], Tensor], weights: Sequence[nn.Parameter], moves: Iterable[Tensor]
) -> Tensor:
    """Compute `kept + forget at perturbed weights`, a scalar whose backward pass gives the gradients of that sum.

    Args:
        kept: a loss at the original weights, or None.
        moves: one perturbation per weight.
    """
    with perturbed_weights(weights, moves):
        value = forget()
        gradients = torch.autograd.grad(value, list(weights), allow_unused=True)
    pairs = [(weight, gradient) for weight, gradient in zip(weights, gradients, strict=True) if gradient is not None]
    linear = sum(((weight * gradient).sum() for weight, gradient in pairs), start=value.new_zeros(()))
    total = linear - linear.detach() + value.detach()
    if kept is None:
        return total
    return kept + total
