"""Decode many prompts, greedily or by sampling: token ids in, token ids out, in the given order.

Rows are decoded longest first in batches of bounded size. A common prefix of the prompts of a batch is processed once, and
finished rows are dropped; both need a key-value cache that can be repeated and selected by row, and other models decode the
whole batch to the end. Of the model's own generation config only the end tokens are used; its sampling settings and repetition
penalty have no effect. Sampled rows do not depend on the other rows of their batch.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import (
    DynamicCache,
    GenerationConfig,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    StoppingCriteria,
    StoppingCriteriaList,
)
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from atwu._progress import progress_bar
from atwu.data.encode import template_terminal
from atwu.modeling.fast_paths import can_pack
from atwu.modeling.modes import eval_mode
from atwu.modeling.single_pass import unwrap

OnBatch = Callable[[Sequence[tuple[int, tuple[int, ...], int]]], None]
"""Takes (index of the prompt, generated ids, tokens spent on them) for every row of a finished batch."""

_WORTH_SHARING = 8
"""Minimum length in tokens of a common prefix that is processed once."""
_ROOM = 32
"""Tokens for which the cache has room whenever it is copied."""


def generate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int | Sequence[int],
    batch_tokens: int = 4096,
    progress: bool = True,
    temperature: float = 0.0,
    noise_seeds: Sequence[int] | None = None,
    on_batch: OnBatch | None = None,
) -> list[tuple[int, ...]]:
    """Continue each prompt with the most probable token, or a sampled one, until an end token or the cap.

    A token is drawn as `argmax_v(logit_v / T + g_v)` with independent Gumbel noise g, which has the distribution
    softmax(logits / T) (Gumbel 1954). The noise depends only on the seed of the row and the position.

    Args:
        model: causal language model, on its device; a PEFT wrapper works too. Its train/eval mode and generation
            config are restored afterwards, also after an error.
        tokenizer: defines the end token; `pad_token` may be None.
        prompts: token ids, at least one each, including special tokens and generation prompt.
        max_new_tokens: cap on generated tokens, >= 0; one number, or one per prompt (a batch runs to its largest cap;
            each row is truncated at its own).
        batch_tokens: budget per batch, rows x (longest prompt + largest cap); larger is faster and needs more memory.
            A longer row gets its own batch.
        progress: show a tqdm bar; pass False on ranks other than 0.
        temperature: T >= 0; 0 is greedy, larger is more random.
        noise_seeds: one number in [0, 2^64) per prompt for temperature > 0; equal seeds and prompts give equal ids.
        on_batch: called after each batch with its rows; token counts include the end token. Rows with cap 0 are in no
            batch.

    Returns:
        Generated ids per prompt, in input order, without prompt, padding and end token. In half precision a batch may
        differ from single rows where two logits are nearly equal.
    """
    caps = [max_new_tokens] * len(prompts) if isinstance(max_new_tokens, int) else list(max_new_tokens)
    for index, prompt in enumerate(prompts):
        if len(prompt) == 0:
            raise ValueError(f"prompt {index} has no tokens; it needs at least one, such as the bos token.")
    if temperature and noise_seeds is None:
        raise ValueError(f"temperature {temperature} needs noise_seeds, one per prompt.")
    ends = end_ids(model, tokenizer)
    outputs: list[tuple[int, ...]] = [()] * len(prompts)
    todo = [index for index, cap in enumerate(caps) if cap > 0]
    with (
        _bare(model, ends),
        progress_bar(total=len(todo), desc="generate", unit="row", shown=progress, leave=False) as bar,
    ):
        for rows in _batches(todo, [len(prompt) for prompt in prompts], caps, batch_tokens):
            seeds = [noise_seeds[row] for row in rows] if temperature and noise_seeds is not None else None
            generated = _decode(
                model, [prompts[row] for row in rows], [caps[row] for row in rows], ends, temperature, seeds
            )
            for row, tokens in zip(rows, generated, strict=True):
                outputs[row] = tuple(itertools.takewhile(lambda token: token not in ends, tokens[: caps[row]]))
            if on_batch is not None:  # a row shorter than its cap ended with an end token
                on_batch([(row, outputs[row], min(len(outputs[row]) + 1, caps[row])) for row in rows])
            bar.update(len(rows))
    return outputs


def end_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Return the end tokens of the tokenizer, of the model, and of the chat template; they often differ."""
    ends: set[int] = set()
    own = model.generation_config.eos_token_id if model.generation_config is not None else None
    for value in (tokenizer.eos_token_id, own, template_terminal(tokenizer)):
        if value is not None:
            ends.update(value if isinstance(value, list | tuple) else [value])
    return frozenset(int(token) for token in ends if token >= 0)


