"""Decoding of many prompts, greedy or sampled: token ids in, token ids out, in the order given.

Works on ids only and knows no template. Rows are decoded longest first in batches of bounded size (`decoding.py`). Nothing
of the model's own generation config but its end tokens has any effect, so a checkpoint that ships sampling settings or a
repetition penalty is decoded as asked. Sampled rows do not depend on what else is in their batch.
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

from atwu._progress import bar_of
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
    """Continue each prompt with the most probable token, or a drawn one, until an end token or the cap.

    A token is drawn as `argmax_v(logit_v / T + g_v)` with independent Gumbel noise g, which has the distribution
    softmax(logits / T) (Gumbel 1954). The noise follows from the row's seed and the position alone.

    Args:
        model: causal language model, on its device; a PEFT wrapper works too. Its train/eval state and its generation
            config are put back afterwards, also after an error.
        tokenizer: gives the end token; `pad_token` may be None.
        prompts: token ids, at least one each, special tokens and generation prompt already in.
        max_new_tokens: cap on generated tokens, >= 0; one number, or one per prompt (a batch runs to its largest cap
            and each row is cut at its own).
        batch_tokens: budget per batch, rows x (longest prompt + largest cap); more is faster and takes more memory.
            A row longer than the budget gets a batch of its own.
        progress: whether to show a tqdm bar; pass False on ranks other than 0.
        temperature: T >= 0; 0 is greedy, larger is more random.
        noise_seeds: one number in [0, 2^64) per prompt; needed above temperature 0, where equal seeds and prompts give
            equal ids.
        on_batch: called after each batch with its rows; the tokens spent on a row include its end token. Rows with
            cap 0 are in no batch.

    Returns:
        Generated ids per prompt, in input order, without prompt, padding and end token. In half precision a batch may
        differ from single rows where two logits are nearly equal.

    Raises:
        ValueError: for an empty prompt, a negative cap or temperature, a list of the wrong length, or a budget below 1.
    """
    seeds = _seeds(temperature, noise_seeds, len(prompts))
    caps = _caps(max_new_tokens, len(prompts))
    if batch_tokens < 1:
        raise ValueError(f"batch_tokens must be at least 1, got {batch_tokens}; the default is 4096.")
    for index, prompt in enumerate(prompts):
        if len(prompt) == 0:
            raise ValueError(f"prompt {index} has no tokens; start it with at least one, such as the bos token.")

    ends = end_ids(model, tokenizer)
    outputs: list[tuple[int, ...]] = [()] * len(prompts)
    todo = [index for index, cap in enumerate(caps) if cap > 0]
    with _bare(model, ends), bar_of(total=len(todo), desc="generate", unit="row", shown=progress, leave=False) as bar:
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
            if on_batch is not None:  # a row is shorter than its cap only if an end token followed
                on_batch([(row, outputs[row], min(len(outputs[row]) + 1, caps[row])) for row in rows])
            bar.update(len(rows))
    return outputs


def _caps(max_new_tokens: int | Sequence[int], count: int) -> list[int]:
    """One cap per prompt."""
    caps = [max_new_tokens] * count if isinstance(max_new_tokens, int) else [int(cap) for cap in max_new_tokens]
    if len(caps) != count:
        raise ValueError(f"max_new_tokens has {len(caps)} values for {count} prompts; give one number or one each.")
    if any(cap < 0 for cap in caps):
        raise ValueError(f"max_new_tokens must be 0 or more, got {min(caps)}.")
    return caps


def _seeds(temperature: float, noise_seeds: Sequence[int] | None, count: int) -> Sequence[int]:
    """One seed per prompt, or none in greedy decoding."""
    if temperature < 0:
        raise ValueError(f"temperature must be 0 (greedy) or more, got {temperature}.")
    if temperature == 0:
        return ()
    if noise_seeds is None or len(noise_seeds) != count:
        given = "none" if noise_seeds is None else len(noise_seeds)
        raise ValueError(f"temperature {temperature} needs one noise seed per prompt: {given} for {count} prompts.")
    return noise_seeds


class _GumbelNoise:
    """Logits processor after which taking the most probable token is sampling.

    Noise is counter-based (Philox) and made on the CPU: that of a position needs none of the positions before it, and
    is the same on every device.

    Args:
        seeds: of all rows of a batch.
        temperature: what logits are divided by.
        ends: end tokens.
        places: the rows that are still there.
        width: of their prompts.
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
                # In float64: the draws in float32 can be exactly 0, which would be infinite noise.
                noise[row] = -np.log(stream.standard_exponential(scores.shape[1]))
        return scores / self.temperature + torch.from_numpy(noise).to(scores.device)


def _batches(rows: list[int], lengths: list[int], caps: list[int], budget: int) -> Iterator[list[int]]:
    """Rows grouped longest first, so that running out of memory shows at once; equal lengths keep their order."""
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
    """End tokens of the tokenizer and of the model; chat models often have one in each place."""
    found: set[int] = set()
    own = model.generation_config.eos_token_id if model.generation_config is not None else None
    for value in (tokenizer.eos_token_id, own):
        if value is not None:
            found.update(value if isinstance(value, list | tuple) else [value])
    return frozenset(int(token) for token in found)


def _pad_id(last_tokens: Iterable[int]) -> int:
    """Any id of the vocabulary serves as padding, since masks are explicit and rows are cut at their end token.

    It only must not be the last token of a prompt, which transformers would take for padding on the wrong side.
    """
    taken = set(last_tokens)
    return next(token for token in itertools.count() if token not in taken)


@contextmanager
def _bare(model: PreTrainedModel, ends: frozenset[int]) -> Iterator[None]:
    """Evaluation mode and a bare generation config, both put back on leaving.

    `generate` fills every unset field of the config it is given from `model.generation_config`; with a bare one in
    its place, no penalty, forced token or sampling value (and no warning about one) comes in from the checkpoint.
    """
    inner: Any = getattr(model, "get_base_model", None)  # there on PEFT wrappers
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
