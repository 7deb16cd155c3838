"""Attention over rows laid end to end, so that no layer of the model computes on padding.

Every linear layer of the model sees one long row of real tokens; only inside attention are the rows put side by side
(padded) and attended to causally by PyTorch's fused kernel. It is registered with transformers under `PACKED` and acts as
plain `sdpa` for any call that brings no `packing`, so a model left in this mode still generates as before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

PACKED = "atwu_packed"


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """Where the tokens of a packed row sit when rows are side by side."""

    rows: int
    width: int
    """Length of the longest row."""
    slots: Tensor
    """Index `row * width + position` of every token, shape (tokens,)."""


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
    kwargs["is_causal"] = True
    q, k, v = (_side_by_side(states, packing) for states in (query, key, value))
    output, _ = sdpa_attention_forward(module, q, k, v, None, **kwargs)
    # (rows, width, heads, size) -> (1, tokens, heads, size)
    flat = output.reshape(packing.rows * packing.width, *output.shape[2:])
    return flat.index_select(0, packing.slots).unsqueeze(0), None


def _side_by_side(states: Tensor, packing: Packing) -> Tensor:
    """(1, heads, tokens, size) -> (rows, heads, width, size), zeros where a row has ended."""
    _, heads, _, size = states.shape
    grid = states.new_zeros(packing.rows * packing.width, heads, size)
    grid = grid.index_copy(0, packing.slots, states[0].transpose(0, 1))
    return grid.view(packing.rows, packing.width, heads, size).transpose(1, 2)


def register() -> None:
    """Make the attention function known to transformers (idempotent)."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(PACKED, packed_attention)
    AttentionMaskInterface.register(PACKED, sdpa_mask)


def no_mask(device: torch.device) -> Tensor:
    """A placeholder that keeps transformers from building a (tokens x tokens) mask: four-dimensional masks pass as is."""
    return torch.ones(1, 1, 1, 1, dtype=torch.bool, device=device)
