"""Gradient rectification: the forget gradient loses the part that opposes the retain gradient, under any method.

GRU (Wang et al. 2025, arXiv 2503.09117) projects the forget gradient onto the plane orthogonal to a moving average of the
retain gradient where the two point apart. With the average being the current gradient alone, it is the step of PCGrad (Yu et
al. 2020) that changes only the forget gradient. The retain gradient itself is added unchanged, which corresponds to the
variants `+ce` of the published code.

A preserve loss keeps tokens of the forget answers, so its gradient belongs to the retain gradient; that of a replacement loss,
from which another answer is learned, belongs to the forget gradient, as refusals do in the published code (`idk_gru`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

MEMORY_NAME = "retain_gradient.safetensors"


def opposing_share(forget: Mapping[str, Tensor], retain: Mapping[str, Tensor]) -> float:
    """Return `min(0, <f, r> / <r, r>)` over all weights together; `f` minus this times `r` no longer opposes `r`.

    Args:
        forget: a gradient by name of weight, none missing in `retain`.
    """
    names = forget.keys() & retain.keys()
    product = sum(float((forget[name].double() * retain[name].double()).sum()) for name in names)
    square = sum(float(each.double().square().sum()) for each in retain.values())
    return min(0.0, product / square) if square else 0.0


class GradientRectification:
    """Rectify the gradient of each optimizer step.

    Args:
        newest: weight of the current retain gradient in the moving average, in (0, 1].
    """

    def __init__(self, model: nn.Module, newest: float) -> None:
        self._weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        self._newest = newest
        self._current: dict[str, Tensor] = {}
        self._average: dict[str, Tensor] = {}

    def collect(self, kept: Tensor) -> None:
        """Add the gradient of a micro-batch's retain and preserve terms, with their factors; the graph is kept."""
        gradients = torch.autograd.grad(kept, list(self._weights.values()), retain_graph=True, allow_unused=True)
        _add(self._current, dict(zip(self._weights, gradients, strict=True)))

    def rectify(self) -> float:
        """Change the gradients of the whole optimizer step in place; returns the share of the retain gradient added to them."""
        kept, self._current = self._current, {}
        for each in self._average.values():
            each.mul_(1 - self._newest)
        _add(self._average, {name: self._newest * each for name, each in kept.items()})
        gradients = {name: weight.grad for name, weight in self._weights.items() if weight.grad is not None}
        forget = {name: each - kept[name] if name in kept else each for name, each in gradients.items()}
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
        self._average = {name: each.to(self._weights[name].device) for name, each in stored.items()}


def _add(total: dict[str, Tensor], more: Mapping[str, Tensor | None]) -> None:
    for name, each in more.items():
        if each is not None:
            total[name] = total[name] + each if name in total else each
