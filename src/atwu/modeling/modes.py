"""Another mode for a while: afterwards every part of a model is in its own mode again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def restored_modes(model: nn.Module) -> Iterator[None]:
    """Put back the mode of every part on leaving, also after an error."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Evaluation mode."""
    with restored_modes(model):
        model.eval()
        yield


@contextmanager
def full_precision(model: nn.Module) -> Iterator[None]:
    """Without the mixed precision that a trainer wrapped around the forward pass: the model as it will be saved."""
    from accelerate.utils import extract_model_from_parallel

    wrapped = {name: value for name, value in vars(model).items() if name in ("forward", "_original_forward")}
    extract_model_from_parallel(model, keep_fp32_wrapper=False)
    try:
        yield
    finally:
        vars(model).update(wrapped)
