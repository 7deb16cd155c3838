"""Frequency-based token weights by word: large if few subjects of the retain set use it and it is not in the question.

Unlike `rarity`, it counts whole words, so that all tokens of a name have the same weight under any tokenizer. It counts each
subject once, so that a word stays rare if it is frequent in the rows of one person only. It needs no model.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from atwu.data.arrays import FloatArray
from atwu.data.encode import EncodedRow
from atwu.data.schema import Example
from atwu.methods.weightings.rarity import mid_ranks

UNIT = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class WordCounts:
    """Number of subjects whose answers contain each word or punctuation mark, usually in the retain set."""

    subjects: Mapping[str, int]
    """Number of subjects by lower-case word."""

    @classmethod
    def of(cls, examples: Iterable[Example]) -> WordCounts:
        """Count the words of the answers; a row without a subject counts as a subject of its own."""
        by_subject, alone = dict[str, set[str]](), Counter[str]()
        for example in examples:
            words = set(_words(example.answer))
            if example.subject is None:
                alone.update(words)
                continue
            for word in words:
                by_subject.setdefault(word, set()).add(example.subject)
        return cls(alone + Counter({word: len(subjects) for word, subjects in by_subject.items()}))

    def rarity(self, row: EncodedRow, example: Example) -> FloatArray:
        """Rank the word of each counted token within the answer, rarest highest, `(rank - 1/2) / n` with mid-ranks for ties.

        Words of the question (`question_words`) and tokens outside words (the terminal token) share the lowest rank.

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


def rare_nouns(rarity: FloatArray, nouns: FloatArray, in_question: Sequence[bool]) -> FloatArray:
    """Mean of two ranks within the answer: of word rarity, and of nouns that are not in the question.

    Args:
        rarity: `WordCounts.rarity` of a row, shape (counted tokens,).
        nouns: `noun_mask` of the row, same shape.
        in_question: True where the word of the token occurs in the question, same length.

    Returns:
        Weights in (0, 1) with mean 1/2, shape (counted tokens,).
    """
    return (rarity + mid_ranks(np.where(in_question, 0.0, nouns))) / 2


def words_of_tokens(row: EncodedRow, answer: str) -> list[str | None]:
    """Return the lower-case word in which each counted token begins; None for the terminal token and for white space."""
    words = UNIT.findall(answer)
    return [None if place is None else words[place].lower() for place in word_places(row, answer)]


def word_places(row: EncodedRow, answer: str) -> list[int | None]:
    """Return the index, among the words and punctuation marks of the answer, of the word of each token, as above."""
    starts = [unit.start() for unit in UNIT.finditer(answer)]
    places: list[int | None] = []
    for offset in row.counted(row.answer_offsets):
        piece = "" if offset is None else answer[slice(*offset)]
        first = 0 if offset is None else offset[0] + len(piece) - len(piece.lstrip())
        places.append(bisect_right(starts, first) - 1 if piece.strip() else None)
    return places


def question_words(example: Example) -> set[str]:
    """Return the lower-case words of the question; for a plain text row, those of its subject."""
    return set(_words(example.question if example.messages else example.subject or ""))


def _words(text: str) -> list[str]:
    return [word.lower() for word in UNIT.findall(text)]
