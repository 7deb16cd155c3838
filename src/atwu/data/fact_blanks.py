"""Where a blank may be put in an answer: the parts of its fact whole, and the beginning before them.

A part that cuts a word or a value ("500" of "$84,500.50") is extended to all of it; a blank replaces the part and every other
mention of it. With several parts ("Anna Berg has multiple sclerosis, diagnosed in 2019."), all are blanked, because a fact that
is half said in its own blank is easier to recall. If fewer than two words would be left, only the part that the question asks
for is blanked.

While an answer is rewritten, marks stand around its key tokens, so that labels move with their words: no rule would find them
in a rewritten text, which may have no question. No row contains control characters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from atwu.data.fact import asked_part, fact_parts, key_token_spans
from atwu.data.languages import WORD, count_words, is_unspaced
from atwu.data.schema import Example, Span, merged_spans, overlap
from atwu.data.values import find_values

LEAST_WORDS = 2
"""Words that a sentence with blanks, or the beginning of one, must have."""
_LONG_MENTION = 4
"""Letters from which a mention may differ in the case of its first one: "Raven" and "raven", but not "It" and "it"."""


@dataclass(frozen=True, slots=True)
class FactParts:
    """The parts of a row's answer that carry its fact."""

    answer: str
    parts: tuple[Span, ...]
    """Character ranges of the parts, whole words and values, in order."""
    asked: Span
    """The part that the question asks for; where labels divide a part ("apixaban twice a day"), the label in it."""
    labels: tuple[Span, ...]
    """Character ranges of the key tokens, whole values."""

    @property
    def asked_text(self) -> str:
        return self.text(self.asked)

    def text(self, part: Span) -> str:
        return self.answer[part[0] : part[1]]

    def blanked_parts(self) -> tuple[Span, ...]:
        """Return the parts that a blank replaces: all, or else the asked one; empty if this leaves no sentence."""
        for parts in (self.parts, (self.asked,)):
            if count_words(self.with_blanks(parts, "")) >= LEAST_WORDS:
                return parts
        return ()

    def with_blanks(self, parts: Sequence[Span], blank: str) -> str:
        """Return the answer with a blank in place of some parts and of their other mentions."""
        mentions = (span for part in parts for span in find_mentions(self.answer, self.text(part)))
        others = [span for span in mentions if not any(overlap(span, part) for part in parts)]
        pieces: list[str] = []
        position = 0
        for start, end in merged_spans((*parts, *others)):
            pieces += (self.answer[position:start], blank)
            position = end
        return "".join((*pieces, self.answer[position:]))


def find_fact(row: Example) -> FactParts | None:
    """Return the fact of a row; None for an answer without words."""
    asked = asked_part(row)
    if asked is None:
        return None
    wholes = [(value.start, value.end) for value in find_values(row.answer)]
    wholes += [match.span() for match in WORD.finditer(row.answer) if not is_unspaced(match.group())]
    parts = _extended(fact_parts(row), wholes, row.answer)
    labels = _extended(key_token_spans(row), wholes, row.answer)
    if row.asked_span is not None:
        # A neighbour may have been joined to it: "apixaban twice a day".
        asked = row.asked_span
    whole = _extended([asked], wholes, row.answer)
    if not whole or not parts:
        return None
    return FactParts(row.answer, parts, whole[0], labels)


def _extended(spans: Sequence[Span], wholes: Sequence[Span], answer: str) -> tuple[Span, ...]:
    """Extend ranges to all of what they cut, without spaces around them."""
    extended: list[Span] = []
    for start, end in spans:
        text = answer[start:end]
        start, end = start + len(text) - len(text.lstrip()), end - len(text) + len(text.rstrip())
        cut = [whole for whole in wholes if overlap((start, end), whole)]
        extended.append((min([start, *(first for first, _ in cut)]), max([end, *(last for _, last in cut)])))
    return merged_spans(span for span in extended if span[0] < span[1])


def find_mentions(text: str, words: str) -> list[Span]:
    """Return where some words stand in a text, but not as a part of a longer word, such as "Japan" in "Japanese"."""
    first, others = words[0], words[1:]
    if len(words) >= _LONG_MENTION:
        first = words[0].lower() + words[0].upper()
    spans: list[Span] = []
    # All but the first character are searched for, since its case may differ. A pattern would have to be compiled each time.
    place = text.find(others, 1)
    while place > 0:
        start, end = place - 1, place - 1 + len(words)
        joined_before = _are_one_word(text[max(start - 1, 0) : start], words[0])
        joined_behind = _are_one_word(words[-1], text[end : end + 1])
        searched = start + 1
        if text[start] in first and not joined_before and not joined_behind:
            spans.append((start, end))
            searched = end
        place = text.find(others, searched + 1)
    return spans


def _are_one_word(character: str, following: str) -> bool:
    """Return whether two characters next to each other belong to one word; empty ones do not."""
    return character.isalnum() and following.isalnum() and not is_unspaced(character) and not is_unspaced(following)


def replace_words(text: str, words: str, instead: str) -> str:
    """Replace some words, but not a part of a longer one."""
    return replace_spans(text, find_mentions(text, words), instead)


def replace_spans(text: str, spans: Sequence[Span], instead: str) -> str:
    """Replace character ranges, given in order."""
    # From the end, so that earlier positions stay right.
    for start, end in reversed(spans):
        text = text[:start] + instead + text[end:]
    return text


MARK_BEGIN, MARK_END = "\x02", "\x03"


def with_marks(fact: FactParts, start: int = 0, end: int | None = None) -> str:
    """Return a range of an answer with marks around its key tokens, those that lie in it as a whole."""
    if end is None:
        end = len(fact.answer)
    text = ""
    written = start
    for begin, stop in fact.labels:
        if start <= begin and stop <= end:
            text += f"{fact.answer[written:begin]}{MARK_BEGIN}{fact.answer[begin:stop]}{MARK_END}"
            written = stop
    return text + fact.answer[written:end]


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
