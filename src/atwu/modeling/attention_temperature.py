"""Attention at another softmax temperature, which weakens what a model recalls from its context (ASU, arXiv 2603.01285)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch import nn

from atwu.modeling.layers import decoder_layers
from atwu.modeling.single_pass import unwrap


@contextlib.contextmanager
def attention_temperature(model: nn.Module, temperature: float) -> Iterator[None]:
    """Divide the attention scores of all decoder layers by a temperature within a context.

    Attention modules of transformers multiply scores by their attribute `scaling`.

    Raises:
        ValueError: a temperature other than 1 for a model whose layers have no such attribute.
    """
    if temperature == 1:
        yield
        return
    inner = unwrap(model)
    # The scaling of an adapter's layers is a dictionary.
    scaled: list[Any] = [
        module
        for layer in decoder_layers(inner)
        for module in layer.modules()
        if isinstance(getattr(module, "scaling", None), float)
    ]
    if not scaled:
        raise ValueError(
            f"the attention temperature of {type(inner).__name__} cannot be changed: its layers have no attribute scaling; "
            "use another forget loss than smoothed_attention."
        )
    before = [module.scaling for module in scaled]
    try:
        for module, scaling in zip(scaled, before, strict=True):
            module.scaling = scaling / temperature
        yield
    finally:
        for module, scaling in zip(scaled, before, strict=True):
            module.scaling = scaling