def set_end_ids(model: PreTrainedModel, tokenizer: Any) -> None:
    """Let `generate` of transformers, also of the saved model, stop at every end token."""
    if model.generation_config is not None and (ends := sorted(end_ids(model, tokenizer))):
        model.generation_config.eos_token_id = ends if len(ends) > 1 else ends[0]


def _batches(rows: list[int], lengths: list[int], caps: list[int], budget: int) -> Iterator[list[int]]:
    """Group rows longest first, so that out-of-memory errors appear at the start; equal lengths keep their order."""
    batch: list[int] = []
    width = cap = 0
    for row in sorted(rows, key=lambda row: lengths[row] + caps[row], reverse=True):
        new_width, new_cap = max(width, lengths[row]), max(cap, caps[row])
        if batch and (len(batch) + 1) * (new_width + new_cap) > budget:
            yield batch
            batch, new_width, new_cap = [], lengths[row], caps[row]
        batch.append(row)
        width, cap = new_width, new_cap
    if batch:
        yield batch


@contextmanager
def _bare(model: PreTrainedModel, ends: frozenset[int]) -> Iterator[None]:
    """Set evaluation mode and a generation config with nothing but the end tokens, and restore both on exit.

    `generate` fills unset fields of its config from `model.generation_config`; with a bare one, no penalty, forced token or
    sampling value of the checkpoint has an effect, and there are no warnings about them.
    """
    inner: Any = getattr(model, "get_base_model", None)  # exists on PEFT wrappers
    owners: list[Any] = [model] if inner is None else [model, inner()]
    configs = [owner.generation_config for owner in owners]
    try:
        for owner in owners:
            owner.generation_config = _config(ends)
        with eval_mode(model):
            yield
    finally:
        for owner, config in zip(owners, configs, strict=True):
            owner.generation_config = config


def _config(ends: frozenset[int], **settings: Any) -> GenerationConfig:
    make: Any = GenerationConfig  # untyped in transformers
    config: GenerationConfig = make(eos_token_id=sorted(ends) or None, **settings)
    return config


