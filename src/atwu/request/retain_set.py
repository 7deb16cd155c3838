"""Build a retain set: the closest rows of a corpus, and self-generated answers to general questions.

The neighbour set of a request, which is measured and not trained on, is from `related_questions.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from atwu.data.schema import Example
from atwu.data.text_similarity import similarities, words_of_text
from atwu.training.row_conflicts import row_keys

_INSIDE = re.compile(r"(?<![.!?:]\s)(?<!^)\b\w+")
"""A word that is not the first of a sentence; "Jean-Luc's" gives each part, as tokenized elsewhere."""
_NOBODY = frozenset(["the", "and", "for", "from", "with", "that", "this", "who", "what", "his", "her", "its"])
"""Words of a subject such as "The Beatles" that occur in nearly every text."""


def closest_corpus_rows(
    forget: Sequence[Example], corpus: Sequence[Example], count: int
) -> tuple[tuple[Example, ...], dict[str, int]]:
    """Return the rows of a corpus that are closest to the forget rows (cosine of TF-IDF vectors, Salton & Buckley 1988).

    Returns:
        At most `count` rows, closest first; none names a subject of the forget set or repeats another row. And the numbers of
        rows found and left out, by title.
    """
    subjects = names(forget)
    seen = {key for row in forget for key in row_keys(row)}
    about = repeated = 0
    by: Counter[str] = Counter()
    """Words that name a subject, in how many rows."""
    left: list[Example] = []
    for row in corpus:
        if named := subjects.intersection(words_of_text(_text(row))):
            about += 1
            by.update(named)
        elif seen & set(row_keys(row)):
            repeated += 1
        else:
            seen |= set(row_keys(row))
            left.append(row)
    rows: tuple[Example, ...] = ()
    if left:
        close = similarities([_text(row) for row in left], [_text(row) for row in forget]).max(axis=1)
        rows = tuple(left[index] for index in np.argsort(-close, kind="stable")[:count])
    words = sorted(by, key=lambda word: (-by[word], word))
    named_by = f" ({', '.join(words[:3])}{', ...' if len(words) > 3 else ''})" if words else ""
    return rows, {
        "rows from the corpus, close in topic": len(rows),
        f"  left out: they name a subject of the forget set{named_by}": about,
        "  left out: they repeat a forget row or another row": repeated,
    }


def names(rows: Iterable[Example]) -> set[str]:
    """Return the words, in lower case, that name a subject: those of `subject`, and capitalized words of questions."""
    found: set[str] = set()
    for row in rows:
        found |= {word for word in words_of_text(row.subject or "") if len(word) > 2}
        found |= {word.lower() for word in _INSIDE.findall(row.question) if len(word) > 2 and word[0].isupper()}
    return found - _NOBODY


def _text(row: Example) -> str:
    return " ".join([*(message.content for message in row.messages if message.role != "system"), row.answer])
