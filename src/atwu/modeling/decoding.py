"""Decode one batch: process a common prefix of its prompts once, and drop finished rows.

Both need a key-value cache that can be repeated and selected by row. The first also needs a model that derives positions from
the attention mask, since padding follows the common prefix. Other models decode the whole batch to the end.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import (
    DynamicCache,
    GenerationConfig,
    LogitsProcessorList,
    PreTrainedModel,
    StoppingCriteria,
    StoppingCriteriaList,
)
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from atwu.modeling.fast_paths import can_pack
from atwu.modeling.single_pass import unwrap

_WORTH_SHARING = 8
"""Minimum length in tokens of a common prefix that is processed once."""

Noise = Callable[[Sequence[int], int], Any]
"""Returns the logits processor for the given rows and prompt width."""


def decode(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    caps: Sequence[int],
    *,
    ends: frozenset[int],
    pad: int,
    noise: Noise | None,
) -> list[list[int]]:
    """Continue each prompt until an end token, or up to its cap.

    Args:
        prompts: token ids, at least one each.
        caps: at least 1 each.
        pad: any token that no prompt ends with.
        noise: added to the logits; None decodes greedily.

    Returns:
        Generated ids of each row; ids after an end token or the cap of the row are meaningless.
    """
    width = max(map(len, prompts))
    ids, mask, cache = _begin(model, prompts, width, pad)
    limits = torch.tensor(caps, device=ids.device)  # of the unfinished rows
    rows = list(range(len(prompts)))
    generated: list[list[int]] = [[]] * len(prompts)
    generate: Any = model.generate  # a property for mypy
    while rows:
        leave = _Leaving(width, torch.tensor(sorted(ends), device=ids.device), limits)
        output: Any = generate(
            input_ids=ids,
            attention_mask=mask,
            generation_config=bare_config(
                ends,
                do_sample=False,
                num_beams=1,
                use_cache=True,
                pad_token_id=pad,
                max_new_tokens=int(limits.max()) + width - ids.shape[1],
                return_dict_in_generate=True,
            ),
            logits_processor=LogitsProcessorList([] if noise is None else [noise(rows, width)]),
            stopping_criteria=StoppingCriteriaList([leave] if cache is not None else []),
            **({} if cache is None else _cache_argument(model, cache)),
        )
        ids = output.sequences
        for row, tokens in zip(rows, ids[:, width:].tolist(), strict=True):
            generated[row] = tokens
        if cache is None:
            break
        unfinished = (~leave.ended(ids)).nonzero().squeeze(1)
        rows = [rows[place] for place in unfinished.tolist()]
        if rows:
            cache.batch_select_indices(unfinished)
            mask = torch.cat([mask, mask.new_ones(len(mask), ids.shape[1] - mask.shape[1])], dim=1)[unfinished]
            ids, limits = ids[unfinished], limits[unfinished]
    return generated


def bare_config(ends: frozenset[int], **settings: Any) -> GenerationConfig:
    """Return a generation config with only these end tokens and settings."""
    make: Any = GenerationConfig  # untyped in transformers
    config: GenerationConfig = make(eos_token_id=sorted(ends) or None, **settings)
    return config


def _begin(
    model: PreTrainedModel, prompts: Sequence[Sequence[int]], width: int, pad: int
) -> tuple[Tensor, Tensor, DynamicCache | None]:
    """Return ids and mask, padded after the common prefix, and its cache; None if the cache cannot select rows."""
    cache = _empty_cache(model) if len(prompts) > 1 else None
    columns = zip(*prompts, strict=False)
    alike = sum(1 for _ in itertools.takewhile(lambda column: len(set(column)) == 1, columns))
    shared = min(alike, min(map(len, prompts)) - 1)
    if cache is None or shared < _WORTH_SHARING or any(type(layer) is not DynamicLayer for layer in cache.layers):
        shared = 0  # in a sliding window, padding would displace tokens
    ids = torch.full((len(prompts), width), pad, dtype=torch.long)
    mask = torch.zeros((len(prompts), width), dtype=torch.long)
    for place, prompt in enumerate(prompts):
        for piece, start in ((prompt[:shared], 0), (prompt[shared:], width - len(prompt) + shared)):
            ids[place, start : start + len(piece)] = torch.as_tensor(piece, dtype=torch.long)
            mask[place, start : start + len(piece)] = 1
    ids, mask = ids.to(model.device), mask.to(model.device)
    if shared and cache is not None:
        with torch.no_grad():
            _inside(model).base_model(input_ids=ids[:1, :shared], use_cache=True, **_cache_argument(model, cache))
        cache.batch_repeat_interleave(len(prompts))
    return ids, mask, cache


def _cache_argument(model: PreTrainedModel, cache: DynamicCache) -> dict[str, DynamicCache]:
    """Return the cache by its argument name: `cache` since transformers 5.24, `past_key_values` before."""
    names = inspect.signature(_inside(model).base_model.forward).parameters
    return {"cache" if "cache" in names else "past_key_values": cache}


def _empty_cache(model: PreTrainedModel) -> DynamicCache | None:
    """Return a cache that can select rows; None for models with other state than attention."""
    learned_prompt = getattr(getattr(model, "active_peft_config", None), "is_prompt_learning", False)
    if learned_prompt or not can_pack(_inside(model)):
        return None
    cache = DynamicCache(config=model.config)
    return cache if {type(layer) for layer in cache.layers} <= {DynamicLayer, DynamicSlidingWindowLayer} else None


def _inside(model: PreTrainedModel) -> Any:
    """Return the model without wrappers, with adapters included."""
    inner: Any = unwrap(model)
    return inner.get_base_model() if hasattr(inner, "get_base_model") else inner


class _Leaving(StoppingCriteria):
    """Stop a batch when half of its rows have finished, so that the others continue without them."""

    def __init__(self, width: int, ends: Tensor, caps: Tensor) -> None:
        self.width = width
        self.ends = ends
        self.caps = caps

    def ended(self, ids: Tensor) -> Tensor:
        """Return which rows contain an end token or have reached their cap."""
        new = ids[:, self.width :]
        return torch.isin(new, self.ends).any(dim=1) | (self.caps <= new.shape[1])

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Any:
        ended = self.ended(input_ids)
        return torch.full_like(ended, bool(2 * ended.sum() >= len(ended)))
