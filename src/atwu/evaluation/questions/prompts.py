"""Build prompts and judge claims from rows, and check whether a text contains a phrase."""

from __future__ import annotations

import re
from dataclasses import replace

from atwu.data.schema import Example, Message
from atwu.evaluation.generations import Prompt
from atwu.judge.verdicts import Claim


def question_prompt(row: Example, question: str | None = None, before: tuple[Message, ...] = ()) -> Prompt:
    """Return the prompt of a row, optionally with a paraphrased question or with turns before it."""
    turns = row.messages
    if question is not None:
        turns = (*turns[:-1], replace(turns[-1], content=question))
    lead = 1 if turns[0].role == "system" else 0
    return Prompt((*turns[:lead], *before, *turns[lead:]))


def question_and_paraphrases(row: Example, count: int) -> list[str | None]:
    """Return the row's own question (as None) and at most `count` paraphrases; nothing for a row without question."""
    return [None, *row.paraphrases[:count]] if row.messages else []


def claim(row: Example, answer: str | None) -> Claim | None:
    """Return an answer as a claim, None without one; it is judged by the row's own question, also if a paraphrase was asked."""
    if answer is None:
        return None
    facts = tuple(row.answer[start:end] for start, end in row.forget_spans or ())
    return Claim(question=row.question, reference=row.answer, answer=answer, facts=facts)


def span_texts(row: Example) -> tuple[str, ...]:
    """Return the labelled parts of the answer, each once; empty without labels."""
    return tuple(dict.fromkeys(row.answer[start:end] for start, end in row.forget_spans or ()))


def labelled_parts(row: Example) -> tuple[str, ...]:
    """Return the labelled parts of the answer that are not in the question."""
    return tuple(text for text in span_texts(row) if not says(row.question, text))


def says(text: str, phrase: str) -> bool:
    """Return whether a text contains a phrase as whole words, ignoring case and white space."""
    return re.search(pattern_of(phrase), text, re.IGNORECASE) is not None if phrase.strip() else False


def pattern_of(phrase: str) -> str:
    """Return a regular expression for a phrase as whole words; scripts without spaces have no word boundaries."""
    body = r"\s+".join(re.escape(word) for word in phrase.split())
    first, last = phrase.strip()[:1], phrase.strip()[-1:]
    start, end = r"(?<!\w)" if _spaced(first) else "", r"(?!\w)" if _spaced(last) else ""
    return start + body + end


def folded(text: str) -> str:
    """Normalize a text for comparison: case-folded, single spaces."""
    return " ".join(text.casefold().split())


def _spaced(character: str) -> bool:
    return character.isascii() and character.isalnum()