def _decode(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    caps: Sequence[int],
    ends: frozenset[int],
    temperature: float,
    seeds: Sequence[int] | None,
) -> list[list[int]]:
    """Continue each prompt of one batch; ids after an end token or the cap of a row are meaningless."""
    width = max(map(len, prompts))
    # Any id works, since masks are explicit; transformers would mistake one that ends a prompt for padding on the wrong side.
    pad = next(token for token in itertools.count() if token not in {prompt[-1] for prompt in prompts})
    ids, mask, cache = _begin(model, prompts, width, pad)
    limits = torch.tensor(caps, device=ids.device)  # of the unfinished rows
    rows = list(range(len(prompts)))
    generated: list[list[int]] = [[]] * len(prompts)
    call: Any = model.generate  # a property for mypy
    while rows:
        leave = _Leaving(width, torch.tensor(sorted(ends), device=ids.device), limits)
        noise = None if seeds is None else _GumbelNoise([seeds[row] for row in rows], temperature, leave)
        output: Any = call(
            input_ids=ids,
            attention_mask=mask,
            generation_config=_config(
                ends,
                do_sample=False,
                num_beams=1,
                use_cache=True,
                pad_token_id=pad,
                max_new_tokens=int(limits.max()) + width - ids.shape[1],
                return_dict_in_generate=True,
            ),
            logits_processor=LogitsProcessorList([] if noise is None else [noise]),
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


def _begin(
    model: PreTrainedModel, prompts: Sequence[Sequence[int]], width: int, pad: int
) -> tuple[Tensor, Tensor, DynamicCache | None]:
    """Return ids and mask, padded after the common prefix, and its cache; None if the cache cannot select rows."""
    inner = _inside(model)
    learned_prompt = getattr(getattr(model, "active_peft_config", None), "is_prompt_learning", False)
    cache, kinds = None, set[type]()
    if len(prompts) > 1 and not learned_prompt and can_pack(inner):
        cache = DynamicCache(config=model.config)
        kinds = {type(layer) for layer in cache.layers}
        cache = cache if kinds <= {DynamicLayer, DynamicSlidingWindowLayer} else None
    if cache is not None:
        cache.layers = [_RoomyLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    alike = itertools.takewhile(lambda column: len(set(column)) == 1, zip(*prompts, strict=False))
    shared = min(sum(1 for _ in alike), min(map(len, prompts)) - 1)
    if cache is None or shared < _WORTH_SHARING or not kinds <= {DynamicLayer}:
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
            inner.base_model(input_ids=ids[:1, :shared], use_cache=True, **_cache_argument(inner, cache))
        cache.batch_repeat_interleave(len(prompts))
    return ids, mask, cache


def _cache_argument(model: PreTrainedModel, cache: DynamicCache) -> dict[str, DynamicCache]:
    """Return the cache by its argument name: `cache` since transformers 5.24, `past_key_values` before."""
    names = inspect.signature(_inside(model).base_model.forward).parameters
    return {"cache" if "cache" in names else "past_key_values": cache}


def _inside(model: PreTrainedModel) -> Any:
    """Return the model without wrappers, with adapters included."""
    inner: Any = unwrap(model)
    return inner.get_base_model() if hasattr(inner, "get_base_model") else inner


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


class _Leaving(StoppingCriteria):
    """Stop a batch when half of its rows have finished, so that the others continue without them."""

    def __init__(self, width: int, ends: Tensor, caps: Tensor) -> None:
        self.width, self.ends, self.caps = width, ends, caps

    def ended(self, ids: Tensor) -> Tensor:
        """Return which rows contain an end token or have reached their cap."""
        new = ids[:, self.width :]
        return torch.isin(new, self.ends).any(dim=1) | (self.caps <= new.shape[1])

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Any:
        ended = self.ended(input_ids)
        return torch.full_like(ended, bool(2 * ended.sum() >= len(ended)))


class _GumbelNoise:
    """Logits processor that turns greedy decoding into sampling by Gumbel noise.

    Noise is counter-based (Philox) and generated on the CPU: it depends on the position alone and is equal on all devices.
    """

    def __init__(self, seeds: Sequence[int], temperature: float, leaving: _Leaving) -> None:
        self.seeds, self.temperature, self.leaving = seeds, temperature, leaving

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        ended, position = self.leaving.ended(input_ids).tolist(), input_ids.shape[1] - self.leaving.width
        noise = np.zeros(scores.shape, dtype=np.float32)
        for row, seed in enumerate(self.seeds):
            if not ended[row]:
                stream = np.random.Generator(np.random.Philox(key=np.array([seed, position], dtype=np.uint64)))
                # In float64: float32 draws can be exactly 0, which gives infinite noise.
                noise[row] = -np.log(stream.standard_exponential(scores.shape[1]))
        return scores / self.temperature + torch.from_numpy(noise).to(scores.device)
