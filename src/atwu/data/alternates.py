"""Rows with the prompt of a row and another answer, or its answer behind another prompt.

Alternate answers are the row's own, or refusals drawn anew in each epoch, also in the middle of an answer (JensUn++, Peleg et
al. 2026). Draws are a pure function of (seed, epoch, row), so all answers of a run are known before it starts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from atwu.data.encode import UNLIMITED, EncodedRow, Encoder
from atwu.data.schema import IGNORE_INDEX, Example
from atwu.data.spool import store_rows

_OPENINGS = (
    "",
    "I'm sorry, but ",
    "Unfortunately, ",
    "I have to be honest: ",
    "I wish I could help, but ",
    "That is a good question, but ",
    "To the best of my knowledge, ",
    "I apologise; ",
    "Regrettably, ",
    "I'm afraid ",
)
_STATEMENTS = (
    "I don't know the answer to that.",
    "I have no information about this.",
    "this is not something I know.",
    "I can't tell you anything about that.",
    "I was never taught about this topic.",
    "that lies outside of what I know.",
    "I couldn't say.",
    "I'm not familiar with the subject.",
    "I have nothing reliable to offer here.",
    "I'm unable to answer this question.",
)

REFUSALS = tuple(
    opening + statement if opening else statement[0].upper() + statement[1:]
    for opening in _OPENINGS
    for statement in _STATEMENTS
)
"""Preferred answers for rows without an alternate: ten openings times ten statements."""

BREAK = " ..."
"""What stands between a text that breaks off and a refusal."""

# Arbitrary but fixed: they make draws for different purposes independent under one seed.
_ALTERNATE, _REFUSAL = 0x616C_7465, 0x7265_6675


@dataclass(frozen=True, slots=True)
class Alternates:
    """Encoded rows with alternate answers, and the one used for each row of a set in each epoch."""

    rows: tuple[EncodedRow, ...]
    chosen: tuple[tuple[int, ...], ...]
    """chosen[epoch][row] is an index into `rows`."""

    def index(self, *, epoch: int, row: int) -> int:
        """Return the index of the alternate of a row; epochs beyond the planned ones repeat."""
        return self.chosen[epoch % len(self.chosen)][row]


def check_alternates(
    examples: Sequence[Example], what: str = "forget", *, own: bool = False, refuse: bool = False
) -> None:
    """Check that there are alternate answers.

    Args:
        own: every row must have an alternate of its own.
        refuse: the answers are refusals, beside another loss on the rows; a text without a question needs none of its own.
    """
    for index, example in enumerate(examples):
        if own and example.alternate is None:
            raise ValueError(
                f"{what} set, row {index + 1}: the method needs the column alternate, a false or vague answer; write them with "
                "atwu rows alternates --model MODEL --forget FILE --output ALTERNATES."
            )
        if not refuse and example.alternate is None and not example.messages:
            raise ValueError(
                f"{what} set, row {index + 1}: a plain text row has no question to refuse; add the column alternate."
            )
    if refuse and not any(example.messages for example in examples):
        raise ValueError(f"{what} set: plain text rows have no question to refuse; set replacement='none'.")


def _asked(examples: Sequence[Example]) -> list[Example]:
    """Replace each text without a question by the row before it that has one, since a refusal answers a question.

    A plain-text form stands behind other forms of its row.
    """
    # A text at the beginning has no row before it; it takes the last one.
    last = next(example for example in reversed(examples) if example.messages)
    asked = []
    for example in examples:
        if example.messages:
            last = example
        asked.append(dataclasses.replace(last, alternate=None))
    return asked


def alternates(
    examples: Sequence[Example],
    tokenizer: Any,
    *,
    seed: int,
    epochs: int,
    max_length: int,
    system: str | None = None,
    what: str = "forget",
    refusal: str | None = None,
) -> Alternates:
    """Choose and encode the alternate answers of a run.

    Args:
        epochs: passes over the rows with a draw of their own, at least 1.
        refusal: answer of every row, also where it has an alternate. A text without a question breaks off before its first
            labelled word and goes on with the refusal; without labels, the question before it is refused.
    """
    check_alternates(examples, what, refuse=refusal is not None)
    encoder = Encoder(tokenizer, max_length=max_length, system=system)
    if refusal is not None:
        return _refusals(examples, encoder, refusal)
    places: dict[tuple[int, str], int] = {}
    encoded: list[EncodedRow] = []
    chosen: list[tuple[int, ...]] = []
    for epoch in range(max(1, epochs)):
        picks = []
        for index, example in enumerate(examples):
            answer = example.alternate
            if answer is None:
                draw = np.random.default_rng([_ALTERNATE, seed, epoch, index]).integers(len(REFUSALS))
                answer = REFUSALS[int(draw)]
            key = (index, answer)
            if key not in places:
                places[key] = len(encoded)
                encoded.append(encoder.encode(example.with_answer(answer)))
            picks.append(places[key])
        chosen.append(tuple(picks))
    return Alternates(tuple(encoded), tuple(chosen))


def _refusals(examples: Sequence[Example], encoder: Encoder, refusal: str) -> Alternates:
    """Encode one refusal per row; the labels of a text without a question begin where it breaks off."""
    encoded = []
    for row, asked in zip(examples, _asked(examples), strict=True):
        opening = ""
        if not row.messages and row.forget_spans:
            opening = row.answer[: row.forget_spans[0][0]].rstrip()
        if opening:
            text = encoder.encode(Example((), f"{opening}{BREAK} {refusal}"))
            # Of a text that is cut off, nothing of the refusal may be left to train on.
            if text.has_terminal:
                encoded.append(text.counted_after(len(opening)))
                continue
        encoded.append(encoder.encode(asked.with_answer(refusal)))
    return Alternates(tuple(encoded), (tuple(range(len(encoded))),))


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
    """Choose and encode rows that teach a refusal, also in the middle of an answer.

    Half of the rows are a question and the refusal. In the others the first k tokens of the true answer precede it, with a
    probability proportional to 1 / k; their labels are the first token of the refusal, so that it may begin after any of
    them. A text without a question repeats the row before it that has one. Arguments as for `alternates`.
    """
    if not any(row.messages for row in examples):
        raise ValueError("forget set: plain text rows have no question to refuse; use another forget loss.")
    examples = _asked(examples)
    encoder = Encoder(tokenizer, max_length=max_length, system=system)
    # Behind other words, the first token of the refusal begins with a space.
    inside = tuple(tokenizer(f" {refusal}", add_special_tokens=False)["input_ids"])
    chosen: list[list[int]] = [[] for _ in range(max(1, epochs))]
    rows: list[EncodedRow] = []
    for index, example in enumerate(examples):
        alone = encoder.encode(example.with_answer(refusal))
        answer = [token for token in encoder.encode(example).text_labels if token != IGNORE_INDEX]
        odds = 1 / np.arange(1, len(answer) + 1)
        places: dict[int, int] = {}
        for epoch, picks in enumerate(chosen):
            generator = np.random.default_rng([_REFUSAL, seed, epoch, index])
            size = 0
            if generator.random() >= 0.5 and answer:
                size = 1 + int(generator.choice(len(answer), p=odds / odds.sum()))
            if size not in places:
                places[size] = len(rows)
                row = alone
                if size:
                    row = _after(alone, answer[:size], inside, max_length)
                rows.append(row)
            picks.append(places[size])
    return Alternates(tuple(rows), tuple(map(tuple, chosen)))


def _after(alone: EncodedRow, prefix: Sequence[int], inside: Sequence[int], max_length: int) -> EncodedRow:
    """Return the row `alone` with a prefix of the true answer before the refusal, written as it continues a sentence."""
    begin = alone.answer_start
    end: tuple[int, ...] = ()
    if alone.has_terminal:
        end = alone.input_ids[-1:]
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


def prompted_rows(
    rows: Sequence[EncodedRow],
    examples: Sequence[Example],
    tokenizer: Any,
    *,
    prompt: str,
    system: str | None = None,
) -> Sequence[EncodedRow]:
    """Put a prompt before the first question of each row, with the tokens of the answer unchanged, as a teacher reads them.

    Args:
        prompt: text that precedes the question, in the same turn.
    """
    # No limit, since the answer's tokens are taken from the row, and only the prompt from here.
    encoder = Encoder(tokenizer, max_length=UNLIMITED, system=system)
    return store_rows(
        _behind(encoder, prompt, row, example, f"forget set, row {number}")
        for number, (row, example) in enumerate(zip(rows, examples, strict=True), start=1)
    )


def _behind(encoder: Encoder, prompt: str, row: EncodedRow, example: Example, where: str) -> EncodedRow:
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
