"""Context managers that change the mode or the weights of a model and restore them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import torch
from torch import nn


@contextmanager
def restored_modes(model: nn.Module) -> Iterator[None]:
    """Restore the train/eval mode of every module on exit, also after an error."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    with restored_modes(model):
        model.eval()
        yield


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


@contextmanager
def bfloat16_weights(model: nn.Module, enabled: bool = True) -> Iterator[None]:
    """Round float32 weights to bfloat16 within a context, as if they were loaded in bfloat16; buffers stay as they are."""
    kept = [
        (parameter, parameter.data) for parameter in model.parameters() if enabled and parameter.dtype == torch.float32
    ]
    try:
        for parameter, weights in kept:
            parameter.data = weights.to(torch.bfloat16)
        yield
    finally:
        for parameter, weights in kept:
            parameter.data = weights


@contextmanager
def full_precision(model: nn.Module) -> Iterator[None]:
    """Remove the trainer's mixed-precision wrapper within a context, so that the model computes as saved."""
    from accelerate.utils import extract_model_from_parallel

    wrapped = {name: value for name, value in vars(model).items() if name in ("forward", "_original_forward")}
    extract_model_from_parallel(model, keep_fp32_wrapper=False)
    try:
        yield
    finally:
        vars(model).update(wrapped)
