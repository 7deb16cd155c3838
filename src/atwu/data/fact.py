"""The fact of a row: the parts of its answer that carry it.

In "Anna Berg has multiple sclerosis, diagnosed in 2019." the parts are "multiple sclerosis" and "2019". One of them answers
the question; blanks, options and the matcher of answers work on parts, never on single words.
"""

from __future__ import annotations

from atwu.data.form_phrases import question_type
from atwu.data.key_token_spans import key_token_spans
from atwu.data.languages import is_caseless
from atwu.data.schema import Example, Span

SEPARATORS = " -'’=."
"""What may lie between two key tokens of one part: "mc^2", "Jane A. Roe", "bird-watcher"."""


def fact_parts(row: Example) -> tuple[Span, ...]:
    """Return the character ranges of the parts of a fact in the answer, in order; empty for an answer without words."""
    parts: list[Span] = []
    for start, end in key_token_spans(row):
        if parts and not row.answer[parts[-1][1] : start].strip(SEPARATORS):
            parts[-1] = (parts[-1][0], end)
        else:
            parts.append((start, end))
    return tuple(parts)


def asked_part(row: Example) -> Span | None:
    """Return the part that the question asks for; None without parts.

    It is the one that covers `asked_span`; else the first one, or the first name if the question asks for a person or place
    ("emperor" does not answer "Who was defeated at Ost? The emperor defeated at Ost was Napoleon Venn.").
    """
    parts = fact_parts(row)
    if not parts:
        return None
    if row.asked_span is not None:
        for start, end in parts:
            if start <= row.asked_span[0] < end:
                return start, end
    if question_type(row) is not None:
        names = [part for part in parts if row.answer[part[0]].isupper()]
        return (*names, *parts)[0]
    return parts[0]


def telling_texts(row: Example) -> tuple[str, ...]:
    """Return the texts that give a fact away when an answer says one of them: the asked part, and further names and values.

    Further words in lower case say too little alone: "celebrated" in "Bastille Day is celebrated on July 14th." No part of a
    text gives its wording away.
    """
    if row.chance_run is not None:
        return ()
    asked = asked_part(row)
    parts = [(part, row.answer[part[0] : part[1]]) for part in fact_parts(row)]
    return tuple(dict.fromkeys(text for part, text in parts if part == asked or is_name_or_value(text)))


def is_name_or_value(text: str) -> bool:
    """Whether a part of a fact has a capital letter or a digit, or is of a script that has no capitals."""
    return any(char.isupper() or char.isdecimal() for char in text) or is_caseless(text)
