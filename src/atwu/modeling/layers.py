"""Parts of a model, and contexts that change its mode, its weights or a part of it and restore them.

Parts are the model within its wrappers, its decoder layers, the output of one, and those that are trained.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

# Llama and most others, GPT-NeoX and Bloom, OPT and Phi, GPT-J, ..., GPT-2 (mlp.c_proj), BERT (output.dense).
_OUTPUTS = re.compile(
    r"(.*\.)?(down_proj|dense_4h_to_h|fc2|fc_out|proj_down|w_out|mlp\.c_proj|ffn\.2|mlp\.Wo|mlp\.output_linear|feed_forward\.(w2|output|value))"
    r"(\.linear)?|output\.dense"
)
"""Names of MLP output matrices within a decoder layer."""


def unwrap(model: nn.Module) -> nn.Module:
    """Return the model without DDP, FSDP, compile or accelerate wrappers."""
    if isinstance(model, PreTrainedModel) and not hasattr(model, "_orig_mod"):
        return model  # called several times per step, and the search for wrappers visits every module
    from accelerate.utils import extract_model_from_parallel

    inner: nn.Module = extract_model_from_parallel(model)
    return inner


def text_config(model: nn.Module) -> Any:
    whole: Any = model.config
    return whole.get_text_config()


def decoder_layers(model: nn.Module) -> nn.ModuleList:
    layers = block_list(model)
    if layers is None:
        raise ValueError(f"{type(model).__name__} has no identifiable list of decoder layers, which this method needs.")
    return layers


def block_list(model: nn.Module) -> nn.ModuleList | None:
    """Return the list of decoder layers: `layers` of the decoder, otherwise the only list with `num_hidden_layers` entries."""
    # Most classes of transformers name it so; GPT-2 has `h`, others `blocks`, and the rest is found by its length.
    getter = getattr(model, "get_decoder", None)
    decoder = None
    if getter is not None:
        decoder = getter()
    layers = getattr(decoder, "layers", None)
    if isinstance(layers, nn.ModuleList) and len(layers):
        return layers
    config: Any = getattr(model, "config", None)
    if config is None:
        return None
    depth = getattr(config.get_text_config(), "num_hidden_layers", None)
    for part in (decoder, model):
        if part is None:
            continue
        fitting = [blocks for blocks in text_lists(part).values() if len(blocks) == depth]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:  # a model with several stacks of this depth does not say which one decodes
            return None
    return None


def text_lists(model: nn.Module) -> dict[str, nn.ModuleList]:
    """Return the lists of layers of a model by name, except those for images and audio."""
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and not re.search("vision|image|audio", name)
    }


def output_matrices(layer: nn.Module) -> list[str]:
    """Return the names of the MLP output matrices of a decoder layer, including experts, without routers."""
    names = {without_wrappers(name) for name, _ in layer.named_modules()}
    names |= {without_wrappers(name) for name, parameter in layer.named_parameters() if parameter.ndim == 3}
    return sorted(name for name in names if _OUTPUTS.fullmatch(name) and ".gate." not in f".{name}")


def without_wrappers(name: str) -> str:
    """Return the name of a layer or weight without peft's wrappers."""
    return name.replace(".base_layer", "")


def adapters_by_weight(model: nn.Module) -> dict[str, list[nn.Parameter]]:
    """Return the parameters of adapters by full name of the adapted weight."""
    adapters: dict[str, list[nn.Parameter]] = {}
    for name, module in model.named_modules():
        if isinstance(getattr(module, "lora_A", None), nn.ModuleDict):
            weight = getattr(module, "parameter_name", "weight")
            adapters[f"{without_wrappers(name)}.{weight}"] = [
                parameter for name, parameter in module.named_parameters() if re.match(r"lora_[AB]\.", name)
            ]
    return adapters


def last_mlp(model: nn.Module) -> nn.Module | None:
    """Return the MLP of the last decoder layer, or None if it is not named `mlp`."""
    layers = block_list(model)
    if layers is None:
        return None
    mlp = getattr(layers[-1], "mlp", None)
    if isinstance(mlp, nn.Module):
        return mlp
    return None


