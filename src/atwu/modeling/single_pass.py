"""One forward pass over an arranged batch, by shortcuts that are each optional.

Which shortcuts leave a given model's numbers unchanged is for `abilities` to find out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from atwu.modeling.batches import Layout
from atwu.modeling.head import HeadOutputs, describe_head, output_layer, target_logps
from atwu.modeling.packed_attention import PACKED, Packing, no_mask


@dataclass(frozen=True, slots=True)
class Abilities:
    """Which shortcuts to take."""

    fused_head: bool = False
    """Log-probabilities straight from the hidden states, without logits."""
    last_mlp: bool = False
    """The last layer's MLP only where its result is used."""
    packed: bool = False
    """Rows end to end instead of side by side."""


def unwrap(model: nn.Module) -> nn.Module:
    """The model without its DDP, FSDP, compile or accelerate wrappers."""
    from accelerate.utils import extract_model_from_parallel

    inner: nn.Module = extract_model_from_parallel(model)
    return inner


def attention_of(inner: nn.Module) -> str | None:
    """Name of the attention function a model uses."""
    return getattr(getattr(inner, "config", None), "_attn_implementation", None)


def run_pass(
    model: nn.Module,
    arranged: Layout,
    abilities: Abilities,
    *,
    predictions: bool = False,
    entropy_temperature: float | None = None,
) -> tuple[Tensor, HeadOutputs]:
    """Run the model once.

    Returns:
        Final hidden states without gradient, shape (slots, hidden), valid at counted tokens and the ones before them; and
        the output layer's results for all counted tokens of all batches in order.
    """
    inner = unwrap(model)
    inputs: dict[str, Any] = {"input_ids": arranged.input_ids, "position_ids": arranged.position_ids}
    if arranged.attention_mask is not None:
        inputs["attention_mask"] = arranged.attention_mask
    elif attention_of(inner) == PACKED:
        inputs["attention_mask"] = no_mask(arranged.input_ids.device)
        inputs["packing"] = Packing.of(arranged.lengths, arranged.input_ids.device)
    predicting, targets = torch.cat(arranged.predicting), torch.cat(arranged.targets)
    options = {"predictions": predictions, "entropy_temperature": entropy_temperature}
    layer = output_layer(inner)
    if not abilities.fused_head or layer is None:
        return _with_logits(model, inputs, predicting, targets, **options)  # type: ignore[arg-type]
    config = inner.config
    caught: list[tuple[Tensor, HeadOutputs]] = []

    def instead_of_logits(states: Tensor) -> Tensor:
        flat = states.flatten(0, 1)
        out = target_logps(flat[predicting], describe_head(layer, config), targets, **options)  # type: ignore[arg-type]
        caught.append((flat.detach(), out))
        return out.logps[None, :, None]

    with contextlib.ExitStack() as stack:
        stack.enter_context(_replaced(layer, instead_of_logits))
        if abilities.last_mlp and not _recomputes(inner):
            mlp = last_mlp(inner)
            assert mlp is not None
            needed = torch.unique(torch.cat([predicting, *arranged.own]))
            stack.enter_context(_replaced(mlp, _only_at(needed, mlp.forward)))
        outputs = model(**inputs, use_cache=False)
    if len(caught) != 1:
        raise RuntimeError(f"the output layer of {type(inner).__name__} ran {len(caught)} times in one forward pass.")
    hidden, out = caught[0]
    if outputs.logits.numel() == out.logps.numel() and torch.equal(
        outputs.logits.detach().flatten(), out.logps.detach()
    ):
        # Through the model's own return value, so that wrappers which hook outputs see the gradient.
        out = HeadOutputs(outputs.logits.reshape(-1), out.predictions, out.entropy)
    return hidden, out


def _with_logits(
    model: nn.Module,
    inputs: dict[str, Any],
    predicting: Tensor,
    targets: Tensor,
    *,
    predictions: bool,
    entropy_temperature: float | None,
) -> tuple[Tensor, HeadOutputs]:
    """The same from the model's own logits, for any model that returns them."""
    has_config = hasattr(unwrap(model), "config")
    inputs = {key: value for key, value in inputs.items() if has_config or key != "position_ids"}
    outputs = model(**inputs, **({"output_hidden_states": True} if has_config else {}))
    logits = outputs.logits.flatten(0, 1)[predicting]
    logits = logits if logits.dtype == torch.float64 else logits.float()
    states = getattr(outputs, "hidden_states", None)
    hidden = states[-1].flatten(0, 1).detach() if states else logits.new_zeros(outputs.logits.shape[:2].numel(), 0)
    entropy = None
    if entropy_temperature is not None:
        with torch.no_grad():
            entropy = torch.distributions.Categorical(logits=logits / entropy_temperature).entropy()
    logps = logits.log_softmax(-1).gather(1, targets[:, None]).squeeze(1)
    return hidden, HeadOutputs(logps, logits.argmax(-1) if predictions else None, entropy)


def last_mlp(inner: nn.Module) -> nn.Module | None:
    """The MLP of the last decoder layer, under the usual names."""
    getter = getattr(inner, "get_decoder", None)
    decoder = getter() if getter is not None else None
    layers = getattr(decoder, "layers", None)
    if not isinstance(layers, nn.ModuleList) or not len(layers):
        return None
    mlp = getattr(layers[-1], "mlp", None)
    return mlp if isinstance(mlp, nn.Module) else None


def _recomputes(inner: nn.Module) -> bool:
    """Whether layers run again in the backward pass, when nothing is replaced any more."""
    return any(getattr(module, "gradient_checkpointing", False) for module in inner.modules())


def _only_at(needed: Tensor, forward: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Apply a per-token module at some tokens; zeros elsewhere."""

    def partial(states: Tensor) -> Tensor:
        flat = states.flatten(0, 1)
        some = forward(flat.index_select(0, needed)[None])[0]
        return torch.zeros_like(flat, dtype=some.dtype).index_copy(0, needed, some).view(states.shape)

    return partial


@contextlib.contextmanager
def _replaced(layer: nn.Module, forward: Any) -> Iterator[None]:
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
