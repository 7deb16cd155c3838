"""Changes of the forget gradient alone, and the forget loss at perturbed weights: options that work under any method.

One backward pass adds the forget and the retain gradient. What changes the forget gradient alone subtracts the retain gradient
first (`GradientChange`). A preserve loss keeps tokens of the forget answers, so its gradient belongs to the retain gradient;
that of a replacement loss, from which another answer is learned, belongs to the forget gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from atwu.modeling.adapters import adapters_of
from atwu.modeling.layers import decoder_layers, unwrap

MEMORY_NAME = "retain_gradient.safetensors"
OVERSAMPLED = 8
"""Further singular vectors of the randomized decomposition, so that the last ones asked for are accurate (Halko et al. 2011
advise 5 to 10)."""
SKETCH_SEED = 0
"""Seed of the randomized decomposition: the same gradient always has the same components."""


class GradientChange:
    """Base class of changes of the forget gradient, once per optimizer step.

    Args:
        model: the trained model.
    """

    logged: ClassVar[str]
    """Name under which the result of `change` is logged."""

    def __init__(self, model: nn.Module) -> None:
        self._weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        self._retain: dict[str, Tensor] = {}

    def collect(self, kept: Tensor) -> None:
        """Add the gradient of a micro-batch's retain and preserve terms, with their factors; the graph is kept."""
        gradients = torch.autograd.grad(kept, list(self._weights.values()), retain_graph=True, allow_unused=True)
        _add_gradients(self._retain, dict(zip(self._weights, gradients, strict=True)))

    def _take_retain(self) -> dict[str, Tensor]:
        """Return the retain gradient of the whole optimizer step by name, and begin with the next step."""
        whole, self._retain = self._retain, {}
        return whole

    def change(self) -> float:
        """Change the gradients of the whole optimizer step in place; returns the share that is logged."""
        raise NotImplementedError


def _add_gradients(total: dict[str, Tensor], more: Mapping[str, Tensor | None]) -> None:
    for name, gradient in more.items():
        if gradient is None:  # the loss does not depend on this weight
            continue
        if name in total:
            gradient = total[name] + gradient
        total[name] = gradient


def opposing_share(forget: Mapping[str, Tensor], retain: Mapping[str, Tensor]) -> float:
    """Return `min(0, <f, r> / <r, r>)` over all weights together; `f` minus this times `r` no longer opposes `r`.

    Args:
        forget: a gradient by name of weight, none missing in `retain`.
    """
    names = forget.keys() & retain.keys()
    # In float64, since the sums are over all weights of a model.
    product = sum(float((forget[name].double() * retain[name].double()).sum()) for name in names)
    square = sum(float(gradient.double().square().sum()) for gradient in retain.values())
    if square:
        return min(0.0, product / square)
    return 0.0


class GradientRectification(GradientChange):
    """The forget gradient loses the part that opposes the retain gradient.

    GRU (Wang et al. 2025, arXiv 2503.09117) projects the forget gradient onto the plane orthogonal to a moving average of the
    retain gradient where the two point apart. With the average being the current gradient alone, it is the step of PCGrad (Yu
    et al. 2020) that changes only the forget gradient. The retain gradient itself is added unchanged, which corresponds to the
    variants `+ce` of the published code; a replacement loss belongs to the forget gradient, as in its `idk_gru`.

    Args:
        newest: weight of the current retain gradient in the moving average, in (0, 1].
    """

    logged = "rectified"

    def __init__(self, model: nn.Module, newest: float) -> None:
        super().__init__(model)
        self._newest = newest
        self._average: dict[str, Tensor] = {}

    def change(self) -> float:
        """Return the share of the retain gradient that was added."""
        kept = self._take_retain()
        for average in self._average.values():
            average.mul_(1 - self._newest)
        _add_gradients(self._average, {name: self._newest * gradient for name, gradient in kept.items()})
        gradients = {name: weight.grad for name, weight in self._weights.items() if weight.grad is not None}
        # One backward pass has added both gradients.
        forget = {name: gradient - kept[name] if name in kept else gradient for name, gradient in gradients.items()}
        share = opposing_share(forget, self._average)
        for name in gradients.keys() & self._average.keys():
            gradients[name].sub_(share * self._average[name])
        return -share

    def save(self, folder: str) -> None:
        from safetensors.torch import save_file

        save_file(self._average, Path(folder) / MEMORY_NAME)

    def load(self, folder: str) -> None:
        from safetensors.torch import load_file

        stored = load_file(Path(folder) / MEMORY_NAME)
        self._average = {name: average.to(self._weights[name].device) for name, average in stored.items()}


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
    # The bound of numerical rank that `torch.linalg.matrix_rank` uses, too.
    noise = values[..., :1] * max(matrix.shape[-2:]) * torch.finfo(matrix.dtype).eps
    real = values > noise
    smallest = values.masked_fill(~real, float("inf")).amin(-1, keepdim=True)
    ratio = torch.where(real, smallest / values, 1.0)
    removed = (1 - ratio.square()) * values
    return (matrix - (left * removed.unsqueeze(-2)) @ right.mT).to(gradient.dtype)


