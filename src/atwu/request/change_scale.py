"""Scale the change of a model's weights since the start of training.

Weights between those of two models often combine what each does well (WiSE-FT, Wortsman et al. 2022).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

CHANGE_SCALES = (0.9, 0.8, 0.7, 0.6, 0.5)
"""Factors on the change of the weights that are tried after training, in this order."""
MAX_FAILED_SCALES = 2
"""Number of factors in a row with which the rows are not forgotten, after which no smaller one is tried. It is not 1, because
with few rows a single answer decides."""


def smallest_scale(forgotten: Callable[[float], bool]) -> float:
    """Return the smallest factor tried with which the rows are forgotten; 1 if there is none.

    Args:
        forgotten: scales the change and says whether the rows are still forgotten.
    """
    smallest, failed = 1.0, 0
    for scale in CHANGE_SCALES:
        if forgotten(scale):
            smallest, failed = scale, 0
        elif (failed := failed + 1) == MAX_FAILED_SCALES:
            break
    return smallest


def copied(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Copy tensors to main memory."""
    return [tensor.detach().to("cpu", copy=True) for tensor in tensors]


@torch.no_grad()
def set_change(
    parameters: Sequence[Tensor], original: Sequence[Tensor], trained: Sequence[Tensor], scale: float
) -> None:
    """Set parameters to `original + scale * (trained - original)`; `trained` may hold further tensors at its end."""
    for parameter, start, end in zip(parameters, original, trained, strict=False):
        parameter.copy_(torch.lerp(start, end, scale))
