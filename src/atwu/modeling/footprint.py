"""How much memory a model takes in training, found without its weights: one forward pass of tensors that hold no data."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from atwu.modeling.batches import RowLengths
from atwu.modeling.fast_paths import can_pack, switch_to_packing
from atwu.modeling.layers import decoder_layers
from atwu.modeling.packed_attention import Packing, no_mask
from atwu.modeling.single_pass import unwrap

logger = logging.getLogger(__name__)

RULE = 17
"""Numbers that a layer keeps of each token, in widths of the model (Korthikanti et al. 2022, with fused attention)."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes of a model in memory, and of what one forward pass keeps for the backward pass."""

    parameters: int
    """Their number."""
    trained_parameters: int
    """Number of those that get gradients."""
    weights: int
    trained: int
    """Of the weights: those that get gradients."""
    layers_only: int
    """Of the weights: matrices of frozen linear layers inside the decoder, which may be stored in fewer bits."""
    embedding: int
    """Of the weights: the output layer's matrix."""
    tied: bool
    """Whether that is the input embedding's too."""
    kept: int
    """Activations of the whole pass, the output layer's apart."""
    of_layers: int
    """Of these: inside decoder layers."""
    largest_layer: int
    inputs: int
    """What remains of all layers where each is computed again in the backward pass: its input."""
    cache_per_token: int
    """Keys and values that generating keeps of each token."""


def footprint(
    model: nn.Module, lengths: RowLengths, *, autocast: torch.dtype | None = None, device: str = "cpu"
) -> Footprint:
    """Count what a model takes.

    Args:
        model: on the meta device, changed in place; what is to be trained requires gradients.
        lengths: tokens of each row of one forward pass.
        autocast: dtype that matrix products run in, if not the weights'.
        device: the kind of device that the model is to run on.

    Where the pass depends on its data, as in most mixtures of experts, activations are those of the rule.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)  # what fails is told by the error

    with FakeTensorMode(), _Held() as held:
        _materialise(model.train())
        inner: Any = unwrap(model)
        plain = inner.get_base_model() if hasattr(inner, "peft_config") else inner
        parameters = list(model.parameters())
        before, marks, inputs = held.bytes, list[int](), list[int]()

        def begins(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            marks.append(held.bytes)
            inputs.append((args[0] if args else kwargs["hidden_states"]).nbytes)

        with contextlib.ExitStack() as stack:
            for layer in _layers(plain):
                stack.callback(layer.register_forward_pre_hook(begins, with_kwargs=True).remove)
                stack.callback(layer.register_forward_hook(lambda *_: marks.append(held.bytes)).remove)
            stack.enter_context(torch.autocast("cpu", autocast, enabled=autocast is not None))
            try:
                out = plain.get_decoder()(**_rows(plain, lengths, device), use_cache=False)
                kept = held.bytes - before
                del out
                layers = [after - start for start, after in zip(marks[::2], marks[1::2], strict=True)]
            except Exception as error:  # whatever an architecture does with values that are not there
                logger.info("activations of %s are estimated by rule: %s", type(plain).__name__, error)
                shape = plain.config.get_text_config()
                inputs = [
                    sum(lengths.rows) * shape.hidden_size * parameters[0].element_size()
                ] * shape.num_hidden_layers
                layers = [RULE * size for size in inputs]
                kept = sum(layers)
        head = plain.get_output_embeddings().weight
        return Footprint(
            parameters=sum(parameter.numel() for parameter in parameters),
            trained_parameters=sum(parameter.numel() for parameter in parameters if parameter.requires_grad),
            weights=sum(parameter.nbytes for parameter in parameters),
            trained=sum(parameter.nbytes for parameter in parameters if parameter.requires_grad),
            layers_only=sum(weight.nbytes for weight in _frozen_matrices(plain)),
            embedding=head.nbytes,
            tied=head is plain.get_input_embeddings().weight,
            kept=kept,
            of_layers=sum(layers),
            largest_layer=max(layers, default=0),
            inputs=sum(inputs),
            cache_per_token=_cache_per_token(plain, head.element_size()),
        )


def _rows(model: nn.Module, lengths: RowLengths, kind: str) -> dict[str, Any]:
    """Rows of these lengths as a forward pass lays them out for this model on a kind of device."""
    lengths = RowLengths(tuple(sorted(lengths.rows, reverse=True)), lengths.shared)
    if not can_pack(model):
        return {"input_ids": torch.zeros(len(lengths.rows), lengths.rows[0], dtype=torch.long)}
    switch_to_packing(model)
    device = torch.device("cpu")
    return {
        "input_ids": torch.zeros(1, lengths.tokens, dtype=torch.long),
        "position_ids": torch.arange(lengths.tokens)[None],
        "attention_mask": no_mask(device),
        "packing": dataclasses.replace(Packing.of(lengths, device), float32=kind == "cpu"),
    }


class _Held(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts the bytes of all storages that are alive."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(out):
            if isinstance(tensor, Tensor):
                self._add(tensor.untyped_storage())
        return out

    def _add(self, storage: Any) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key not in self._known:
            self._known.add(key)
            self.bytes += size
            weakref.finalize(storage, self._remove, key, size)

    def _remove(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.bytes -= size


def _materialise(model: nn.Module) -> None:
    """Give every parameter and buffer storage, of a kind that the current mode makes; shared ones stay shared."""
    made: dict[int, Tensor] = {}
    for module in model.modules():
        for held in (module._parameters, module._buffers):
            for name, old in held.items():
                if old is None:
                    continue
                if id(old) not in made:
                    new = torch.empty(old.shape, dtype=old.dtype)
                    made[id(old)] = nn.Parameter(new, old.requires_grad) if isinstance(old, nn.Parameter) else new
                held[name] = made[id(old)]  # type: ignore[assignment]


def _layers(model: nn.Module) -> Iterable[nn.Module]:
    try:
        return decoder_layers(model)
    except ValueError:  # under other names: they cannot be computed again one by one, and count as a whole
        return ()


def _frozen_matrices(model: nn.Module) -> Iterator[Tensor]:
    for layer in _layers(model):
        for module in layer.modules():
            if isinstance(module, nn.Linear) and not module.weight.requires_grad:
                yield module.weight


def _cache_per_token(model: Any, element: int) -> int:
    shape = model.config.get_text_config()
    if not (heads := getattr(shape, "num_key_value_heads", None) or getattr(shape, "num_attention_heads", None)):
        return 0  # it keeps a state of fixed size
    width = getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads
    return int(2 * shape.num_hidden_layers * heads * width * element)
