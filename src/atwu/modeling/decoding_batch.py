"""Rows that are decoded together: their tokens, and a key-value cache from which finished rows can be taken out."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from atwu.data.schema import IGNORE_INDEX
from atwu.modeling.batches import TokenBatch, lay_out
from atwu.modeling.fast_paths import can_pack, fast_path_support
from atwu.modeling.layers import unwrap
from atwu.modeling.packed_attention import Packing, no_mask

_ROOM = 32
"""Tokens for which the cache has room whenever it is copied."""


@dataclass(slots=True)
class DecodingBatch:
    """Rows that are continued together."""

    rows: list[int]
    """Index of the prompt of each row."""
    ids: Tensor
    """Prompts and what was generated, padded anywhere before the last token; shape (rows, width)."""
    mask: Tensor
    """1 on tokens, 0 on padding; same shape."""
    cache: DynamicCache | None
    """States of all tokens before the last one, or none before the first pass; None if rows cannot be taken out."""
    joins: bool
    """Whether the batch can be joined with others, which displaces padding."""


def padding_token(last: Collection[int]) -> int:
    """Return a token to pad with. Any works, since masks are explicit; but one that ends a prompt would be taken for padding on
    the wrong side."""
    return next(token for token in itertools.count() if token not in last)


def begin_batch(
    model: PreTrainedModel, prompts: Sequence[Sequence[int]], rows: list[int], longest: int
) -> DecodingBatch:
    """Return a batch of prompts, padded at the beginning; if the model can pack rows, with the states of all but their last
    token, of which those that several prompts begin with are computed once.

    Args:
        rows: number of each prompt.
        longest: most tokens that are generated.
    """
    inner = _inside(model)
    learned_prompt = getattr(getattr(model, "active_peft_config", None), "is_prompt_learning", False)
    width = max(map(len, prompts))
    ids = torch.full((len(prompts), width), padding_token({prompt[-1] for prompt in prompts}), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for place, prompt in enumerate(prompts):
        ids[place, width - len(prompt) :] = torch.as_tensor(prompt, dtype=torch.long)
        mask[place, width - len(prompt) :] = 1
    ids, mask = ids.to(model.device), mask.to(model.device)
    cache: Any = None
    plain = False
    if len(prompts) > 1 and not learned_prompt and can_pack(inner):
        cache = DynamicCache(config=model.config)
        windows = [layer.sliding_window for layer in cache.layers if type(layer) is DynamicSlidingWindowLayer]
        plain = width + longest <= min(windows, default=math.inf)  # else padding displaces tokens
        if not {type(layer) for layer in cache.layers} <= {DynamicLayer, DynamicSlidingWindowLayer}:
            cache, plain = None, False
    if plain:
        cache.layers = [_RoomyLayer() for _ in cache.layers]
        if min(map(len, prompts)) > 1 and fast_path_support(inner, ids.device).packed:
            begun = TokenBatch(ids[:, :-1], mask[:, :-1].bool(), torch.full_like(ids[:, :-1], IGNORE_INDEX))
            for layer, (keys, values) in zip(cache.layers, _states(inner, begun), strict=True):
                layer.update(keys, values)
    return DecodingBatch(rows, ids, mask, cache, plain)


@torch.no_grad()
def _states(model: Any, batch: TokenBatch) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield keys and values of every layer, (rows, heads, width, size), with any numbers at padding."""
    arranged, device = lay_out([batch], packed=True), batch.input_ids.device
    packed = DynamicCache()
    model.base_model(
        input_ids=arranged.input_ids,
        position_ids=arranged.position_ids,
        attention_mask=no_mask(device),
        packing=Packing.of(arranged.rows, arranged.owned, device),
        use_cache=True,
        **cache_argument(model, packed),
    )
    slots = torch.zeros_like(batch.input_ids)
    slots[batch.attention_mask] = torch.cat(arranged.rows).to(device)
    layers: list[Any] = packed.layers
    for layer in layers:
        yield layer.keys[0][:, slots].transpose(0, 1), layer.values[0][:, slots].transpose(0, 1)


def join_batches(batches: Sequence[DecodingBatch]) -> DecodingBatch:
    """Return one batch with the rows of several that were continued, padded at the beginning."""
    batches = [batch for batch in batches if batch.rows]
    if len(batches) == 1:
        return batches[0]
    width = max(batch.ids.shape[1] for batch in batches)

    def together(pieces: Iterable[Tensor], length: int, dim: int) -> Tensor:
        """Pad each piece to a length at the beginning of a dimension, counted from the end."""
        return torch.cat(
            [nn.functional.pad(piece, (*[0, 0] * (-1 - dim), length - piece.shape[dim], 0)) for piece in pieces]
        )

    caches = [batch.cache for batch in batches if batch.cache is not None]
    for layers in zip(*(cache.layers for cache in caches), strict=True):
        layers[0].keys = together((layer.keys for layer in layers), width - 1, -2)
        layers[0].values = together((layer.values for layer in layers), width - 1, -2)
    return DecodingBatch(
        [row for batch in batches for row in batch.rows],
        together((batch.ids for batch in batches), width, -1),
        together((batch.mask for batch in batches), width, -1),
        caches[0],
        joins=True,
    )


def cache_argument(model: PreTrainedModel, cache: DynamicCache) -> dict[str, DynamicCache]:
    """Return the cache by its argument name: `cache` since transformers 5.24, `past_key_values` before."""
    names = inspect.signature(_inside(model).base_model.forward).parameters
    return {"cache" if "cache" in names else "past_key_values": cache}


def _inside(model: PreTrainedModel) -> Any:
    """Return the model without wrappers, with adapters included."""
    inner: Any = unwrap(model)
    if hasattr(inner, "get_base_model"):
        return inner.get_base_model()
    return inner


class _RoomyLayer(DynamicLayer):
    """A cache layer that keeps room for further tokens; `DynamicLayer` copies all earlier ones for each new token."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._room: list[Tensor | None] = [None, None]
        length = self.get_seq_length()
        held = (self.keys, self.values)
        self.keys, self.values = (
            self._with(place, held[place], new, length) for place, new in enumerate((key_states, value_states))
        )
        return self.keys, self.values

    def _with(self, place: int, old: Any, new: Tensor, length: int) -> Tensor:
        """Return the old tokens and the new ones, as the beginning of a tensor with room for more."""
        room, total = self._room[place], length + new.shape[-2]
        if room is None or room.data_ptr() != old.data_ptr() or len(room) != len(new) or room.shape[-2] < total:
            room = self._room[place] = new.new_empty((*new.shape[:-2], total + _ROOM, new.shape[-1]))
            if length:
                room[..., :length, :] = old
        room[..., length:total, :] = new
        return room[..., :total, :]
