"""Select retain rows from a corpus: close to the forget rows in topic, never about their subject."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from atwu.data.arrays import FloatArray
from atwu.data.schema import Example
from atwu.data.text_similarity import similarities, words_of_text

_INSIDE = re.compile(r"(?<![.!?:]\s)(?<!^)\b\w+")
"""A word that is not the first of a sentence; "Jean-Luc's" gives each part, as tokenized elsewhere."""
_NOBODY = frozenset(["the", "and", "for", "from", "with", "that", "this", "who", "what", "his", "her", "its"])
"""Words of a subject such as "The Beatles" that occur in nearly every text."""


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Rows selected from a corpus, and counts of the rows left out."""

    rows: tuple[Example, ...]
    about: int
    """Rows left out because they name a subject of the forget set."""
    by: tuple[str, ...]
    """The words that named it, most frequent first."""
    repeated: int
    """Rows left out because they repeat a question or answer of a forget row or of an earlier row."""


def neighbour_rows(forget: Sequence[Example], corpus: Sequence[Example], count: int) -> Neighbours:
    """Return the rows of a corpus that are closest to the forget rows (cosine of TF-IDF vectors, Salton & Buckley 1988).

    Returns:
        At most `count` rows, closest first; none names a subject of the forget set or repeats another row.
    """
    subjects = names(forget)
    seen = {key for row in forget for key in _keys(row)}
    about = repeated = 0
    by: Counter[str] = Counter()
    left: list[Example] = []
    for row in corpus:
        if named := subjects.intersection(words_of_text(_text(row))):
            about += 1
            by.update(named)
        elif seen & set(_keys(row)):
            repeated += 1
        else:
            seen |= set(_keys(row))
            left.append(row)
    words = tuple(sorted(by, key=lambda word: (-by[word], word)))
    if not left:
        return Neighbours((), about, words, repeated)
    close = closeness([_text(row) for row in left], [_text(row) for row in forget])
    order = np.argsort(-close, kind="stable")[:count]
    return Neighbours(tuple(left[index] for index in order), about, words, repeated)


def check_no_overlap(kept: Sequence[Example], gone: Sequence[Example], *, source: str, why: str) -> None:
    """Check that no retain row repeats a forget row: the same question or, without a question, the same text.

    Args:
        kept: retain rows.
        gone: forget rows of this or an earlier request.
        source: name of the retain rows in errors.
        why: what errors say about such a row.

    Raises:
        ValueError: a row does; the message names it.
    """
    removed = {_keys(row)[0] for row in gone}
    found = [place for place, row in enumerate(kept, start=1) if _keys(row)[0] in removed]
    if found:
        first = kept[found[0] - 1]
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        raise ValueError(
            f"{source}: row {found[0]}{more} {why} ({(first.question or first.answer)[:60]!r}); leave such rows out of "
            "--retain, as `atwu retain build --corpus` does."
        )


def names(rows: Iterable[Example]) -> set[str]:
    """Return the words, in lower case, that name a subject: those of `subject`, and capitalized words of questions."""
    found: set[str] = set()
    for row in rows:
        found |= {word for word in words_of_text(row.subject or "") if len(word) > 2}
        found |= {word.lower() for word in _INSIDE.findall(row.question) if len(word) > 2 and word[0].isupper()}
    return found - _NOBODY


def names_any(text: str, subjects: set[str]) -> bool:
    """Whether a text contains one of these words."""
    return not subjects.isdisjoint(words_of_text(text))


def _text(row: Example) -> str:
    return " ".join([*(message.content for message in row.messages if message.role != "system"), row.answer])


def _keys(row: Example) -> tuple[str, ...]:
    """Return question and answer of a row without case and punctuation."""
    asked, said = " ".join(words_of_text(row.question)), " ".join(words_of_text(row.answer))
    return (f"q {asked}", f"a {said}") if asked else (f"a {said}",)


def closeness(texts: Sequence[str], others: Sequence[str]) -> FloatArray:
    """Return for each text the largest similarity with any of the others, shape (texts,)."""
    closest: FloatArray = similarities(texts, others).max(axis=1)
    return closest
