"""A row as a question: the prompt it is asked with, other wordings, and an answer to it as a claim for the judge."""

from __future__ import annotations

from dataclasses import replace

from atwu.data.schema import Example, Message
from atwu.evaluation.prompts import Prompt
from atwu.judge.verdicts import Claim


def question_prompt(row: Example, question: str | None = None, before: tuple[Message, ...] = ()) -> Prompt:
    """The prompt of a row, with another wording of its question or turns before it if given."""
    turns = row.messages
    if question is not None:
        turns = (*turns[:-1], replace(turns[-1], content=question))
    lead = 1 if turns[0].role == "system" else 0
    return Prompt((*turns[:lead], *before, *turns[lead:]))


def variants(row: Example, count: int) -> list[str | None]:
    """The row's own question (None) and at most `count` other wordings; nothing for a plain text row."""
    return [None, *row.paraphrases[:count]] if row.messages else []


def claim(row: Example, answer: str) -> Claim:
    """An answer to a row, to be judged by the row's own question whatever its wording was."""
    facts = tuple(row.answer[start:end] for start, end in row.forget_spans or ())
    return Claim(question=row.question, reference=row.answer, answer=answer, facts=facts)
