"""Decode many prompts, greedily or by sampling: token ids in, token ids out, in the given order.

Rows are decoded longest first in batches of bounded size (`decoding.py`). Of the model's own generation config only the end
tokens are used; its sampling settings and repetition penalty have no effect. Sampled rows do not depend on the other rows of
their batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from atwu._progress import progress_bar
from atwu.data.encode import template_terminal
from atwu.modeling.decoding import bare_config, decode
from atwu.modeling.modes import eval_mode

OnBatch = Callable[[Sequence[tuple[int, tuple[int, ...], int]]], None]
"""Takes (index of the prompt, generated ids, tokens spent on them) for every row of a finished batch."""


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
        noise_seeds: one number in [0, 2^64) per prompt; required for temperature > 0; equal seeds and prompts give
            equal ids.
        on_batch: called after each batch with its rows; token counts include the end token. Rows with cap 0 are in no
            batch.

    Returns:
        Generated ids per prompt, in input order, without prompt, padding and end token. In half precision a batch may
        differ from single rows where two logits are nearly equal.
    """
    seeds = _seeds(temperature, noise_seeds, len(prompts))
    caps = _caps(max_new_tokens, len(prompts))
    if batch_tokens < 1:
        raise ValueError(f"batch_tokens must be at least 1, got {batch_tokens}; the default is 4096.")
    for index, prompt in enumerate(prompts):
        if len(prompt) == 0:
            raise ValueError(f"prompt {index} has no tokens; it needs at least one, such as the bos token.")

    ends = end_ids(model, tokenizer)
    outputs: list[tuple[int, ...]] = [()] * len(prompts)
    todo = [index for index, cap in enumerate(caps) if cap > 0]
    with (
        _bare(model, ends),
        progress_bar(total=len(todo), desc="generate", unit="row", shown=progress, leave=False) as bar,
    ):
        for rows in _batches(todo, [len(prompt) for prompt in prompts], caps, batch_tokens):
            generated = decode(
                model,
                [prompts[row] for row in rows],
                [caps[row] for row in rows],
                ends=ends,
                pad=_pad_id(prompts[row][-1] for row in rows),
                noise=partial(_GumbelNoise, [seeds[row] for row in rows], temperature, ends) if temperature else None,
            )
            for row, tokens in zip(rows, generated, strict=True):
                outputs[row] = tuple(itertools.takewhile(lambda token: token not in ends, tokens[: caps[row]]))
            if on_batch is not None:  # a row shorter than its cap ended with an end token
                on_batch([(row, outputs[row], min(len(outputs[row]) + 1, caps[row])) for row in rows])
            bar.update(len(rows))
    return outputs


def _caps(max_new_tokens: int | Sequence[int], count: int) -> list[int]:
    """Return one cap per prompt."""
    caps = [max_new_tokens] * count if isinstance(max_new_tokens, int) else [int(cap) for cap in max_new_tokens]
    if len(caps) != count:
        raise ValueError(
            f"max_new_tokens has {len(caps)} values for {count} prompts; pass one number or one per prompt."
        )
    if any(cap < 0 for cap in caps):
        raise ValueError(f"max_new_tokens must be 0 or more, got {min(caps)}.")
    return caps


def _seeds(temperature: float, noise_seeds: Sequence[int] | None, count: int) -> Sequence[int]:
    """Return one seed per prompt; none for greedy decoding."""
    if temperature < 0:
        raise ValueError(f"temperature must be 0 (greedy) or more, got {temperature}.")
    if temperature == 0:
        return ()
    if noise_seeds is None or len(noise_seeds) != count:
        given_seeds = "none" if noise_seeds is None else len(noise_seeds)
        raise ValueError(
            f"temperature {temperature} needs one noise seed per prompt: got {given_seeds} for {count} prompts."
        )
    return noise_seeds


class _GumbelNoise:
    """Logits processor that turns greedy decoding into sampling by Gumbel noise.

    Noise is counter-based (Philox) and generated on the CPU: it depends on the position alone and is equal on all devices.

    Args:
        seeds: seeds of all rows of the batch.
        places: indices of the unfinished rows.
        width: width of their prompts.
    """

    def __init__(
        self, seeds: Sequence[int], temperature: float, ends: frozenset[int], places: Sequence[int], width: int
    ) -> None:
        self.seeds = [seeds[place] for place in places]
        self.temperature = temperature
        self.width = width
        self.ends = torch.tensor(sorted(ends), dtype=torch.long)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        generated = input_ids[:, self.width :].cpu()
        ended = torch.isin(generated, self.ends).any(dim=1).tolist()
        noise = np.zeros(scores.shape, dtype=np.float32)
        for row, seed in enumerate(self.seeds):
            if not ended[row]:
                key = np.array([seed, generated.shape[1]], dtype=np.uint64)
                stream = np.random.Generator(np.random.Philox(key=key))
                # In float64: float32 draws can be exactly 0, which gives infinite noise.
                noise[row] = -np.log(stream.standard_exponential(scores.shape[1]))
        return scores / self.temperature + torch.from_numpy(noise).to(scores.device)


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


def _pad_id(last_tokens: Iterable[int]) -> int:
    """Return an id for padding; any id works, since masks are explicit and rows are cut at their end token.

    It must not be the last token of a prompt, which transformers would mistake for padding on the wrong side.
    """
    excluded = set(last_tokens)
    return next(token for token in itertools.count() if token not in excluded)


@contextmanager
def _bare(model: PreTrainedModel, ends: frozenset[int]) -> Iterator[None]:
    """Set evaluation mode and a bare generation config, and restore both on exit.

    `generate` fills unset fields of its config from `model.generation_config`; with a bare one, no penalty, forced token or
    sampling value of the checkpoint has an effect, and there are no warnings about them.
    """
    inner: Any = getattr(model, "get_base_model", None)  # exists on PEFT wrappers
    owners: list[Any] = [model] if inner is None else [model, inner()]
    configs = [owner.generation_config for owner in owners]
    bare = bare_config(ends)
    try:
        for owner in owners:
            owner.generation_config = bare
        with eval_mode(model):
            yield
    finally:
        for owner, config in zip(owners, configs, strict=True):
            owner.generation_config = config
