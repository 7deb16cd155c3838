"""Token batches in the transformers convention, the layout of their tokens in one forward pass, and attention over packed rows.

In a packed pass, linear layers process one long row of tokens without padding, in which what several rows begin with occurs
once. Only attention unpacks the rows (padded in groups of similar length) and calls PyTorch's fused causal kernel. The function
is registered with transformers as `PACKED`. Calls without `packing` act as plain `sdpa`, so generation works as before.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from atwu.data.schema import IGNORE_INDEX

PACKED = "atwu_packed"

_CPU_GROUPS = 4
"""Number of length groups on the CPU, at most: less padding outweighs more calls there. Other devices use one group."""


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Rows of token ids with explicit masks; every tensor has shape (batch, length)."""

    input_ids: Tensor
    attention_mask: Tensor
    """True on real tokens."""
    labels: Tensor
    """Token ids on counted tokens, IGNORE_INDEX elsewhere (not shifted)."""
    token_labels: Tensor | None = None
    """1 on labelled tokens, 0 elsewhere (not shifted); None without labels."""

    @classmethod
    def of(cls, batch: Mapping[str, Tensor] | TokenBatch, *, name: str = "batch") -> TokenBatch:
        """Check and convert a mapping with `input_ids`, `attention_mask`, `labels` (and optionally `token_labels`)."""
        if isinstance(batch, TokenBatch):
            return batch
        missing = [key for key in ("input_ids", "attention_mask", "labels") if key not in batch]
        if missing:
            raise ValueError(f"{name} lacks {', '.join(missing)}; it has {', '.join(sorted(batch)) or 'nothing'}.")
        shapes = {key: tuple(batch[key].shape) for key in ("input_ids", "attention_mask", "labels")}
        if len(set(shapes.values())) != 1 or len(shapes["input_ids"]) != 2:
            raise ValueError(
                f"{name}: input_ids, attention_mask and labels must share one (batch, length), got {shapes}."
            )
        return cls(batch["input_ids"], batch["attention_mask"].bool(), batch["labels"], batch.get("token_labels"))

    @property
    def mask(self) -> Tensor:
        """True on counted tokens, on the shifted axis: shape (batch, length - 1), entry j refers to token j + 1.

        A counted token needs a preceding token; the first token of a row is never counted.
        """
        counted = self.labels[:, 1:] != IGNORE_INDEX
        return counted & self.attention_mask[:, 1:] & self.attention_mask[:, :-1]


@dataclass(frozen=True, slots=True)
class Layout:
    """The tokens of several batches without padding, arranged as the input of one forward pass."""

    input_ids: Tensor
    """Shape (1, slots) when packed, (rows, width) when padded; an entry is a slot of the pass."""
    position_ids: Tensor
    """Same shape; the position of each token in its row."""
    attention_mask: Tensor | None
    """Same shape when padded, None when packed."""
    rows: tuple[Tensor, ...]
    """For each row of all batches, the slots of its tokens, in order. When packed, rows that begin alike share slots."""
    new: tuple[Tensor, ...]
    """For each row, True at the slots that no row laid out before it has; shape of its entry in `rows`."""
    predicting: tuple[Tensor, ...]
    """For each batch, index into the flattened hidden states of the state that predicts each counted token."""
    own: tuple[Tensor, ...]
    """For each batch, index of the state at each counted token."""
    targets: tuple[Tensor, ...]
    """For each batch, the id of each counted token; row-major order of the batch's mask."""


