"""Gradient rectification: the forget gradient loses the part that opposes the retain gradient, under any method.

GRU (Wang et al. 2025, arXiv 2503.09117) projects the forget gradient onto the plane orthogonal to a moving average of the
retain gradient where the two point apart. With the average being the current gradient alone, it is the step of PCGrad (Yu et
al. 2020) that changes only the forget gradient. The retain gradient itself is added unchanged, which corresponds to the
variants `+ce` of the published code.

The gradient of a replacement loss belongs to the forget gradient (`retain_gradient.py`), as refusals do in the published code
(`idk_gru`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from atwu.training.retain_gradient import RetainGradient, add_gradients, trained_weights

MEMORY_NAME = "retain_gradient.safetensors"


def opposing_share(forget: Mapping[str, Tensor], retain: Mapping[str, Tensor]) -> float:
    """Return `min(0, <f, r> / <r, r>)` over all weights together; `f` minus this times `r` no longer opposes `r`.

    Args:
        forget: a gradient by name of weight, none missing in `retain`.
    """
    names = forget.keys() & retain.keys()
    product = sum(float((forget[name].double() * retain[name].double()).sum()) for name in names)
    square = sum(float(gradient.double().square().sum()) for gradient in retain.values())
    if square:
        return min(0.0, product / square)
    return 0.0


class GradientRectification:
    """Rectify the gradient of each optimizer step.

    Args:
        newest: weight of the current retain gradient in the moving average, in (0, 1].
    """

    def __init__(self, model: nn.Module, newest: float) -> None:
        self._weights = trained_weights(model)
        self._newest = newest
        self._retain = RetainGradient(self._weights)
        self._average: dict[str, Tensor] = {}

    def collect(self, kept: Tensor) -> None:
        """Add the gradient of a micro-batch's retain and preserve terms, with their factors; the graph is kept."""
        self._retain.collect(kept)

    def rectify(self) -> float:
        """Change the gradients of the whole optimizer step in place; returns the share of the retain gradient added to them."""
        kept = self._retain.take()
        for average in self._average.values():
            average.mul_(1 - self._newest)
        add_gradients(self._average, {name: self._newest * gradient for name, gradient in kept.items()})
        gradients = {name: weight.grad for name, weight in self._weights.items() if weight.grad is not None}
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
