"""Similarity of short texts by their words (cosine of TF-IDF vectors, Salton & Buckley 1988)."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from atwu.data.arrays import FloatArray
from atwu.data.schema import Example

CLOSEST = 8
"""Number of closest retain rows of a forget row."""
_WORD = re.compile(r"\w+")


def words_of_text(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]


def similarities(texts: Sequence[str], others: Sequence[str]) -> FloatArray:
    """Return the cosine of every text with every other one, shape (texts, others), range [0, 1]."""
    from scipy.sparse import csr_array, diags_array

    # Sparse, since a vector has a number for each word of all texts; by hand, since scikit-learn is an extra.
    counts = [Counter(words_of_text(text)) for text in (*texts, *others)]
    texts_with = Counter(word for of_text in counts for word in of_text)
    index = {word: place for place, word in enumerate(texts_with)}
    rarity = np.array([math.log(len(counts) / number) for number in texts_with.values()])
    numbers = np.fromiter((number for of_text in counts for number in of_text.values()), float)
    places = np.fromiter((index[word] for of_text in counts for word in of_text), int)
    ends = np.cumsum([0, *map(len, counts)])
    matrix = csr_array((numbers * rarity[places], places, ends), shape=(len(counts), len(index)))
    lengths = np.sqrt(matrix.multiply(matrix).sum(axis=1))
    matrix = diags_array(1 / np.maximum(lengths, 1e-12)) @ matrix
    cosines: FloatArray = (matrix[: len(texts)] @ matrix[len(texts) :].T).toarray()
    return cosines


def closest_rows(
    rows: Sequence[Example],
    others: Sequence[Example],
    *,
    forms: tuple[Sequence[str], Sequence[str]] | None = None,
    count: int = CLOSEST,
) -> list[tuple[int, ...]]:
    """Return for each row the indices of the other rows with the most similar prompts, most similar first.

    A text without a question is compared as a whole.

    Args:
        forms: the form of each row and of each other row; only rows of the same form are compared.
        count: indices per row, at most; a row whose form no other row has gets none.
    """
    of_row, of_other = forms or (("",) * len(rows), ("",) * len(others))
    closest: list[tuple[int, ...]] = [()] * len(rows)
    for form in dict.fromkeys(of_row):
        mine, theirs = ([index for index, name in enumerate(which) if name == form] for which in (of_row, of_other))
        if not theirs:
            continue
        cosines = similarities([_prompt(rows[index]) for index in mine], [_prompt(others[index]) for index in theirs])
        order = np.argsort(-cosines, axis=1, kind="stable")[:, :count]
        for index, places in zip(mine, order.tolist(), strict=True):
            closest[index] = tuple(theirs[place] for place in places)
    return closest


def _prompt(row: Example) -> str:
    return " ".join(message.content for message in row.messages if message.role != "system") or row.answer
