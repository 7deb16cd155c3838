"""Outputs of the original model for losses that need it: of all rows before training, or of one micro-batch.

`atwu.training.precompute` chooses between the two. Distributions are stored as the final hidden states that predict
each token. With a copy of the output layer they give the exact distribution, at `hidden` instead of `vocabulary` numbers per
token.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from atwu._progress import progress_bar
from atwu.data.encode import EncodedRow
from atwu.data.pairing import collate_rows, length_batches
from atwu.data.schema import IGNORE_INDEX
from atwu.modeling.batches import TokenBatch, lay_out
from atwu.modeling.distribution_distance import Teacher
from atwu.modeling.forward import TokenOutputs, forward_tokens
from atwu.modeling.head import OutputHead, describe_head, output_layer
from atwu.modeling.layers import decoder_layers, eval_mode, unwrap
from atwu.modeling.single_pass import fast_path_support


@dataclass(frozen=True, slots=True)
class ReferenceSpec:
    """Which quantities of the original model are needed for one set of rows."""

    logps: bool = False
    states: bool = False
    """Final hidden states that predict each counted token."""
    layer: int | None = None
    """Output of this decoder layer at each counted token."""
    attention_temperature: float = 1.0
    """Divisor of attention scores; other than 1, the model is a teacher that recalls less."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Outputs of the original model on one micro-batch, by set of rows: `forget`, `retain`, `alternate`, or behind a
    prompt `expert` and `novice`.

    Tensors hold the counted tokens in row-major order of the mask.
    """

    logps: Mapping[str, Tensor] = dataclasses.field(default_factory=dict)
    """(tokens,)"""
    teachers: Mapping[str, Teacher] = dataclasses.field(default_factory=dict)
    layers: Mapping[str, Tensor] = dataclasses.field(default_factory=dict)
    """Output of one decoder layer, (tokens, hidden)."""

    def teacher(self, *rows: str) -> Teacher:
        """Return the teacher of a set of rows; several, with the same counted tokens, are stacked: (tokens, sets, ...)."""
        teachers = [self.teachers[name] for name in rows]
        if len(teachers) == 1:
            return teachers[0]
        return Teacher(torch.stack([teacher.states for teacher in teachers], dim=1), teachers[0].head)


class TokenTable:
    """Values per counted token of a set of rows, accessed by row.

    Args:
        values: values of all rows, concatenated, shape (tokens, ...).
    """

    def __init__(self, values: Tensor, lengths: Sequence[int]) -> None:
        self.values = values
        self._ends = array("q", itertools.accumulate(lengths, initial=0))

    def rows(self, indices: Sequence[int] | Tensor) -> Tensor:
        listed = indices.tolist() if isinstance(indices, Tensor) else indices
        if not listed:
            return self.values[:0]
        places = (range(len(self))[index] for index in listed)
        return torch.cat([self.values[self._ends[place] : self._ends[place + 1]] for place in places])

    def __len__(self) -> int:
        return len(self._ends) - 1


def counted_tokens(row: EncodedRow) -> int:
    """Return the number of tokens of a row with loss; the first token never has one."""
    return sum(label != IGNORE_INDEX for label in row.labels[1:])


def plain_head(model: nn.Module) -> OutputHead | None:
    """Return the output layer if distributions can be computed from hidden states, otherwise None."""
    inner = unwrap(model)
    layer = output_layer(inner)
    usable = layer is not None and fast_path_support(model, next(inner.parameters()).device).fused_head
    if usable and layer is not None:
        return describe_head(layer, inner.config)
    return None


@contextlib.contextmanager
def attention_temperature(model: nn.Module, temperature: float) -> Iterator[None]:
    """Divide the attention scores of all decoder layers by a temperature, which weakens what a model recalls from its context
    (ASU, arXiv 2603.01285).

    Attention modules of transformers multiply scores by their attribute `scaling`.
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


@torch.no_grad()
def compute_reference(
    model: nn.Module,
    rows: Sequence[EncodedRow],
    spec: ReferenceSpec,
    *,
    batch_tokens: int = 8192,
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
    progress: str | None = None,
) -> dict[str, Tensor]:
    """Compute the outputs of the original model on a set of rows.

    Args:
        model: the original model; its train/eval mode is restored.

    Returns:
        `logps` (tokens,), `states` and `layer` (tokens, hidden) as requested, on the CPU, rows in the given order.
    """
    device = next(model.parameters()).device
    starts = torch.tensor([0, *(counted_tokens(row) for row in rows)]).cumsum(0).tolist()
    tables: dict[str, Tensor] = {}
    with (
        eval_mode(model),
        attention_temperature(model, spec.attention_temperature),
        progress_bar(total=len(rows), desc=progress, unit="row", shown=progress is not None, leave=False) as bar,
    ):
        for batch in length_batches([len(row.input_ids) for row in rows], batch_tokens):
            # Nothing here reads labels.
            plain = [dataclasses.replace(rows[index], token_labels=None) for index in batch]
            tensors = {name: tensor.to(device) for name, tensor in collate_rows(plain).items()}
            with autocast():
                (out,) = forward_tokens(model, [tensors], layer=spec.layer, stop=not (spec.logps or spec.states))
            outputs = {}
            if spec.logps:
                outputs["logps"] = out.logps[out.mask]
            if spec.states:
                outputs["states"] = out.hidden("pred")
            if out.layer_states is not None:
                outputs["layer"] = out.layer_states
            lengths = out.mask.sum(1).tolist()
            for name, output in outputs.items():
                if name not in tables:
                    tables[name] = torch.empty(starts[-1], *output.shape[1:], dtype=output.dtype)
                for index, piece in zip(batch, output.cpu().split(lengths), strict=True):
                    tables[name][starts[index] : starts[index + 1]] = piece
            bar.update(len(batch))
    return tables


@torch.no_grad()
def reference_of_batch(
    model: nn.Module, batches: Mapping[str, TokenBatch], specs: Mapping[str, ReferenceSpec]
) -> Reference:
    """Compute the reference of one micro-batch with a model (a frozen copy, or the trained one with adapters disabled).

    Args:
        batches: the `forget`, `retain` and `alternate` batches that `specs` needs.
    """
    layer = next((spec.layer for spec in specs.values() if spec.layer is not None), None)
    deep = any(spec.logps or spec.states for spec in specs.values())
    outputs: dict[str, TokenOutputs] = {}
    teachers: dict[str, Teacher] = {}
    # A pass for each temperature: it is set on the whole model.
    for temperature in dict.fromkeys(spec.attention_temperature for spec in specs.values()):
        names = [name for name, spec in specs.items() if spec.attention_temperature == temperature]
        with eval_mode(model), attention_temperature(model, temperature):
            outs = forward_tokens(model, [batches[name] for name in names], layer=layer, stop=not deep)
            outputs |= zip(names, outs, strict=True)
            head = plain_head(model)
            for name in names:
                if not specs[name].states:
                    continue
                if head is not None:
                    teachers[name] = Teacher(outputs[name].hidden("pred"), head)
                    continue
                # Without a plain output layer the distribution comes from the model's own logits.
                arranged = lay_out([batches[name]], packed=False)
                logits = model(input_ids=arranged.input_ids, attention_mask=arranged.attention_mask).logits
                teachers[name] = Teacher(logits.flatten(0, 1)[arranged.predicting[0]], None)
    logps = {name: out.logps[out.mask] for name, out in outputs.items() if specs[name].logps}
    states = {name: out.layer_states for name, out in outputs.items() if specs[name].layer is not None}
    return Reference(logps, teachers, {name: layer for name, layer in states.items() if layer is not None})
