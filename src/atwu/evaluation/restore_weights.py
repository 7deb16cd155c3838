"""Changing a model's weights in place for a while: all that training or rounding changes is put back, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import torch
from torch import nn

from atwu.modeling.modes import restored_modes


@contextmanager
def restored(model: nn.Module) -> Iterator[None]:
    """Put the model back on leaving, also after an error.

    Restored are the bytes of parameters and buffers, requires_grad flags, gradients and train/eval modes. Inside,
    weights may only be changed in place, and gradients start out empty. A copy of the weights is held in CPU memory
    meanwhile.
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
