"""Decoding of one batch: what its prompts begin with in common is read once, and rows that have ended leave it.

Both need a cache of keys and values that can be repeated and selected by row, and the first one a model that takes the place of
a token from its mask, since padding comes behind the common beginning. Other models decode the whole batch to its end.
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
"""Tokens in common from which on they are read apart."""

Noise = Callable[[Sequence[int], int], Any]
"""Gives the logits processor for some of the rows, whose prompts are so wide."""


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
        model: in evaluation mode, on its device.
        prompts: token ids, at least one each.
        caps: at least 1 each.
        ends: end tokens.
        pad: any token that no prompt ends with.
        noise: added to the logits; None decodes greedily.

    Returns:
        Generated ids of each row; behind an end token, or the row's cap, they mean nothing.
    """
    width = max(map(len, prompts))
    ids, mask, cache = _begin(model, prompts, width, pad)
    limits = torch.tensor(caps, device=ids.device)  # of the rows that are still there
    rows = list(range(len(prompts)))
    found: list[list[int]] = [[]] * len(prompts)
    while rows:
        leave = _Leaving(width, torch.tensor(sorted(ends), device=ids.device), limits)
        output: Any = model.generate(  # type: ignore[operator]
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
            **({} if cache is None else _given(model, cache)),
        )
        ids = output.sequences
        for row, tokens in zip(rows, ids[:, width:].tolist(), strict=True):
            found[row] = tokens
        if cache is None:
            break
        kept = (~leave.ended(ids)).nonzero().squeeze(1)
        rows = [rows[place] for place in kept.tolist()]
        if rows:
            cache.batch_select_indices(kept)
            mask = torch.cat([mask, mask.new_ones(len(mask), ids.shape[1] - mask.shape[1])], dim=1)[kept]
            ids, limits = ids[kept], limits[kept]
    return found


def bare_config(ends: frozenset[int], **settings: Any) -> GenerationConfig:
    """Config with these end tokens and settings and nothing else."""
    make: Any = GenerationConfig  # untyped in transformers
    config: GenerationConfig = make(eos_token_id=sorted(ends) or None, **settings)
    return config


def _begin(
    model: PreTrainedModel, prompts: Sequence[Sequence[int]], width: int, pad: int
) -> tuple[Tensor, Tensor, DynamicCache | None]:
    """Ids and mask, padded behind the common beginning, and the cache that holds it; None where rows cannot be selected."""
    cache = _empty_cache(model) if len(prompts) > 1 else None
    columns = zip(*prompts, strict=False)
    alike = sum(1 for _ in itertools.takewhile(lambda column: len(set(column)) == 1, columns))
    shared = min(alike, min(map(len, prompts)) - 1)
    if cache is None or shared < _WORTH_SHARING or any(type(layer) is not DynamicLayer for layer in cache.layers):
        shared = 0  # in a window, padding would take the place of tokens
    ids = torch.full((len(prompts), width), pad, dtype=torch.long)
    mask = torch.zeros((len(prompts), width), dtype=torch.long)
    for place, prompt in enumerate(prompts):
        for part, start in ((prompt[:shared], 0), (prompt[shared:], width - len(prompt) + shared)):
            ids[place, start : start + len(part)] = torch.as_tensor(part, dtype=torch.long)
            mask[place, start : start + len(part)] = 1
    ids, mask = ids.to(model.device), mask.to(model.device)
    if shared and cache is not None:
        with torch.no_grad():
            _inside(model).base_model(input_ids=ids[:1, :shared], use_cache=True, **_given(model, cache))
        cache.batch_repeat_interleave(len(prompts))
    return ids, mask, cache


def _given(model: PreTrainedModel, cache: DynamicCache) -> dict[str, DynamicCache]:
    """The cache under the name that the model takes it by: `cache` since transformers 5.24, `past_key_values` before."""
    names = inspect.signature(_inside(model).base_model.forward).parameters
    return {"cache" if "cache" in names else "past_key_values": cache}


def _empty_cache(model: PreTrainedModel) -> DynamicCache | None:
    """A cache whose rows can be selected, for models whose layers look at other tokens only through attention."""
    learned_prompt = getattr(getattr(model, "active_peft_config", None), "is_prompt_learning", False)
    if learned_prompt or not can_pack(_inside(model)):
        return None
    cache = DynamicCache(config=model.config)
    return cache if {type(layer) for layer in cache.layers} <= {DynamicLayer, DynamicSlidingWindowLayer} else None


def _inside(model: PreTrainedModel) -> Any:
    """The model inside its wrappers, adapters in it."""
    inner: Any = unwrap(model)
    return inner.get_base_model() if hasattr(inner, "get_base_model") else inner


class _Leaving(StoppingCriteria):
    """Stops a batch when half of its rows have ended, so that the others go on alone."""

    def __init__(self, width: int, ends: Tensor, caps: Tensor) -> None:
        self.width = width
        self.ends = ends
        self.caps = caps

    def ended(self, ids: Tensor) -> Tensor:
        """Which rows hold an end token, or are as long as they may get."""
        new = ids[:, self.width :]
        return torch.isin(new, self.ends).any(dim=1) | (self.caps <= new.shape[1])

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Any:
        ended = self.ended(input_ids)
        return torch.full_like(ended, bool(2 * ended.sum() >= len(ended)))
