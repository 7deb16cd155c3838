"""Decode many prompts, greedily or by sampling: token ids in, token ids out, in the given order.

Rows are decoded longest first in batches of bounded size. What several prompts of a batch begin with is processed once,
finished rows are dropped, and the last rows of several batches are joined. This needs rows that can be packed and a key-value
cache whose window, if any, holds whole rows; other models decode each batch to its end. Of the model's own generation config
only the end tokens are used; its sampling settings and repetition penalty have no effect. Sampled rows do not depend on the
other rows of their batch.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
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
from atwu.data.schema import IGNORE_INDEX
from atwu.modeling.batches import Packing, TokenBatch, lay_out, no_mask
from atwu.modeling.forward import position_limit
from atwu.modeling.layers import eval_mode, unwrap
from atwu.modeling.single_pass import can_pack, fast_path_support

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
    width = max(map(len, prompts))
    ids = torch.full((len(prompts), width), padding_token({prompt[-1] for prompt in prompts}), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for place, prompt in enumerate(prompts):
        ids[place, width - len(prompt) :] = torch.as_tensor(prompt, dtype=torch.long)
        mask[place, width - len(prompt) :] = 1
    ids, mask = ids.to(model.device), mask.to(model.device)
    cache: Any = None
    plain = False
    if len(prompts) > 1 and can_pack(inner):
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
        packing=Packing.of(arranged.rows, arranged.new, device),
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
        # `pad` takes two numbers per dimension, the last one first.
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
        # The room is no longer that of these tokens if rows were taken out or batches joined since, and it may be full.
        if room is None or room.data_ptr() != old.data_ptr() or len(room) != len(new) or room.shape[-2] < total:
            room = self._room[place] = new.new_empty((*new.shape[:-2], total + _ROOM, new.shape[-1]))
            if length:
                room[..., :length, :] = old
        room[..., length:total, :] = new
        return room[..., :total, :]


OnBatch = Callable[[Sequence[tuple[int, tuple[int, ...], int]]], None]
"""Takes (index of the prompt, generated ids, tokens spent on them) for every row of a finished batch."""

_JOINED = 2
"""Rows that are continued together, in multiples of a first batch; their steps have one token each."""


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
    factors: Sequence[float] = (1.0,),
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
        factors: with k of them, each k consecutive prompts, of one cap and seed, are continued by the same tokens, from the sum
            of factor times log-probability over these prompts.
        on_batch: called with rows as they finish; token counts include the end token. Rows with cap 0 are in no
            batch.

    Returns:
        Generated ids per prompt, in input order, without prompt, padding and end token. In half precision a batch may
        differ from single rows where two logits are nearly equal.
    """
    if isinstance(max_new_tokens, int):
        max_new_tokens = [max_new_tokens] * len(prompts)
    caps = list(max_new_tokens)
    for index, prompt in enumerate(prompts):
        if len(prompt) == 0:
            raise ValueError(f"prompt {index} has no tokens; it needs at least one, such as the bos token.")
    if not temperature:
        noise_seeds = None
    elif noise_seeds is None:
        raise ValueError(f"temperature {temperature} needs noise_seeds, one per prompt.")
    ends = end_ids(model, tokenizer)
    outputs: list[tuple[int, ...]] = [()] * len(prompts)
    todo = [index for index, cap in enumerate(caps) if cap > 0]
    decoder = _Decoder(model, ends, caps, temperature, noise_seeds, factors)
    # Prompts that are continued together stay in one batch: batches are made of groups, then written out as rows.
    size = len(factors)
    lengths = [max(map(len, prompts[first : first + size])) for first in range(0, len(prompts), size)]
    groups = [first // size for first in todo[::size]]
    limit = position_limit(model)
    if limit is None:
        of_groups = _batches(groups, lengths, caps[::size], batch_tokens // size, math.inf)
    else:
        of_groups = _batches(groups, lengths, caps[::size], batch_tokens // size, limit)
    batches = ([row for group in batch for row in range(size * group, size * group + size)] for batch in of_groups)
    with (
        _bare(model, ends),
        progress_bar(total=len(todo), desc="generate", unit="row", shown=progress, leave=False) as bar,
    ):
        # Joined rows are padded to the longest of all, which may be more than a model with a limit has positions.
        for rows in decoder.finished_rows(prompts, batches, join=limit is None):
            for row in rows:
                tokens = decoder.generated[row][: caps[row]]
                outputs[row] = tuple(itertools.takewhile(lambda token: token not in ends, tokens))
            if on_batch is not None:  # a row shorter than its cap ended with an end token
                on_batch([(row, outputs[row], min(len(outputs[row]) + 1, caps[row])) for row in rows])
            bar.update(len(rows))
    return outputs


def end_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Return the end tokens of the tokenizer, of the model, and of the chat template; they often differ."""
    ends: set[int] = set()
    own = None
    if model.generation_config is not None:
        own = model.generation_config.eos_token_id
    for value in (tokenizer.eos_token_id, own, template_terminal(tokenizer)):
        if value is not None:
            ends.update(value if isinstance(value, list | tuple) else [value])
    # Older checkpoints say -1 for no end token.
    return frozenset(int(token) for token in ends if token >= 0)


def set_end_ids(model: PreTrainedModel, tokenizer: Any) -> None:
    """Let `generate` of transformers, also of the saved model, stop at every end token."""
    ends = sorted(end_ids(model, tokenizer))
    if model.generation_config is not None and ends:
        # A list of one would be a change of every model with one end token.
        model.generation_config.eos_token_id = ends if len(ends) > 1 else ends[0]


def _batches(rows: list[int], lengths: list[int], caps: list[int], budget: int, limit: float) -> Iterator[list[int]]:
    """Group rows longest first, so that out-of-memory errors appear at the start; equal lengths keep their order.

    Rows run to the largest cap of their batch; none may then be longer than the limit.
    """
    batch: list[int] = []
    width = cap = 0
    for row in sorted(rows, key=lambda row: lengths[row] + caps[row], reverse=True):
        new_width, new_cap = max(width, lengths[row]), max(cap, caps[row])
        if batch and ((len(batch) + 1) * (new_width + new_cap) > budget or new_width + new_cap > limit):
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
    owners: list[Any] = [model]
    base: Any = getattr(model, "get_base_model", None)  # exists on PEFT wrappers
    if base is not None:
        owners.append(base())
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


class _Decoder:
    """Continues batches of rows. When half of the rows of a batch have finished, the others wait for those of further batches,
    so that most steps are those of a large batch: a step takes hardly longer with more rows."""

    def __init__(
        self,
        model: PreTrainedModel,
        ends: frozenset[int],
        caps: Sequence[int],
        temperature: float,
        seeds: Sequence[int] | None,
        factors: Sequence[float],
    ) -> None:
        self.model, self.ends, self.caps = model, ends, caps
        self.temperature, self.seeds, self.factors = temperature, seeds, factors
        self.generated: list[list[int]] = [[] for _ in caps]
        """Generated ids of each row; those after an end token or the cap are meaningless."""

    def finished_rows(
        self, prompts: Sequence[Sequence[int]], batches: Iterable[list[int]], *, join: bool
    ) -> Iterator[list[int]]:
        """Yield the rows that have finished, as they finish; `join` continues rows of several batches together."""
        waiting: list[DecodingBatch] = []
        for rows in batches:
            batch = begin_batch(self.model, [prompts[row] for row in rows], rows, max(self.caps[row] for row in rows))
            yield self._advance(batch)
            while batch.rows and not (join and batch.joins):
                yield self._advance(batch)
            waiting.append(batch)
            while sum(len(state.rows) for state in waiting) >= _JOINED * len(rows):
                waiting = [join_batches(waiting)]
                yield self._advance(waiting[0])
        while any(state.rows for state in waiting):
            waiting = [join_batches(waiting)]
            yield self._advance(waiting[0])

    def _advance(self, batch: DecodingBatch) -> list[int]:
        """Continue a batch until half of its rows have finished, take these out, and return them."""
        width, device = batch.ids.shape[1], batch.ids.device
        limits = torch.tensor([self.caps[row] - len(self.generated[row]) for row in batch.rows], device=device)
        # `generate` of transformers knows one cap for all rows; each row's own ends it here.
        leave = _Leaving(width, torch.tensor(sorted(self.ends), device=device), limits)
        processors: list[Any] = []
        if len(self.factors) > 1:  # before the noise, which is added to what is combined
            processors.append(_Combination(self.factors))
        if self.seeds is not None:
            begun = [len(self.generated[row]) for row in batch.rows]
            processors.append(_GumbelNoise([self.seeds[row] for row in batch.rows], begun, self.temperature, leave))
        stopping: list[StoppingCriteria] = []
        cache: dict[str, DynamicCache] = {}
        if batch.cache is not None:  # else the rows cannot be taken out, and the batch runs to its end
            stopping.append(leave)
            cache = cache_argument(self.model, batch.cache)
        call: Any = self.model.generate  # a property for mypy
        output: Any = call(
            input_ids=batch.ids,
            attention_mask=batch.mask,
            generation_config=_config(
                self.ends,
                do_sample=False,
                num_beams=1,
                use_cache=True,
                pad_token_id=padding_token(batch.ids[:, -1].tolist()),
                max_new_tokens=int(limits.max()),
                return_dict_in_generate=True,
            ),
            logits_processor=LogitsProcessorList(processors),
            stopping_criteria=StoppingCriteriaList(stopping),
            **cache,
        )
        # transformers has filled rows that ended early; what follows an end token is cut off by the caller.
        ids = output.sequences
        for row, tokens in zip(batch.rows, ids[:, width:].tolist(), strict=True):
            self.generated[row] += tokens
        ended = torch.ones(len(ids), dtype=torch.bool)
        if batch.cache is not None:
            ended = leave.ended(ids)
        finished = [row for row, end in zip(batch.rows, ended.tolist(), strict=True) if end]
        left = (~ended).nonzero().squeeze(1)
        batch.rows = [batch.rows[place] for place in left.tolist()]
        if batch.rows and batch.cache is not None:
            batch.cache.batch_select_indices(left)
            batch.mask = torch.cat([batch.mask, batch.mask.new_ones(len(ids), ids.shape[1] - width)], dim=1)[left]
            batch.ids = ids[left]
        return finished


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


class _Combination:
    """Logits processor that gives all rows of a group the sum of factor times log-probability over these rows."""

    def __init__(self, factors: Sequence[float]) -> None:
        self.factors = factors

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        size = len(self.factors)
        logps = scores.log_softmax(-1).clamp(min=-1e4).unflatten(0, (-1, size))  # differences of -inf would be nan
        combined: Tensor = (logps * logps.new_tensor(self.factors)[:, None]).sum(1)
        return combined.repeat_interleave(size, dim=0)


class _GumbelNoise:
    """Logits processor that turns greedy decoding into sampling by Gumbel noise.

    Noise is counter-based (Philox) and generated on the CPU: it depends on the position alone and is equal on all devices.
    """

    def __init__(self, seeds: Sequence[int], begun: Sequence[int], temperature: float, leaving: _Leaving) -> None:
        """Draw noise for rows of which some tokens, `begun`, were generated before."""
        self.seeds, self.begun, self.temperature, self.leaving = seeds, begun, temperature, leaving

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        ended, further = self.leaving.ended(input_ids).tolist(), input_ids.shape[1] - self.leaving.width
        noise = np.zeros(scores.shape, dtype=np.float32)
        for row, (seed, begun) in enumerate(zip(self.seeds, self.begun, strict=True)):
            if not ended[row]:
                stream = np.random.Generator(np.random.Philox(key=np.array([seed, begun + further], dtype=np.uint64)))
                # In float64: float32 draws can be exactly 0, which gives infinite noise.
                noise[row] = -np.log(stream.standard_exponential(scores.shape[1]))
        return scores / self.temperature + torch.from_numpy(noise).to(scores.device)
