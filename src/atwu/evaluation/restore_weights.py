"""Change a model's weights in place temporarily, for training and quantization attacks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import torch
from torch import nn

from atwu.modeling.modes import restored_modes


@contextmanager
def restored(model: nn.Module) -> Iterator[None]:
    """Restore the model exactly on leaving, also after an error.

    Restores parameters, buffers, requires_grad flags, gradients and train/eval modes. Inside, weights may only be
    changed in place, and gradients are None at the start. A copy of the weights is kept in CPU memory.
    """
    kept = [
        (tensor, tensor.detach().to("cpu", copy=True), tensor.requires_grad, tensor.grad)
        for tensor in chain(model.parameters(), model.buffers())
    ]
    for tensor, *_ in kept:
        tensor.grad = None
    try:
        with restored_modes(model):
            yield
    finally:
        with torch.no_grad():
            for tensor, copy, requires_grad, grad in kept:
                tensor.copy_(copy)
                tensor.requires_grad_(requires_grad)
                tensor.grad = grad
