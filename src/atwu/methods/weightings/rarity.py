"""Frequency-based token weights: large for what is rare in the retain answers and not in the prompt.

They need no model and no training. Weights are ranks within the answer, so every answer has mean weight 1/2. `TokenCounts`
counts tokens. `WordCounts` counts whole words, so that all tokens of a name have the same weight under any tokenizer, and each
subject once, so that a word stays rare if it is frequent in the rows of one person only.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from atwu.data.arrays import FloatArray
from atwu.data.encode import EncodedRow
from atwu.data.schema import Example

PROMPT_FACTOR = 0.5
"""Factor on the surprise of a token that occurs in the prompt. A name in the question is as rare as a key token without
being one: with factor 1 the AUROC per sample is about 10 points lower on the built-in benchmark. Factor 0 (lowest rank) is
slightly better if words of the question are never labelled, and worse otherwise."""
_UNIT = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, slots=True, eq=False)
class TokenCounts:
    """Occurrences of each token id in the answers of a set of rows, usually the retain set."""

    counts: NDArray[np.int64]
    """Occurrences by token id, shape (ids,); ids beyond the end have 0."""

    @classmethod
    def of(cls, rows: Iterable[EncodedRow]) -> TokenCounts:
        """Count the counted tokens of the rows, terminal tokens included."""
        occurrences = Counter(token for row in rows for token in row.counted(row.labels))
        counts = np.zeros(max(occurrences, default=-1) + 1, dtype=np.int64)
        for token, count in occurrences.items():
            counts[token] = count
        return cls(counts)

    def initial_scores(self, row: EncodedRow) -> FloatArray:
        """Return the prior of a learned scorer (`rarity`)."""
        return self.rarity(row)

    def rarity(self, row: EncodedRow) -> FloatArray:
        """Rank the surprise of each counted token within its answer, `(rank - 1/2) / n` with mid-ranks for ties.

        The surprise is `log((N + 1) / (count + 1)) >= 0` with N counted tokens in total, halved for ids that occur in
        the prompt of the row. The terminal token is included.
        """
        ids = np.array(row.counted(row.labels), dtype=np.int64)
        known = ids < self.counts.size
        count = np.zeros(ids.size, dtype=np.float64)
        count[known] = self.counts[ids[known]]
        surprise = np.log((self.counts.sum() + 1.0) / (count + 1.0))
        surprise[np.isin(ids, _prompt(row))] *= PROMPT_FACTOR
        return mid_ranks(surprise)


def _prompt(row: EncodedRow) -> tuple[int, ...]:
    """Return the ids before the answer; none for a plain text row, although its first token is not counted."""
    start = row.answer_start
    return tuple(
        token for token, offset in zip(row.input_ids[:start], row.answer_offsets[:start], strict=True) if offset is None
    )


def mid_ranks(values: FloatArray) -> FloatArray:
    """`(rank - 1/2) / n` of each of n values, shape (n,); tied values get their mean rank."""
    from scipy.stats import rankdata

    ranks: FloatArray = (rankdata(values) - 0.5) / values.size
    return ranks


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
            example: its text, to whose answer `row.answer_offsets` refer.
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
    units = list(_UNIT.finditer(answer))
    starts = [unit.start() for unit in units]
    words: list[str | None] = []
    for offset in row.counted(row.answer_offsets):
        if offset is None or not answer[slice(*offset)].strip():
            words.append(None)
            continue
        piece = answer[slice(*offset)]
        first = offset[0] + len(piece) - len(piece.lstrip())  # a token may begin with the space before its word
        words.append(units[bisect_right(starts, first) - 1].group().lower())
    return words


def question_words(example: Example) -> set[str]:
    """Return the lower-case words of the question; for a plain text row, those of its subject."""
    return set(_words(example.question if example.messages else example.subject or ""))


def _words(text: str) -> list[str]:
    return [word.lower() for word in _UNIT.findall(text)]
