"""Attention over packed rows, so that no layer of the model computes on padding.

Linear layers process one long row of tokens, in which what several rows begin with occurs once. Only attention unpacks the rows
(padded in groups of similar length) and calls PyTorch's fused causal kernel. The function is registered with transformers as
`PACKED`. Calls without `packing` act as plain `sdpa`, so generation works as before.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

PACKED = "atwu_packed"

_CPU_GROUPS = 4
"""Number of length groups on the CPU, where less padding outweighs more calls; other devices use one group."""


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """Where attention finds the tokens of each row, in a packed row of slots."""

    groups: tuple[Tensor, ...]
    """Slots of rows of similar length, padded with any slot; shape (rows, width)."""
    outputs: Tensor
    """For each slot, its index among the outputs of all groups; in a slot of several rows, that of its first row."""
    float32: bool = False
    """Compute attention in float32: on a CPU the backward pass of this kernel is faster, even with casts."""

    @classmethod
    def of(cls, rows: Sequence[Tensor], owned: Sequence[Tensor], device: torch.device) -> Packing:
        """Describe rows by their slots, and by which of them each row is the first to have (`Layout`)."""
        # Longest first: rows of a group are padded to its first one.
        order = sorted(range(len(rows)), key=lambda place: len(rows[place]), reverse=True)
        count = min(_CPU_GROUPS if device.type == "cpu" else 1, len(rows))
        outputs = torch.empty(sum(int(counted.sum()) for counted in owned), dtype=torch.long)
        groups, ends, done = list[Tensor](), [round((group + 1) * len(rows) / count) for group in range(count)], 0
        for first, end in itertools.pairwise((0, *ends)):
            grid = torch.zeros(end - first, len(rows[order[first]]), dtype=torch.long)
            for line, place in enumerate(order[first:end]):
                row, new = rows[place], owned[place]
                grid[line, : len(row)] = row
                outputs[row[new]] = done + line * grid.shape[1] + new.nonzero().squeeze(1)
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
    queries, keys, values = (_unpacked(packing.groups, states) for states in (query, key, value))
    outputs = list[Tensor]()
    for one_query, one_key, one_value in zip(queries, keys, values, strict=True):
        mask = _window_mask(one_query.shape[2], kwargs.get("sliding_window"), query.device)
        options = kwargs | {
            "is_causal": mask is None
        }  # a window's mask is causal itself; the kernel takes one of the two
        with torch.autocast(device, enabled=False) if cast else contextlib.nullcontext():
            output, _ = sdpa_attention_forward(module, one_query, one_key, one_value, mask, **options)
        outputs.append(output.flatten(0, 1).flatten(1))
    heads, size = query.shape[1], value.shape[-1]
    return _read(torch.cat(outputs), packing.outputs).view(1, -1, heads, size).to(dtype), None


def _unpacked(groups: Sequence[Tensor], states: Tensor) -> list[Tensor]:
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

    AttentionInterface.register(PACKED, packed_attention)
    AttentionMaskInterface.register(PACKED, sdpa_mask)


def no_mask(device: torch.device) -> Tensor:
    """Return a placeholder mask: transformers passes 4-D masks on instead of building a (tokens x tokens) mask."""
    return torch.ones(1, 1, 1, 1, dtype=torch.bool, device=device)
