"""Rows that teach a refusal, also in the middle of an answer (JensUn++, Peleg et al. 2026).

Half of the rows are a question and a refusal. In the others the first k tokens of the true answer precede the refusal, with a
probability proportional to 1 / k; their labels are the first token of the refusal, so that it may begin after any of them.
Draws are a pure function of (seed, epoch, row).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from atwu.data.alternates import Alternates
from atwu.data.encode import EncodedRow, Encoder
from atwu.data.schema import IGNORE_INDEX, Example

_REFUSAL = 0x7265_6675


def refusal_rows(
    examples: Sequence[Example],
    tokenizer: Any,
    *,
    refusal: str,
    seed: int,
    epochs: int,
    max_length: int,
    system: str | None = None,
) -> Alternates:
    """Choose and encode the refusals of a run.

    Args:
        examples: forget rows as text.
        tokenizer: a fast tokenizer.
        refusal: the refusal.
        seed: seed of the run.
        epochs: passes over the forget set, at least 1.
        max_length: longest row in tokens.
        system: as for `Encoder`.

    Raises:
        ValueError: a plain text row, which has no question to refuse.
    """
    if (plain := next((index for index, row in enumerate(examples) if not row.messages), None)) is not None:
        raise ValueError(
            f"forget set, row {plain + 1}: a plain text row has no question to refuse; use another forget loss."
        )
    encoder = Encoder(tokenizer, max_length=max_length, system=system)
    inside = tuple(tokenizer(f" {refusal}", add_special_tokens=False)["input_ids"])
    chosen: list[list[int]] = [[] for _ in range(max(1, epochs))]
    rows: list[EncodedRow] = []
    for index, example in enumerate(examples):
        alone = encoder.encode(dataclasses.replace(example, answer=refusal, forget_spans=None))
        answer = [token for token in encoder.encode(example).text_labels if token != IGNORE_INDEX]
        places: dict[int, int] = {}
        for epoch, picks in enumerate(chosen):
            size = _prefix(np.random.default_rng([_REFUSAL, seed, epoch, index]), len(answer))
            if size not in places:
                places[size] = len(rows)
                rows.append(_after(alone, answer[:size], inside, max_length) if size else alone)
            picks.append(places[size])
    return Alternates(tuple(rows), tuple(map(tuple, chosen)))


def _prefix(generator: np.random.Generator, tokens: int) -> int:
    """Draw how many tokens of an answer precede the refusal."""
    if generator.random() < 0.5 or not tokens:
        return 0
    odds = 1 / np.arange(1, tokens + 1)
    return 1 + int(generator.choice(tokens, p=odds / odds.sum()))


def _after(alone: EncodedRow, prefix: Sequence[int], inside: Sequence[int], max_length: int) -> EncodedRow:
    """Return the refusal after some tokens of the answer.

    Args:
        alone: the question and the refusal.
        prefix: those tokens, at least one.
        inside: the refusal as it continues a sentence.
        max_length: longest row in tokens.
    """
    begin = alone.answer_start
    end = alone.input_ids[-1:] if alone.has_terminal else ()
    ids = (*alone.prompt_ids, *prefix, *inside, *end)
    starts = (alone.labels[begin], *[inside[0]] * (len(prefix) - 1))
    labels = (*[IGNORE_INDEX] * begin, *starts, *inside, *end)
    return dataclasses.replace(
        alone,
        input_ids=ids[:max_length],
        labels=labels[:max_length],
        answer_offsets=(None,) * min(len(ids), max_length),
        has_terminal=alone.has_terminal and len(ids) <= max_length,
    )
