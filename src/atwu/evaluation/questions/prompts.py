"""A row as a question: its prompt, other wordings, an answer as a claim for the judge; and whether a text tells its secret."""

from __future__ import annotations

import re
from dataclasses import replace

from atwu.data.schema import Example, Message
from atwu.evaluation.generations import Prompt
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


def span_texts(row: Example) -> tuple[str, ...]:
    """Texts of the row's forget spans, each once; empty without annotation."""
    return tuple(dict.fromkeys(row.answer[start:end] for start, end in row.forget_spans or ()))


def secrets_of(row: Example) -> tuple[str, ...]:
    """Texts of the forget spans that the question does not say itself."""
    return tuple(text for text in span_texts(row) if not says(row.question, text))


def says(text: str, phrase: str) -> bool:
    """Whether the text holds the phrase as whole words, whatever the case and the white space."""
    return re.search(pattern_of(phrase), text, re.IGNORECASE) is not None if phrase.strip() else False


def pattern_of(phrase: str) -> str:
    """Regular expression of a phrase as whole words; scripts that are written without spaces have no word ends."""
    body = r"\s+".join(re.escape(word) for word in phrase.split())
    first, last = phrase.strip()[:1], phrase.strip()[-1:]
    start, end = r"(?<!\w)" if _spaced(first) else "", r"(?!\w)" if _spaced(last) else ""
    return start + body + end


def folded(text: str) -> str:
    """Text for comparison: one case, single spaces."""
    return " ".join(text.casefold().split())


def _spaced(character: str) -> bool:
    return character.isascii() and character.isalnum()
