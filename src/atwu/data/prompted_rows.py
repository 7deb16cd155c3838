"""Rows whose question stands behind a prompt, with the tokens of the answer unchanged, as a teacher reads them."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

from atwu.data.encode import EncodedRow, Encoder
from atwu.data.schema import IGNORE_INDEX, Example
from atwu.data.spool import store_rows


def prompted_rows(
    rows: Sequence[EncodedRow],
    examples: Sequence[Example],
    tokenizer: Any,
    *,
    prompt: str,
    system: str | None = None,
) -> Sequence[EncodedRow]:
    """Put a prompt before the first question of each row.

    Args:
        rows: encoded rows.
        examples: the same rows as text.
        tokenizer: a fast tokenizer.
        prompt: text that precedes the question, in the same turn.
        system: as for `Encoder`.

    Returns:
        Rows with the same counted tokens, longer by the prompt.

    Raises:
        ValueError: a plain text row, which has no question.
    """
    encoder = Encoder(tokenizer, max_length=sys.maxsize, system=system)
    return store_rows(
        _behind(encoder, prompt, row, example, number)
        for number, (row, example) in enumerate(zip(rows, examples, strict=True), start=1)
    )


def _behind(encoder: Encoder, prompt: str, row: EncodedRow, example: Example, number: int) -> EncodedRow:
    where = f"forget set, row {number}"
    first = next((index for index, turn in enumerate(example.messages) if turn.role == "user"), None)
    if first is None:
        raise ValueError(f"{where}: a plain text row has no question to put a prompt before; use another forget loss.")
    messages = list(example.messages)
    messages[first] = dataclasses.replace(messages[first], content=f"{prompt}\n\n{messages[first].content}")
    asked = dataclasses.replace(example, messages=tuple(messages), forget_spans=None)
    before, start = encoder.encode(asked, where=where).prompt_ids, row.answer_start
    return EncodedRow(
        input_ids=(*before, *row.input_ids[start:]),
        labels=(*[IGNORE_INDEX] * len(before), *row.labels[start:]),
        token_labels=None,
        answer_offsets=(*[None] * len(before), *row.answer_offsets[start:]),
        has_terminal=row.has_terminal,
    )
