"""Greedy decoding of many prompts: token ids in, token ids out, in the order given.

Works on ids only and knows no template. Rows are decoded longest first in batches of bounded size, left-padded with
attention masks made from lengths. Nothing of the model's own generation config but its end tokens has any effect, so
a checkpoint that ships sampling settings or a repetition penalty is still decoded greedily.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from tqdm import tqdm
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase


def generate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int | Sequence[int],
    batch_tokens: int = 4096,
    progress: bool = True,
) -> list[tuple[int, ...]]:
    """Continue each prompt with the most probable token until an end token or the cap.

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

    Returns:
        Generated ids per prompt, in input order, without prompt, padding and end token. In half precision a batch may
        differ from single rows where two logits are nearly equal.

    Raises:
        ValueError: for an empty prompt, a negative cap, a list of caps of the wrong length, or a budget below 1.
    """
    caps = _caps(max_new_tokens, len(prompts))
    if batch_tokens < 1:
        raise ValueError(f"batch_tokens must be at least 1, got {batch_tokens}; the default is 4096.")
    for index, prompt in enumerate(prompts):
        if len(prompt) == 0:
            raise ValueError(f"prompt {index} has no tokens; start it with at least one, such as the bos token.")

    end_ids = _end_ids(model, tokenizer)
    outputs: list[tuple[int, ...]] = [()] * len(prompts)
    todo = [index for index, cap in enumerate(caps) if cap > 0]
    with _greedy(model, end_ids), tqdm(total=len(todo), desc="generate", unit="row", disable=not progress) as bar:
        for rows in _batches(todo, [len(prompt) for prompt in prompts], caps, batch_tokens):
            width = max(len(prompts[row]) for row in rows)
            pad_id = _pad_id(prompts[row][-1] for row in rows)
            ids = torch.full((len(rows), width), pad_id, dtype=torch.long)
            mask = torch.zeros((len(rows), width), dtype=torch.long)
            for place, row in enumerate(rows):
                length = len(prompts[row])
                ids[place, width - length :] = torch.as_tensor(prompts[row], dtype=torch.long)
                mask[place, width - length :] = 1
            config = _config(
                end_ids,
                do_sample=False,
                num_beams=1,
                use_cache=True,
                max_new_tokens=max(caps[row] for row in rows),
                pad_token_id=pad_id,
            )
            generated: Any = model.generate(  # type: ignore[operator]
                input_ids=ids.to(model.device), attention_mask=mask.to(model.device), generation_config=config
            )
            for row, tokens in zip(rows, generated[:, width:].tolist(), strict=True):
                outputs[row] = _until_end(tokens[: caps[row]], end_ids)
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


def _end_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
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


def _until_end(tokens: list[int], end_ids: frozenset[int]) -> tuple[int, ...]:
    """Tokens before the first end token."""
    return tuple(itertools.takewhile(lambda token: token not in end_ids, tokens))


def _config(end_ids: frozenset[int], **settings: Any) -> GenerationConfig:
    """Config with these end tokens and settings and nothing else."""
    make: Any = GenerationConfig  # untyped in transformers
    config: GenerationConfig = make(eos_token_id=sorted(end_ids) or None, **settings)
    return config


@contextmanager
def _greedy(model: PreTrainedModel, end_ids: frozenset[int]) -> Iterator[None]:
    """Evaluation mode and a bare generation config, both put back on leaving.

    `generate` fills every unset field of the config it is given from `model.generation_config`; with a bare one in
    its place, no penalty, forced token or sampling value (and no warning about one) comes in from the checkpoint.
    """
    inner: Any = getattr(model, "get_base_model", None)  # there on PEFT wrappers
    owners: list[Any] = [model] if inner is None else [model, inner()]
    configs = [owner.generation_config for owner in owners]
    modes = [(module, module.training) for module in model.modules()]
    bare = _config(end_ids)
    try:
        model.train(False)
        for owner in owners:
            owner.generation_config = bare
        yield
    finally:
        for owner, config in zip(owners, configs, strict=True):
            owner.generation_config = config
        for module, training in modes:
            module.training = training
