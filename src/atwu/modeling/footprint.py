"""Memory needs of a model in training, computed without its weights by a forward pass of fake tensors."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from atwu.modeling.batches import RowLengths
from atwu.modeling.fast_paths import can_pack, switch_to_packing
from atwu.modeling.layers import block_list
from atwu.modeling.packed_attention import Packing, no_mask
from atwu.modeling.single_pass import unwrap

logger = logging.getLogger(__name__)

RULE = 17
"""Activations of a layer per token, in multiples of the hidden size (Korthikanti et al. 2022, with fused attention)."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """Memory of a model, and of the activations that one forward pass stores, in bytes."""

    parameters: int
    trained_parameters: int
    weights: int
    trained: int
    """Bytes of the weights with gradients."""
    layers_only: int
    """Bytes of the frozen linear layers in the decoder, which can be quantized."""
    embedding: int
    tied: bool
    """Whether the output layer shares its weights with the input embeddings."""
    kept: int
    """Activations of the whole pass, without the output layer."""
    of_layers: int
    """Activations inside decoder layers."""
    largest_layer: int
    """Activations of the largest decoder layer."""
    inputs: int
    """Inputs of all decoder layers, which are what activation checkpointing stores."""
    cache_per_token: int
    """Key-value cache per token in generation; 0 for a recurrent model, whose state has a fixed size."""


def footprint(
    model: nn.Module, lengths: RowLengths, *, autocast: torch.dtype | None = None, device: str = "cpu"
) -> Footprint:
    """Compute the memory needs of a model.

    Args:
        model: on the meta device, changed in place; trained parameters require gradients.
        lengths: tokens of each row of one forward pass.
        autocast: dtype of matrix products, if not that of the weights.

    If the pass depends on data, as in most mixtures of experts, activations are estimated by `RULE`.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    # Failures are reported by the exception.
    logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)
    with FakeTensorMode(), _LiveStorage() as live:
        _materialize(model.train())
        inner: Any = unwrap(model)
        plain = inner.get_base_model() if hasattr(inner, "peft_config") else inner
        parameters, blocks = list(model.parameters()), block_list(plain) or ()
        before, marks, inputs = live.bytes, list[int](), list[int]()

        def begins(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            marks.append(live.bytes)
            inputs.append((args[0] if args else kwargs["hidden_states"]).nbytes)

        with contextlib.ExitStack() as stack:
            for layer in blocks:
                stack.callback(layer.register_forward_pre_hook(begins, with_kwargs=True).remove)
                stack.callback(layer.register_forward_hook(lambda *_: marks.append(live.bytes)).remove)
            stack.enter_context(torch.autocast("cpu", autocast, enabled=autocast is not None))
            try:
                out = plain.get_decoder()(**_rows(plain, lengths, device), use_cache=False)
                kept = live.bytes - before
                del out
                layers = [after - start for start, after in zip(marks[::2], marks[1::2], strict=True)]
            except Exception as error:  # architectures fail in many ways on fake tensors
                logger.info("activations of %s are estimated by rule: %s", type(plain).__name__, error)
                shape = plain.config.get_text_config()
                tokens = sum(lengths.rows) * shape.hidden_size * parameters[0].element_size()
                inputs = [tokens] * shape.num_hidden_layers
                layers = [RULE * size for size in inputs]
                kept = sum(layers)
        head = plain.get_output_embeddings().weight
        linear = [each for layer in blocks for each in layer.modules() if isinstance(each, nn.Linear)]
        shape = plain.config.get_text_config()
        heads = getattr(shape, "num_key_value_heads", None) or getattr(shape, "num_attention_heads", None)
        width = (getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads) if heads else 0
        return Footprint(
            parameters=sum(parameter.numel() for parameter in parameters),
            trained_parameters=sum(parameter.numel() for parameter in parameters if parameter.requires_grad),
            weights=sum(parameter.nbytes for parameter in parameters),
            trained=sum(parameter.nbytes for parameter in parameters if parameter.requires_grad),
            layers_only=sum(each.weight.nbytes for each in linear if not each.weight.requires_grad),
            embedding=head.nbytes,
            tied=head is plain.get_input_embeddings().weight,
            kept=kept,
            of_layers=sum(layers),
            largest_layer=max(layers, default=0),
            inputs=sum(inputs),
            cache_per_token=2 * shape.num_hidden_layers * heads * width * head.element_size() if heads else 0,
        )


def _rows(model: nn.Module, lengths: RowLengths, kind: str) -> dict[str, Any]:
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


class _LiveStorage(torch.utils._python_dispatch.TorchDispatchMode):
    """Count the bytes of all live storages."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(out):
            if isinstance(tensor, Tensor):
                storage: Any = tensor.untyped_storage()
                key, size = storage._cdata, storage.nbytes()
                if key not in self._known:
                    self._known.add(key)
                    self.bytes += size
                    weakref.finalize(storage, self._remove, key, size)
        return out

    def _remove(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.bytes -= size


def _materialize(model: nn.Module) -> None:
    """Allocate every parameter and buffer in the current mode; shared tensors stay shared."""
    made: dict[int, Tensor] = {}
    for module in model.modules():
        held: tuple[dict[str, Any], ...] = (module._parameters, module._buffers)
        for tensors in held:
            for name, old in tensors.items():
                if old is None:
                    continue
                if id(old) not in made:
                    new = torch.empty(old.shape, dtype=old.dtype)
                    made[id(old)] = nn.Parameter(new, old.requires_grad) if isinstance(old, nn.Parameter) else new
                tensors[name] = made[id(old)]