def lay_out(batches: Sequence[TokenBatch], *, packed: bool) -> Layout:
    """Arrange the tokens of all batches for one forward pass, without their padding.

    Packed rows that begin alike (with a system turn, or the same question) share the slots of these tokens, so that the model
    computes them once: with causal attention their states are equal in all rows.
    """
    # Arranged on the CPU: each of many small steps would wait for a GPU.
    device = batches[0].input_ids.device
    rows = [
        ids[mask]
        for batch in batches
        for ids, mask in zip(batch.input_ids.cpu(), batch.attention_mask.cpu(), strict=True)
    ]
    lengths = [len(row) for row in rows]
    if min(lengths) == 0:
        raise ValueError("a row has no token (its attention mask is all zero); remove it from the batch.")
    if packed:
        slots, new = _shared_slots([row.tolist() for row in rows])
        shape = (1, sum(int(counted.sum()) for counted in new))
    else:
        shape = (len(rows), max(lengths))
        slots = [torch.arange(length) + place * shape[1] for place, length in enumerate(lengths)]
        new = [torch.ones(length, dtype=torch.bool) for length in lengths]
    place = torch.cat(slots)  # a shared slot occurs several times, with the same token and position
    input_ids = torch.zeros(shape, dtype=torch.long)
    position_ids = torch.zeros(shape, dtype=torch.long)
    input_ids.view(-1)[place] = torch.cat(rows)
    position_ids.view(-1)[place] = torch.cat([torch.arange(length) for length in lengths])
    mask = None
    if not packed:
        mask = torch.zeros(shape, dtype=torch.long)
        mask.view(-1)[place] = 1
    own, predicting, targets = list[Tensor](), list[Tensor](), list[Tensor]()
    left = iter(slots)
    for batch in batches:
        grid = torch.zeros(batch.input_ids.shape, dtype=torch.long)
        grid[batch.attention_mask.cpu()] = torch.cat([next(left) for _ in batch.input_ids])
        counted = batch.mask.cpu()
        own.append(grid[:, 1:][counted].to(device))
        predicting.append(grid[:, :-1][counted].to(device))
        targets.append(batch.labels[:, 1:][batch.mask])
    return Layout(
        input_ids=input_ids.to(device),
        position_ids=position_ids.to(device),
        attention_mask=None if mask is None else mask.to(device),
        rows=tuple(slots),
        new=tuple(new),
        predicting=tuple(predicting),
        own=tuple(own),
        targets=tuple(targets),
    )


def _shared_slots(rows: Sequence[list[int]]) -> tuple[list[Tensor], list[Tensor]]:
    """Return the slots of each row, where equal beginnings have the same slots, and where they are `Layout.new`.

    Rows are laid out in the order of their token ids: then the longest beginning that a row shares with any earlier row is the
    one it shares with the last, and one comparison for each row is enough.
    """
    slots: list[Tensor] = [torch.empty(0)] * len(rows)
    new: list[Tensor] = [torch.empty(0)] * len(rows)
    last_row: list[int] = []
    last_slots = torch.empty(0, dtype=torch.long)
    used = 0
    for place in sorted(range(len(rows)), key=rows.__getitem__):
        row = rows[place]
        pairs = zip(last_row, row, strict=False)
        shared = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
        fresh = torch.arange(used, used + len(row) - shared)
        slots[place] = torch.cat([last_slots[:shared], fresh])
        new[place] = torch.arange(len(row)) >= shared
        last_row, last_slots, used = row, slots[place], used + len(fresh)
    return slots, new


