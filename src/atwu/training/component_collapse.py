"""Collapse of the leading components of the forget gradient, so that forgetting changes what only the forget rows use.

RepSelect (Sondej et al. 2026, arXiv 2606.17168), as in the published code (`hard_soft: soft`, `collapse_on: both`,
`distribution: forget`). The leading singular vectors of a weight matrix's gradient are directions of activations (right) and of
output gradients (left) that many tokens share: an update along them damages other answers, and fine-tuning undoes it.

Departures: the code collapses one gradient of the whole forget set, of a model with adapters that relearn it, and takes steps
along it at a rate of its own. Here the forget gradient of each optimizer step of any method is collapsed, scaled back to its
length, which keeps its weight against the retain gradient, and goes through the optimizer. The code trains MLP matrices alone;
here forgetting changes all matrices of the decoder layers, and no other weights.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from atwu.modeling.adapters import adapters_of
from atwu.modeling.layers import decoder_layers, unwrap
from atwu.training.retain_gradient import RetainGradient, trained_weights

OVERSAMPLED = 8
"""Further singular vectors of the randomized decomposition, so that the last ones asked for are accurate (Halko et al. 2011
advise 5 to 10)."""
SKETCH_SEED = 0
"""Seed of the randomized decomposition: the same gradient always has the same components."""


def collapse_components(gradient: Tensor, *, components: int) -> Tensor:
    """Return a gradient without the dominance of its leading components.

    With the singular value decomposition `G = sum_i s_i u_i v_i^T` and `k = components`, component `i <= k` is divided by
    `s_i / s_k` on the side of the activations (`v_i`) and again on that of the output gradients (`u_i`):

        G' = G - sum_{i <= k} (1 - (s_k / s_i)^2) s_i u_i v_i^T

    so the larger of two leading components becomes the smaller one. One component (or none) changes nothing.

    Args:
        gradient: shape (rows, columns), or (experts, rows, columns) for one matrix per expert.
        components: k >= 0; larger leaves less of what many tokens share. Of a gradient of smaller rank, all are taken.

    Returns:
        The collapsed gradient, same shape and dtype.
    """
    if components < 2:
        return gradient
    matrix = gradient.float()
    left, values, right = _leading(matrix, min(components, *matrix.shape[-2:]))
    # A value of rounding errors alone as the smallest one would collapse everything.
    noise = values[..., :1] * max(matrix.shape[-2:]) * torch.finfo(matrix.dtype).eps
    real = values > noise
    smallest = values.masked_fill(~real, float("inf")).amin(-1, keepdim=True)
    ratio = torch.where(real, smallest / values, 1.0)
    removed = (1 - ratio.square()) * values
    return (matrix - (left * removed.unsqueeze(-2)) @ right.mT).to(gradient.dtype)


def _leading(matrix: Tensor, components: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the leading left singular vectors, values and right singular vectors of a matrix, or of each of a batch."""
    sampled = components + OVERSAMPLED
    if sampled >= min(matrix.shape[-2:]):
        left, values, right = torch.linalg.svd(matrix, full_matrices=False)
        right = right.mT
    else:
        devices = [matrix.device] if matrix.device.type != "cpu" else []
        with torch.random.fork_rng(devices, device_type=matrix.device.type if devices else "cuda"):
            torch.manual_seed(SKETCH_SEED)
            left, values, right = torch.svd_lowrank(matrix, q=sampled)
    return left[..., :components], values[..., :components], right[..., :components]


class ComponentCollapse:
    """Collapse the forget gradient of each optimizer step.

    Args:
        model: the trained model; its decoder layers hold the matrices that forgetting may change.
        components: number of leading components of each matrix.

    Raises:
        ValueError: the model has adapters.
    """

    def __init__(self, model: nn.Module, components: int) -> None:
        if adapters_of(model) is not None:
            raise ValueError(
                "collapse_components needs the gradients of whole weight matrices; pass a model without adapters."
            )
        self._weights = trained_weights(model)
        self._components = components
        self._retain = RetainGradient(self._weights)
        inside = {id(weight) for weight in decoder_layers(unwrap(model)).parameters()}
        self._matrices = {name for name, weight in self._weights.items() if weight.dim() > 1 and id(weight) in inside}

    def collect(self, kept: Tensor) -> None:
        """Add the gradient of a micro-batch's retain and preserve terms, with their factors; the graph is kept."""
        self._retain.collect(kept)

    def collapse(self) -> float:
        """Change the gradients of the whole optimizer step in place.

        Returns:
            The share of the squared length of the matrices' forget gradient that was collapsed, in [0, 1].
        """
        kept = self._retain.take()
        before = after = 0.0
        collapsed: dict[str, Tensor] = {}
        for name, weight in self._weights.items():
            if weight.grad is None:
                continue
            if name in kept:
                weight.grad.sub_(kept[name])
            if name not in self._matrices:
                weight.grad.zero_()
                continue
            collapsed[name] = collapse_components(weight.grad, components=self._components)
            before += float(weight.grad.double().square().sum())
            after += float(collapsed[name].double().square().sum())
        scale = (before / after) ** 0.5 if after else 0.0
        for name, gradient in collapsed.items():
            self._weights[name].grad = gradient.mul_(scale)
        for name, gradient in kept.items():
            weight = self._weights[name]
            weight.grad = gradient if weight.grad is None else weight.grad.add_(gradient)
        if before:
            return 1 - after / before
        return 0.0
