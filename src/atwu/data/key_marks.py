"""Marks around the key tokens of an answer while it is rewritten, so that labels move with their words.

No rule would find the key tokens in a rewritten text, which may have no question. No row contains control characters.
"""

from __future__ import annotations

import re

from atwu.data.fact_blanks import MarkedFact
from atwu.data.schema import Span

MARK_BEGIN, MARK_END = "\x02", "\x03"


def marked(fact: MarkedFact, start: int = 0, end: int | None = None) -> str:
    """Return a range of an answer with marks around its key tokens."""
    end = len(fact.answer) if end is None else end
    text = ""
    for begin, stop in fact.labels:
        if start <= begin and stop <= end:
            text += f"{fact.answer[start:begin]}{MARK_BEGIN}{fact.answer[begin:stop]}{MARK_END}"
            start = stop
    return text + fact.answer[start:end]


def unmarked(text: str) -> tuple[str, tuple[Span, ...]]:
    """Return a text without marks, and the character ranges that they enclose."""
    plain = ""
    spans: list[Span] = []
    start = 0
    for piece in re.split(f"([{MARK_BEGIN}{MARK_END}])", text):
        if piece == MARK_BEGIN:
            start = len(plain)
        elif piece == MARK_END:
            spans.append((start, len(plain)))
        else:
            plain += piece
    return plain, tuple(spans)


def without_marks(text: str) -> str:
    return text.replace(MARK_BEGIN, "").replace(MARK_END, "")
