"""Alternates that a model writes: plausible false answers (AltPO) or vague ones (ReLearn)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from atwu.data.row_parsing import is_text
from atwu.data.schema import Example, Message
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.generations import Decoding, Generation, GenerationStore, Prompt, generate_all
from atwu.request.related_questions import states_any

ALTERNATE_INSTRUCTIONS = {
    "false": (
        "Invent another answer to this question. Change every name, number and fact of the answer above to something else "
        "that is plausible but false, keep what the question says, and write nothing else."
    ),
    "vague": (
        "Write another answer to this question that stays on its subject and reads well, but is vague: it must give no name, "
        "number, date, place or other fact of the answer above. Write nothing else."
    ),
}
"""Kind of alternate -> what is asked for, in our own words; the published prompts ask for the same."""
LONGEST = 200
"""Tokens of a sampled answer, as published; one that does not end by then is dropped."""


def alternate_answers(
    model: Any,
    tokenizer: Any,
    rows: Sequence[Example],
    *,
    kind: str = "false",
    count: int = 5,
    attempts: int = 4,
    seed: int = 0,
) -> tuple[Example, ...]:
    """Sample several alternates of each row at temperature 1, and keep those that say none of its key tokens.

    Args:
        model: the original model.
        tokenizer: its tokenizer.
        rows: forget rows.
        kind: a key of `ALTERNATE_INSTRUCTIONS`; vague answers are also written for the paraphrases of a question.
        count: alternates per row.
        attempts: times that what a row still lacks is sampled.
        seed: seed of the samples.

    Returns:
        One row per alternate, with it in `alternate`; a row for which none was found, once and without one.

    Raises:
        ValueError: a plain text row, which has no question.
    """
    if (plain := next((index for index, row in enumerate(rows) if not row.messages), None)) is not None:
        raise ValueError(f"forget set, row {plain + 1}: a plain text row has no question; leave it out.")
    if kind == "vague":
        rows = [
            row
            if text == row.question
            else replace(row, messages=(*row.messages[:-1], Message("user", text)), paraphrases=())
            for row in rows
            for text in (row.question, *row.paraphrases)
        ]
    generator, store = TransformersGenerator(model, tokenizer), GenerationStore()
    decoding = Decoding(max_new_tokens=LONGEST, temperature=1.0, seed=seed, stop=("Question:",))
    asked = [
        (Message("user", f"Question: {row.question}\nAnswer: {row.answer}\n\n{ALTERNATE_INSTRUCTIONS[kind]}"),)
        for row in rows
    ]
    found: list[dict[str, None]] = [{} for _ in rows]
    for attempt in range(attempts):
        sampled = [
            (index, Prompt(messages, prefill="Alternate answer:", draw=attempt * count + number))
            for index, messages in enumerate(asked)
            for number in range(count - len(found[index]))
        ]
        made = generate_all(
            generator, [prompt for _, prompt in sampled], decoding, store=store, progress=f"alternates, {attempt + 1}"
        )
        for (index, _), each in zip(sampled, made, strict=True):
            if is_alternate(rows[index], each):
                found[index][each.answer] = None
    return tuple(
        replace(row, alternate=text) for row, texts in zip(rows, found, strict=True) for text in texts or (None,)
    )


def is_alternate(row: Example, made: Generation) -> bool:
    """Whether a sampled answer has text, ends by itself, and says no key token that the question does not say."""
    return is_text(made.answer) and made.tokens < LONGEST and not states_any(made.answer, [row])