def train_only_down_projections(model: nn.Module, layers: Iterable[int]) -> None:
    """Freeze everything but the MLP output matrices of some decoder layers (RMU trains those: Li et al. 2024).

    With adapters, only those on the MLP outputs of these layers stay trainable.
    """
    stack = decoder_layers(model)
    trainable: set[int] = set()
    for index in layers:
        check_layer(index, stack)
        matrices, adapted = output_matrices(stack[index]), hasattr(model, "peft_config")
        if adapted:
            by_weight = adapters_by_weight(stack[index])
            of_output = [by_weight.get(name, by_weight.get(f"{name}.weight", [])) for name in matrices]
            trained = [parameter for parameters in of_output for parameter in parameters if parameter.requires_grad]
        else:
            # Stacked experts have `down_proj` and `down_proj_bias`, a layer `down_proj.weight`.
            starts = tuple(f"{name}{end}" for name in matrices for end in (".", "_"))
            trained = [
                parameter
                for name, parameter in stack[index].named_parameters()
                if f"{name}.".startswith(starts) and parameter.requires_grad
            ]
        if not trained:
            names = ", ".join(matrices) or "mlp.down_proj"
            raise ValueError(
                f"decoder layer {index} of {type(model).__name__} has no trainable {names}, which this method trains"
                + (f" (adapt it with lora_targets={names.replace(', ', ',')})." if adapted else ".")
            )
        trainable |= {id(parameter) for parameter in trained}
    for parameter in model.parameters():
        parameter.requires_grad_(id(parameter) in trainable)


# Contexts that change a model and restore it


@contextlib.contextmanager
def tap(model: nn.Module, layer: int, into: list[Tensor], *, stop: bool) -> Iterator[None]:
    """Append the output of decoder layer `layer` (from 0), flattened to (slots, hidden), to a list in forward passes.

    Args:
        stop: let later layers return their input unchanged, since their output is not needed.
    """
    layers = decoder_layers(model)
    check_layer(layer, layers)
    other_outputs: tuple[Any, ...] | None = None

    def read(module: nn.Module, args: Any, output: Any) -> None:
        nonlocal other_outputs
        other_outputs = None
        if isinstance(output, tuple | list):  # some layers return attention weights or a router's logits, too
            output, *others = output
            other_outputs = tuple(others)
        into.append(output.flatten(0, 1))

    def pass_on(*args: Any, **kwargs: Any) -> Any:
        states = args[0] if args else kwargs["hidden_states"]
        if other_outputs is None:
            return states
        return (states, *other_outputs)

    with contextlib.ExitStack() as stack:
        stack.callback(layers[layer].register_forward_hook(read).remove)
        if stop:
            for later in list(layers)[layer + 1 :]:
                stack.enter_context(replaced_forward(later, pass_on))
        yield
    # Checked here, since hooks inside a checkpointed region run with gradients disabled.
    if torch.is_grad_enabled() and any(not states.requires_grad for states in into):
        before = (parameter for part in layers[: layer + 1] for parameter in part.parameters())
        if any(parameter.requires_grad for parameter in before):
            raise RuntimeError(
                "reentrant gradient checkpointing removes the gradient of the layer; "
                "use gradient_checkpointing_kwargs={'use_reentrant': False}."
            )


def check_layer(layer: int, layers: nn.ModuleList) -> None:
    if not 0 <= layer < len(layers):
        raise ValueError(f"layer must be between 0 and {len(layers) - 1} for this model, got {layer}.")


@contextlib.contextmanager
def replaced_forward(layer: nn.Module, forward: Any) -> Iterator[None]:
    """Replace the forward function of a module within a context; its hooks still run."""
    before = layer.__dict__.get("forward")
    layer.forward = forward
    try:
        yield
    finally:
        if before is None:
            del layer.forward
        else:
            layer.forward = before


@contextlib.contextmanager
def restored_modes(model: nn.Module) -> Iterator[None]:
    """Restore the train/eval mode of every module on exit, also after an error."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextlib.contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    with restored_modes(model):
        model.eval()
        yield


@contextlib.contextmanager
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
        tensor.grad = None  # gradients inside would be added to those of the caller
    try:
        with restored_modes(model):
            yield
    finally:
        with torch.no_grad():
            for tensor, copy, requires_grad, grad in kept:
                tensor.copy_(copy)
                tensor.requires_grad_(requires_grad)
                tensor.grad = grad


@contextlib.contextmanager
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


@contextlib.contextmanager
def full_precision(model: nn.Module) -> Iterator[None]:
    """Remove the trainer's mixed-precision wrapper within a context, so that the model computes as saved."""
    from accelerate.utils import extract_model_from_parallel

    # accelerate puts a `forward` of its own on the object and keeps the model's beside it.
    wrapped = {name: value for name, value in vars(model).items() if name in ("forward", "_original_forward")}
    extract_model_from_parallel(model, keep_fp32_wrapper=False)
    try:
        yield
    finally:
        vars(model).update(wrapped)
