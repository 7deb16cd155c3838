"""Select retain rows from a corpus: close to the forget rows in topic, never about their subject."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from atwu.data.schema import Example

_WORD = re.compile(r"\w+")
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
        if named := subjects.intersection(_words(_text(row))):
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
        found |= {word for word in _words(row.subject or "") if len(word) > 2}
        found |= {word.lower() for word in _INSIDE.findall(row.question) if len(word) > 2 and word[0].isupper()}
    return found - _NOBODY


def names_any(text: str, subjects: set[str]) -> bool:
    """Whether a text contains one of these words."""
    return not subjects.isdisjoint(_words(text))


def _text(row: Example) -> str:
    return " ".join([*(message.content for message in row.messages if message.role != "system"), row.answer])


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]


def _keys(row: Example) -> tuple[str, ...]:
    """Return question and answer of a row without case and punctuation."""
    asked, said = " ".join(_words(row.question)), " ".join(_words(row.answer))
    return (f"q {asked}", f"a {said}") if asked else (f"a {said}",)


def closeness(texts: Sequence[str], others: Sequence[str]) -> np.ndarray:
    """Return for each text the largest cosine of its TF-IDF vector with those of the others, shape (texts,)."""
    from scipy.sparse import csr_array, diags_array

    counts = [Counter(_words(text)) for text in (*texts, *others)]
    seen = Counter(word for each in counts for word in each)
    index = {word: place for place, word in enumerate(seen)}
    rarity = np.array([math.log(len(counts) / number) for number in seen.values()])
    numbers = np.fromiter((number for each in counts for number in each.values()), float)
    places = np.fromiter((index[word] for each in counts for word in each), int)
    ends = np.cumsum([0, *map(len, counts)])
    matrix = csr_array((numbers * rarity[places], places, ends), shape=(len(counts), len(index)))
    lengths = np.sqrt(matrix.multiply(matrix).sum(axis=1))
    matrix = diags_array(1 / np.maximum(lengths, 1e-12)) @ matrix
    closest: np.ndarray = (matrix[: len(texts)] @ matrix[len(texts) :].T).max(axis=1).toarray().ravel()
    return closest