def _leading(matrix: Tensor, components: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the leading left singular vectors, values and right singular vectors of a matrix, or of each of a batch."""
    sampled = components + OVERSAMPLED
    # The randomized decomposition would compute as much as the exact one.
    if sampled >= min(matrix.shape[-2:]):
        left, values, right = torch.linalg.svd(matrix, full_matrices=False)
        right = right.mT
    else:
        kept: dict[str, Any] = {"devices": []}  # the generator of the CPU is kept in any case
        if matrix.device.type != "cpu":
            kept = {"devices": [matrix.device], "device_type": matrix.device.type}
        with torch.random.fork_rng(**kept):
            torch.manual_seed(SKETCH_SEED)
            left, values, right = torch.svd_lowrank(matrix, q=sampled)
    return left[..., :components], values[..., :components], right[..., :components]


class ComponentCollapse(GradientChange):
    """The leading components of the forget gradient collapse, so that forgetting changes what only the forget rows use.

    RepSelect (Sondej et al. 2026, arXiv 2606.17168), as in the published code (`hard_soft: soft`, `collapse_on: both`,
    `distribution: forget`). The leading singular vectors of a weight matrix's gradient are directions of activations (right)
    and of output gradients (left) that many tokens share: an update along them damages other answers, and fine-tuning undoes
    it.

    Departures: the code collapses one gradient of the whole forget set, of a model with adapters that relearn it, and takes
    steps along it at a rate of its own. Here the forget gradient of each optimizer step of any method is collapsed, scaled back
    to its length, which keeps its weight against the retain gradient, and goes through the optimizer. The code trains MLP
    matrices alone; here forgetting changes all matrices of the decoder layers, and no other weights.

    Args:
        components: number of leading components of each matrix.

    Raises:
        ValueError: the model has adapters.
    """

    logged = "collapsed"

    def __init__(self, model: nn.Module, components: int) -> None:
        if adapters_of(model) is not None:
            raise ValueError(
                "collapse_components needs the gradients of whole weight matrices; pass a model without adapters."
            )
        super().__init__(model)
        self._components = components
        inside = {id(weight) for weight in decoder_layers(unwrap(model)).parameters()}
        self._matrices = {name for name, weight in self._weights.items() if weight.dim() > 1 and id(weight) in inside}

    def change(self) -> float:
        """Return the share of the squared length of the matrices' forget gradient that was collapsed, in [0, 1]."""
        kept = self._take_retain()
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
            if weight.grad is None:
                weight.grad = gradient
            else:
                weight.grad.add_(gradient)
        if before:
            return 1 - after / before
        return 0.0


# Robust unlearning: the forget loss at perturbed weights, the retain loss at the original ones, so that small weight changes do
# not undo forgetting. Sharpness-aware minimization (Foret et al. 2021) and randomized smoothing as in Fan et al. 2025, "Towards
# LLM Unlearning Resilient to Relearning Attacks".


def sam_perturbation(loss: Tensor, weights: Sequence[Tensor], *, radius: float) -> list[Tensor]:
    """Compute `radius * g / |g|`, the perturbation of that norm which increases a loss most, to first order.

    Args:
        loss: a scalar, whose graph is kept.
        weights: trained weights; the loss may not depend on all of them.
    """
    known = torch.autograd.grad(loss, list(weights), retain_graph=True, allow_unused=True)
    gradients = [torch.zeros_like(weight) if g is None else g for weight, g in zip(weights, known, strict=True)]
    length = torch.stack([gradient.float().square().sum() for gradient in gradients]).sum().sqrt()
    # A loss without gradient moves nothing.
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
            # Subtracting the move would leave a rounding error in every weight, at every step.
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
    # The gradients belong to weights that are restored by now: a term that is linear in the weights hands them to the backward
    # pass, and its value is replaced by that of the loss.
    linear = sum(((weight * gradient).sum() for weight, gradient in pairs), start=value.new_zeros(()))
    total = linear - linear.detach() + value.detach()
    if kept is None:
        return total
    return kept + total
