"""The retain gradient of an optimizer step, apart from the forget gradient that one backward pass adds it to.

What changes the forget gradient alone (`gradient_rectification.py`, `component_collapse.py`) subtracts it first. A preserve
loss keeps tokens of the forget answers, so its gradient belongs to the retain gradient; that of a replacement loss, from which
another answer is learned, belongs to the forget gradient.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn


def trained_weights(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the weights that have gradients, by name."""
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


class RetainGradient:
    """Gradient of the retain and preserve terms, summed over the micro-batches of an optimizer step.

    Args:
        weights: the trained weights, by name.
    """

    def __init__(self, weights: Mapping[str, nn.Parameter]) -> None:
        self._weights = weights
        self._sum: dict[str, Tensor] = {}

    def collect(self, kept: Tensor) -> None:
        """Add the gradient of a micro-batch's retain and preserve terms, with their factors; the graph is kept."""
        gradients = torch.autograd.grad(kept, list(self._weights.values()), retain_graph=True, allow_unused=True)
        add_gradients(self._sum, dict(zip(self._weights, gradients, strict=True)))

    def take(self) -> dict[str, Tensor]:
        """Return the gradient of the whole optimizer step by name, and begin with the next step."""
        whole, self._sum = self._sum, {}
        return whole


def add_gradients(total: dict[str, Tensor], more: Mapping[str, Tensor | None]) -> None:
    """Add gradients by name, in place; None adds nothing."""
    for name, gradient in more.items():
        if gradient is not None:
            total[name] = total[name] + gradient if name in total else gradient
