"""Token weights from counts of words: few subjects of the retain set share the word, and the question does not say it.

Unlike `rarity` it counts whole words, so that all tokens of an invented name weigh alike however the tokenizer cuts it, and
counts each subject once, so that a word which fills the rows about one person remains that person's. Needs no model.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from atwu.data.encode import EncodedRow
from atwu.data.schema import Example
from atwu.methods.component_inputs import FloatArray
from atwu.methods.weightings.rarity import mid_ranks

_UNIT = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class WordCounts:
    """How many subjects of a set of rows, usually the retain set, have each word or punctuation mark in their answers."""

    subjects: Mapping[str, int]
    """By the word in lower case."""

    @classmethod
    def of(cls, examples: Iterable[Example]) -> WordCounts:
        """Count the words of the answers; a row without subject is one of its own."""
        found, alone = dict[str, set[str]](), Counter[str]()
        for example in examples:
            words = set(_words(example.answer))
            if example.subject is None:
                alone.update(words)
                continue
            for word in words:
                found.setdefault(word, set()).add(example.subject)
        return cls(alone + Counter({word: len(subjects) for word, subjects in found.items()}))

    def rarity(self, row: EncodedRow, example: Example) -> FloatArray:
        """Rank of each counted token's word within the answer, rarest highest, `(rank - 1/2) / n` with mid-ranks for ties.

        Words of the question (`question_words`), and tokens that begin in no word (the terminal token), share the lowest rank.

        Args:
            row: the encoded row.
            example: its text, to whose answer `row.answer_offsets` refer.

        Returns:
            Weights in (0, 1) with mean 1/2, shape (counted tokens,).
        """
        asked = question_words(example)
        common = [
            np.inf if word is None or word in asked else self.subjects.get(word, 0)
            for word in words_of_tokens(row, example.answer)
        ]
        return mid_ranks(-np.array(common, dtype=np.float64))


def rare_nouns(rarity: FloatArray, nouns: FloatArray, asked: Sequence[bool]) -> FloatArray:
    """Mean of two ranks within the answer: that of the word's rarity, and that of nouns that the question does not say.

    Args:
        rarity: `WordCounts.rarity` of a row, shape (counted tokens,).
        nouns: `noun_mask` of it, same shape.
        asked: True where the token's word is one of the question's, same length.

    Returns:
        Weights in (0, 1) with mean 1/2, shape (counted tokens,).
    """
    return (rarity + mid_ranks(np.where(asked, 0.0, nouns))) / 2


def words_of_tokens(row: EncodedRow, answer: str) -> list[str | None]:
    """The word, in lower case, that each counted token begins in; None for the terminal token and for white space."""
    units = list(_UNIT.finditer(answer))
    starts = [unit.start() for unit in units]
    found: list[str | None] = []
    for offset in row.counted(row.answer_offsets):
        piece = "" if offset is None else answer[slice(*offset)]
        first = 0 if offset is None else offset[0] + len(piece) - len(piece.lstrip())
        found.append(units[bisect_right(starts, first) - 1][0].lower() if piece.strip() else None)
    return found


def question_words(example: Example) -> set[str]:
    """Words of the question, in lower case; of a row that asks nothing those of its subject, which is no secret of it."""
    return set(_words(example.question if example.messages else example.subject or ""))


def _words(text: str) -> list[str]:
    return [word.lower() for word in _UNIT.findall(text)]
