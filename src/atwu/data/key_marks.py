"""Marks around the key tokens of an answer while it is rewritten, so that labels move with their words.

No rule would find the key tokens in a rewritten text, which may have no question. No row contains control characters.
"""

from __future__ import annotations

import re

from atwu.data.fact_blanks import MarkedFact
from atwu.data.schema import Span

BEGIN, END = "\x02", "\x03"


def marked(fact: MarkedFact, start: int = 0, end: int | None = None) -> str:
    """Return a range of an answer with marks around its key tokens."""
    end = len(fact.answer) if end is None else end
    text = ""
    for begin, stop in fact.labels:
        if start <= begin and stop <= end:
            text += f"{fact.answer[start:begin]}{BEGIN}{fact.answer[begin:stop]}{END}"
            start = stop
    return text + fact.answer[start:end]


def unmarked(text: str) -> tuple[str, tuple[Span, ...]]:
    """Return a text without marks, and the character ranges that they enclose."""
    plain = ""
    spans: list[Span] = []
    start = 0
    for piece in re.split(f"([{BEGIN}{END}])", text):
        if piece == BEGIN:
            start = len(plain)
        elif piece == END:
            spans.append((start, len(plain)))
        else:
            plain += piece
    return plain, tuple(spans)


def without_marks(text: str) -> str:
    return text.replace(BEGIN, "").replace(END, "")
