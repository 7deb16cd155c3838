"""The decoder layers of a model: reading the output of one, stopping the work there, training only some."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn


def decoder_layers(model: nn.Module) -> nn.ModuleList:
    """The decoder layers of a causal model.

    Raises:
        ValueError: the model has none under the usual names.
    """
    layers = _usual_layers(model)
    if layers is None:
        raise ValueError(f"{type(model).__name__} has no list of decoder layers, which this method reads.")
    return layers


def last_mlp(model: nn.Module) -> nn.Module | None:
    """The MLP of the last decoder layer, under the usual names."""
    layers = _usual_layers(model)
    mlp = None if layers is None else getattr(layers[-1], "mlp", None)
    return mlp if isinstance(mlp, nn.Module) else None


def train_only_down_projections(model: nn.Module, layers: Iterable[int]) -> None:
    """Freeze everything but the MLP output matrices of some decoder layers (RMU trains those: Li et al. 2024).

    With adapters, only those on these layers' MLP outputs stay trainable.

    Raises:
        ValueError: no such layer, or it has no parameter that can be trained there; nothing is frozen then.
    """
    stack = decoder_layers(model)
    kept: set[int] = set()
    for index in layers:
        _check_layer(index, stack)
        found = [p for name, p in stack[index].named_parameters() if "down_proj" in name and p.requires_grad]
        if not found:
            raise ValueError(
                f"decoder layer {index} of {type(model).__name__} has no trainable mlp.down_proj, which this method trains"
                + (" (put adapters on it: lora_targets=down_proj)." if hasattr(model, "peft_config") else ".")
            )
        kept |= {id(parameter) for parameter in found}
    for parameter in model.parameters():
        parameter.requires_grad_(id(parameter) in kept)


@contextlib.contextmanager
def tap(model: nn.Module, layer: int, into: list[Tensor], *, stop: bool) -> Iterator[None]:
    """Put the output of decoder layer `layer` (from 0), flattened to (slots, hidden), into a list during forward passes.

    Args:
        model: the causal model without wrappers.
        layer: index of the layer.
        into: receives one tensor with gradient per forward pass.
        stop: let the later layers pass their input on unchanged, since nobody needs their output.
    """
    layers = decoder_layers(model)
    _check_layer(layer, layers)
    as_tuple = False

    def read(module: nn.Module, given: Any, output: Any) -> None:
        nonlocal as_tuple
        as_tuple = isinstance(output, tuple)
        into.append((output[0] if as_tuple else output).flatten(0, 1))

    def passes_on(states: Tensor, *_: Any, **__: Any) -> Any:
        return (states,) if as_tuple else states

    with contextlib.ExitStack() as stack:
        stack.callback(layers[layer].register_forward_hook(read).remove)
        if stop:
            for later in list(layers)[layer + 1 :]:
                stack.enter_context(replaced(later, passes_on))
        yield
    # Only here: where hooks run inside the checkpointed part, they see gradients switched off.
    if torch.is_grad_enabled() and any(not states.requires_grad for states in into):
        before = (parameter for part in layers[: layer + 1] for parameter in part.parameters())
        if any(parameter.requires_grad for parameter in before):
            raise RuntimeError(
                "reentrant gradient checkpointing hides the layer's gradient; "
                "use gradient_checkpointing_kwargs={'use_reentrant': False}."
            )


def _usual_layers(model: nn.Module) -> nn.ModuleList | None:
    getter = getattr(model, "get_decoder", None)
    layers = getattr(getter() if getter is not None else None, "layers", None)
    return layers if isinstance(layers, nn.ModuleList) and len(layers) else None


def _check_layer(layer: int, layers: nn.ModuleList) -> None:
    if not 0 <= layer < len(layers):
        raise ValueError(f"layer must be between 0 and {len(layers) - 1}, the layers of this model, got {layer}.")


@contextlib.contextmanager
def replaced(layer: nn.Module, forward: Any) -> Iterator[None]:
    """Let a module compute something else; its hooks still run."""
    before = layer.__dict__.get("forward")
    layer.forward = forward
    try:
        yield
    finally:
        if before is None:
            del layer.forward
        else:
            layer.forward = before
