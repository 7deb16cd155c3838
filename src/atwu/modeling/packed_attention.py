"""Attention over rows laid end to end, so that no layer of the model computes on padding.

Every linear layer of the model sees one long row of real tokens; only inside attention are the rows put side by side
(padded, rows of similar length together) and attended to causally by PyTorch's fused kernel. It is registered with
transformers under `PACKED` and acts as plain `sdpa` for any call that brings no `packing`, so a model left in this mode
still generates as before.
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
"""Groups of similar length on the CPU, where less padding pays for more calls; one group elsewhere."""


@dataclass(frozen=True, slots=True, eq=False)
class PackedGroup:
    """Neighbouring rows that are put side by side together."""

    tokens: slice
    """Where their tokens are in the packed row."""
    rows: int
    width: int
    """Length of the longest of them."""
    slots: Tensor
    """Index `row * width + position` of each of their tokens."""


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """How to take a packed row apart."""

    groups: tuple[PackedGroup, ...]
    shared: int = 0
    """Tokens at the very beginning that every row begins with."""
    float32: bool = False
    """Attend in float32 whatever the model computes in: on a CPU that kernel's backward pass is faster, casts included."""

    @classmethod
    def of(cls, whole: RowLengths, device: torch.device) -> Packing:
        """Describe rows of these lengths, laid end to end in this order, behind what all begin with; best sorted."""
        shared, lengths = whole.shared, [length - whole.shared for length in whole.rows]
        count = min(_CPU_GROUPS if device.type == "cpu" else 1, len(lengths))
        ends = [round((part + 1) * len(lengths) / count) for part in range(count)]
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
    given, device = value.dtype, query.device.type
    cast = packing.float32 and (given == torch.bfloat16 or torch.is_autocast_enabled(device))
    if cast:
        query, key, value = query.float(), key.float(), value.float()
    outputs: list[Tensor] = []
    shared = packing.shared
    for group in packing.groups:
        q, k, v = (_side_by_side(states, group, shared) for states in (query, key, value))
        mask = _window_mask(shared + group.width, kwargs.get("sliding_window"), query.device)
        options = kwargs | {"is_causal": mask is None}
        with torch.autocast(device, enabled=False) if cast else contextlib.nullcontext():
            output, _ = sdpa_attention_forward(module, q, k, v, mask, **options)
        if shared and not outputs:
            outputs.append(output[0, :shared])  # the same in every row
        # (rows, width, heads, size) -> (tokens, heads, size)
        own = output[:, shared:].reshape(group.rows * group.width, *output.shape[2:])
        outputs.append(own.index_select(0, group.slots))
    return torch.cat(outputs).unsqueeze(0).to(given), None


def _side_by_side(states: Tensor, group: PackedGroup, shared: int) -> Tensor:
    """(1, heads, all tokens, size) -> (rows, heads, shared + width, size), zeros where a row has ended."""
    _, heads, _, size = states.shape
    grid = states.new_zeros(group.rows * group.width, heads, size)
    grid = grid.index_copy(0, group.slots, states[0, :, group.tokens].transpose(0, 1))
    grid = grid.view(group.rows, group.width, heads, size).transpose(1, 2)
    return torch.cat([states[:, :, :shared].expand(group.rows, -1, -1, -1), grid], dim=2) if shared else grid


def _window_mask(width: int, window: int | None, device: torch.device) -> Tensor | None:
    """True where a token may look, for layers with a sliding window shorter than the rows; None for all earlier tokens."""
    if not window or width <= window:
        return None
    distance = torch.arange(width, device=device)[:, None] - torch.arange(width, device=device)[None]
    return ((distance >= 0) & (distance < window))[None, None]


def register() -> None:
    """Make the attention function known to transformers (idempotent)."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(PACKED, packed_attention)
    AttentionMaskInterface.register(PACKED, sdpa_mask)


def no_mask(device: torch.device) -> Tensor:
    """A placeholder that keeps transformers from building a (tokens x tokens) mask: four-dimensional ones pass as is."""
    return torch.ones(1, 1, 1, 1, dtype=torch.bool, device=device)