# Attention over packed rows


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """Where attention finds the tokens of each row among the slots of a packed pass, and where its outputs go back.

    Rows are attended to in groups of similar length, each group as one padded batch of whole rows; a slot that several rows
    share is in the batch several times.
    """

    groups: tuple[Tensor, ...]
    """Slots of rows of similar length, padded with any slot, since causal attention never looks ahead; shape (rows, width)."""
    outputs: Tensor
    """For each slot, its index among the outputs of all groups; in a slot of several rows, that of its first row."""
    float32: bool = False
    """Whether attention computes in float32 whatever the model does; True on a CPU, where the backward pass of this kernel is
    faster then, casts included."""

    @classmethod
    def of(cls, rows: Sequence[Tensor], new: Sequence[Tensor], device: torch.device) -> Packing:
        """Describe rows by their slots, and by which of these are new (`Layout.new`)."""
        # Longest first: rows of a group are padded to its first one.
        order = sorted(range(len(rows)), key=lambda place: len(rows[place]), reverse=True)
        count = 1
        if device.type == "cpu":
            count = min(_CPU_GROUPS, len(rows))
        outputs = torch.empty(sum(int(counted.sum()) for counted in new), dtype=torch.long)
        groups, ends, done = list[Tensor](), [round((group + 1) * len(rows) / count) for group in range(count)], 0
        for first, end in itertools.pairwise((0, *ends)):
            grid = torch.zeros(end - first, len(rows[order[first]]), dtype=torch.long)
            for line, place in enumerate(order[first:end]):
                row, is_new = rows[place], new[place]
                grid[line, : len(row)] = row
                # Each slot gets one output, that of the first row that has it; equal beginnings have equal outputs.
                outputs[row[is_new]] = done + line * grid.shape[1] + is_new.nonzero().squeeze(1)
            groups.append(grid.to(device))
            done += grid.numel()
        return cls(tuple(groups), outputs.to(device), device.type == "cpu")


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    packing: Packing | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Causal attention within each packed row; the interface is that of transformers' attention functions."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if packing is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    dtype, device = value.dtype, query.device.type
    cast = packing.float32 and (dtype == torch.bfloat16 or torch.is_autocast_enabled(device))
    if cast:
        query, key, value = query.float(), key.float(), value.float()
    queries, keys, values = (_unpack(packing.groups, states) for states in (query, key, value))
    outputs = list[Tensor]()
    for one_query, one_key, one_value in zip(queries, keys, values, strict=True):
        mask = _window_mask(one_query.shape[2], kwargs.get("sliding_window"), query.device)
        # A window's mask is causal itself, and the kernel takes one of the two.
        options = kwargs | {"is_causal": mask is None}
        with torch.autocast(device, enabled=False) if cast else contextlib.nullcontext():
            output, _ = sdpa_attention_forward(module, one_query, one_key, one_value, mask, **options)
        # One line for each token of the group, padding included, as `Packing.outputs` counts them.
        outputs.append(output.flatten(0, 1).flatten(1))
    heads, size = query.shape[1], value.shape[-1]
    return _read(torch.cat(outputs), packing.outputs).view(1, -1, heads, size).to(dtype), None


def _unpack(groups: Sequence[Tensor], states: Tensor) -> list[Tensor]:
    """(1, heads, all slots, size) -> (rows, heads, width, size) for each group."""
    _, heads, _, size = states.shape
    slots = torch.cat([group.flatten() for group in groups])
    # One read for all groups, because the gradient of each has the size of all slots.
    rows = _read(states.squeeze(0).transpose(0, 1).flatten(1), slots)
    parts = rows.split([group.numel() for group in groups])
    return [part.view(*group.shape, heads, size).transpose(1, 2) for group, part in zip(groups, parts, strict=True)]


def _read(states: Tensor, slots: Tensor) -> Tensor:
    """Return the states of some slots; this function has a fast, deterministic backward pass where slots repeat."""
    rows: Tensor = torch.embedding(states, slots)
    return rows


def _window_mask(width: int, window: int | None, device: torch.device) -> Tensor | None:
    """Return the mask of a sliding window (True = visible); None if the window covers all earlier tokens."""
    if not window or width <= window:
        return None
    distance = torch.arange(width, device=device)[:, None] - torch.arange(width, device=device)[None]
    return ((distance >= 0) & (distance < window))[None, None]


def register() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    # Both under one name: transformers looks up the mask of a call by the name of its attention.
    AttentionInterface.register(PACKED, packed_attention)
    AttentionMaskInterface.register(PACKED, sdpa_mask)


def no_mask(device: torch.device) -> Tensor:
    """Return a placeholder mask: transformers passes 4-D masks on instead of building a (tokens x tokens) mask."""
    return torch.ones(1, 1, 1, 1, dtype=torch.bool, device=device)
