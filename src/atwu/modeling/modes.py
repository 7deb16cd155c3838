"""Context managers that change the mode of a model and restore it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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
    """Set evaluation mode within a context."""
    with restored_modes(model):
        model.eval()
        yield


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
