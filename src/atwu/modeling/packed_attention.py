"""Attention over packed rows, so that no layer of the model computes on padding.

Linear layers process one long row of tokens. Only attention unpacks the rows (padded in groups of similar length) and calls
PyTorch's fused causal kernel. The function is registered with transformers as `PACKED`. Calls without `packing` act as plain
`sdpa`, so generation works as before.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from atwu.modeling.batches import RowLengths

PACKED = "atwu_packed"

_CPU_GROUPS = 4
"""Number of length groups on the CPU, where less padding outweighs more calls; other devices use one group."""


@dataclass(frozen=True, slots=True, eq=False)
class PackedGroup:
    """Consecutive rows that are padded together."""

    tokens: slice
    """Position of their tokens in the packed row."""
    rows: int
    width: int
    """Length of the longest of them."""
    slots: Tensor
    """Index `row * width + position` of each of their tokens."""


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """Description of a packed row."""

    groups: tuple[PackedGroup, ...]
    shared: int = 0
    """Length of the common prefix of all rows, at the start of the packed row."""
    float32: bool = False
    """Compute attention in float32: on a CPU the backward pass of this kernel is faster, even with casts."""

    @classmethod
    def of(cls, row_lengths: RowLengths, device: torch.device) -> Packing:
        """Describe rows of these lengths, packed in this order after their common prefix; best sorted by length."""
        shared, lengths = row_lengths.shared, [length - row_lengths.shared for length in row_lengths.rows]
        count = min(_CPU_GROUPS if device.type == "cpu" else 1, len(lengths))
        ends = [round((group + 1) * len(lengths) / count) for group in range(count)]
        groups, first, start = [], 0, shared
        for end in ends:
            sizes = torch.tensor(lengths[first:end], device=device)
            rows, width, total = end - first, max(lengths[first:end]), sum(lengths[first:end])
            row = torch.repeat_interleave(torch.arange(rows, device=device), sizes, output_size=total)
            position = torch.arange(total, device=device) - (torch.cumsum(sizes, 0) - sizes)[row]
            groups.append(PackedGroup(slice(start, start + total), rows, width, row * width + position))
            first, start = end, start + total
        return cls(tuple(groups), shared, device.type == "cpu")


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
    outputs: list[Tensor] = []
    shared = packing.shared
    for group in packing.groups:
        q, k, v = (_padded(states, group, shared) for states in (query, key, value))
        mask = _window_mask(shared + group.width, kwargs.get("sliding_window"), query.device)
        options = kwargs | {"is_causal": mask is None}
        with torch.autocast(device, enabled=False) if cast else contextlib.nullcontext():
            output, _ = sdpa_attention_forward(module, q, k, v, mask, **options)
        if shared and not outputs:
            outputs.append(output[0, :shared])  # the same in every row
        # (rows, width, heads, size) -> (tokens, heads, size)
        own = output[:, shared:].reshape(group.rows * group.width, *output.shape[2:])
        outputs.append(own.index_select(0, group.slots))
    return torch.cat(outputs).unsqueeze(0).to(dtype), None


def _padded(states: Tensor, group: PackedGroup, shared: int) -> Tensor:
    """(1, heads, all tokens, size) -> (rows, heads, shared + width, size), zero-padded."""
    _, heads, _, size = states.shape
    grid = states.new_zeros(group.rows * group.width, heads, size)
    grid = grid.index_copy(0, group.slots, states[0, :, group.tokens].transpose(0, 1))
    grid = grid.view(group.rows, group.width, heads, size).transpose(1, 2)
    return torch.cat([states[:, :, :shared].expand(group.rows, -1, -1, -1), grid], dim=2) if shared else grid


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
