"""The decoder layers of a model: reading the output of one, stopping the work there, training only some."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

_OUTPUTS = re.compile(
    r"(.*\.)?(down_proj|dense_4h_to_h|fc2|fc_out|proj_down|w_out|mlp\.c_proj|ffn\.2|mlp\.Wo|mlp\.output_linear|feed_forward\.(w2|output|value))"
    r"(\.linear)?|output\.dense"
)
"""Names of MLP output matrices within a decoder layer."""


def decoder_layers(model: nn.Module) -> nn.ModuleList:
    """The decoder layers of a causal model.

    Raises:
        ValueError: no list in it is that of its layers.
    """
    layers = block_list(model)
    if layers is None:
        raise ValueError(f"{type(model).__name__} has no list of decoder layers, which this method reads.")
    return layers


def block_list(model: nn.Module) -> nn.ModuleList | None:
    """The list of decoder layers: `layers` of the decoder, else the only list as long as the model is deep."""
    getter = getattr(model, "get_decoder", None)
    decoder = getter() if getter is not None else None
    layers = getattr(decoder, "layers", None)
    if isinstance(layers, nn.ModuleList) and len(layers):
        return layers
    config: Any = getattr(model, "config", None)
    depth = getattr(config.get_text_config(), "num_hidden_layers", None) if config is not None else None
    for part in (decoder, model):
        if part is not None and (fitting := [each for each in text_lists(part).values() if len(each) == depth]):
            return fitting[0] if len(fitting) == 1 else None
    return None


def text_lists(model: nn.Module) -> dict[str, nn.ModuleList]:
    """The lists of layers of a model by name, those for images and sound aside."""
    return {
        name: part
        for name, part in model.named_modules()
        if isinstance(part, nn.ModuleList) and not re.search("vision|image|audio", name)
    }


def output_matrices(layer: nn.Module) -> list[str]:
    """Names of the MLP output matrices of a decoder layer, those of experts included, routers aside."""
    names = {without_wrappers(name) for name, _ in layer.named_modules()}
    names |= {without_wrappers(name) for name, parameter in layer.named_parameters() if parameter.ndim == 3}
    return sorted(name for name in names if _OUTPUTS.fullmatch(name) and ".gate." not in f".{name}")


def without_wrappers(name: str) -> str:
    """The name of a layer or weight before peft put adapters around it."""
    return name.replace(".base_layer", "")


def adapters_by_weight(model: nn.Module) -> dict[str, list[nn.Parameter]]:
    """The parameters of adapters, by the full name of the weight they belong to."""
    found: dict[str, list[nn.Parameter]] = {}
    for name, module in model.named_modules():
        if isinstance(getattr(module, "lora_A", None), nn.ModuleDict):
            weight = getattr(module, "parameter_name", "weight")
            found[f"{without_wrappers(name)}.{weight}"] = [
                parameter for name, parameter in module.named_parameters() if re.match(r"lora_[AB]\.", name)
            ]
    return found


def last_mlp(model: nn.Module) -> nn.Module | None:
    """The MLP of the last decoder layer, under the usual names."""
    layers = block_list(model)
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
        check_layer(index, stack)
        matrices, adapted = output_matrices(stack[index]), hasattr(model, "peft_config")
        if adapted:
            by_weight = adapters_by_weight(stack[index])
            of_output = [by_weight.get(name, by_weight.get(f"{name}.weight", [])) for name in matrices]
            found = [parameter for parameters in of_output for parameter in parameters if parameter.requires_grad]
        else:
            starts = tuple(f"{name}{end}" for name in matrices for end in (".", "_"))
            found = [
                p for name, p in stack[index].named_parameters() if f"{name}.".startswith(starts) and p.requires_grad
            ]
        if not found:
            names = ", ".join(matrices) or "mlp.down_proj"
            raise ValueError(
                f"decoder layer {index} of {type(model).__name__} has no trainable {names}, which this method trains"
                + (f" (put adapters on it: lora_targets={names.replace(', ', ',')})." if adapted else ".")
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
    check_layer(layer, layers)
    beside: tuple[Any, ...] | None = None

    def read(module: nn.Module, given: Any, output: Any) -> None:
        nonlocal beside
        several = isinstance(output, tuple | list)
        beside = tuple(output[1:]) if several else None
        into.append((output[0] if several else output).flatten(0, 1))

    def passes_on(*given: Any, **named: Any) -> Any:
        states = given[0] if given else named["hidden_states"]
        return states if beside is None else (states, *beside)

    with contextlib.ExitStack() as stack:
        stack.callback(layers[layer].register_forward_hook(read).remove)
        if stop:
            for later in list(layers)[layer + 1 :]:
                stack.enter_context(replaced_forward(later, passes_on))
        yield
    # Only here: where hooks run inside the checkpointed part, they see gradients switched off.
    if torch.is_grad_enabled() and any(not states.requires_grad for states in into):
        before = (parameter for part in layers[: layer + 1] for parameter in part.parameters())
        if any(parameter.requires_grad for parameter in before):
            raise RuntimeError(
                "reentrant gradient checkpointing hides the layer's gradient; "
                "use gradient_checkpointing_kwargs={'use_reentrant': False}."
            )


def check_layer(layer: int, layers: nn.ModuleList) -> None:
    """Refuse a layer that is not there.

    Raises:
        ValueError: naming those that are.
    """
    if not 0 <= layer < len(layers):
        raise ValueError(f"layer must be between 0 and {len(layers) - 1}, the layers of this model, got {layer}.")


@contextlib.contextmanager
def replaced_forward(layer: nn.Module, forward: Any) -> Iterator[None]:
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
