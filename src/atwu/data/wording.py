"""Texts whose fact is their wording: a model that forgot one can no longer continue it word for word.

A plain text of some length without labels is such a text. A request marks it (`Example.chance_run`) before training, and then
its key tokens are the words that the model has by heart.
"""

from __future__ import annotations

from dataclasses import dataclass

from atwu.data.passages import cut_words, word_spans
from atwu.data.schema import Example, Span

FEWEST_TEXT_WORDS = 12
"""Words of a text from which its wording is its fact; a shorter one states a fact: "The capital of France is Paris."."""
OPENING_WORDS = 3
"""First words of a text, which no opening gives away and which are not unlearned."""
LEAST_CHANCE_RUN, MOST_CHANCE_RUN = 4, 7
"""Bounds of `chance_run`. Four common words follow each other in any text ("at the end of"). Common phrases have up to six or
seven words; a model that says more saw the text, or copies."""
MOST_RECITED = 40
"""Words behind an opening that a continuation is compared with, at most; an answer of 64 tokens has about as many."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A text cut in two, to be continued."""

    opening: str
    wording: str
    """What follows, up to `MOST_RECITED` words."""


def has_wording(row: Example) -> bool:
    """Return whether a row is a text without labels that is long enough to be recited."""
    return not row.messages and not row.forget_spans and len(word_spans(row.answer)) >= FEWEST_TEXT_WORDS


def wording_span(row: Example) -> Span:
    """Return the range of a text behind its first words."""
    words = word_spans(row.answer)
    return words[min(OPENING_WORDS, len(words) - 1)][0], words[-1][1]


def cut_text(text: str, share: float) -> Cut | None:
    """Cut a text behind a share of its words; None if one of the two sides would have fewer than `OPENING_WORDS`."""
    count = len(word_spans(text))
    given = max(OPENING_WORDS, round(share * count))
    if count - given < OPENING_WORDS:
        return None
    opening, rest = cut_words(text, given)
    if len(word_spans(rest)) > MOST_RECITED:
        rest, _ = cut_words(rest, MOST_RECITED)
    return Cut(opening, rest)
