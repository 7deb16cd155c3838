"""Changing a model for a while: all that training or rounding can change is put back afterwards, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from atwu.modeling.modes import same_modes


@dataclass(frozen=True, slots=True)
class _Kept:
    tensor: Tensor
    storage: Tensor
    """The memory the tensor used, so that tensors which share memory go on sharing it."""
    copy: Tensor
    """On the CPU."""
    requires_grad: bool
    grad: Tensor | None


@contextmanager
def restored(model: nn.Module) -> Iterator[None]:
    """Put the model back on leaving, also after an error.

    Restored are parameters and buffers (the same objects with the same bytes, so tied ones stay tied), requires_grad
    flags, gradients and train/eval modes. Inside, gradients start out empty. Modules that were added are not removed.
    A copy of the weights is held in CPU memory meanwhile.
    """
    tables: Any = [table for module in model.modules() for table in (module._parameters, module._buffers)]
    places: list[tuple[dict[str, Any], str, Tensor | None]] = [
        (owner, name, tensor) for owner in tables for name, tensor in owner.items()
    ]
    kept = [
        _Kept(tensor, tensor.data, tensor.detach().to("cpu", copy=True), tensor.requires_grad, tensor.grad)
        for tensor in {id(tensor): tensor for _, _, tensor in places if tensor is not None}.values()
    ]
    for entry in kept:
        entry.tensor.grad = None
    try:
        with same_modes(model):
            yield
    finally:
        for owner, name, tensor in places:
            owner[name] = tensor
        with torch.no_grad():
            for entry in kept:
                entry.storage.copy_(entry.copy)
                entry.tensor.grad = None  # one of another dtype or place would block the next line
                entry.tensor.data = entry.storage
                entry.tensor.requires_grad_(entry.requires_grad)
                entry.tensor.grad = entry.grad
