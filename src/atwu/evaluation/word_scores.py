"""Scores of words for display: from the token scores of an answer, and their record over a run's training (`trace.json`).

Reports read them, so nothing here imports torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from pydantic import with_config

from atwu._file_reading import read_declared
from atwu.evaluation.metrics.score_auroc import TokenValues, token_values
from atwu.evaluation.result import STRICT

# A word starts with a letter, digit or underscore and may hold combining marks (U+0300.., and the vowel signs that
# `\w` leaves out), apostrophes and hyphens between letters, and points or commas between digits. Anything else that
# is not a space is a unit of its own; repeats ("...") and joined emoji stay together.
_LETTER = (
    r"[\w\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0900-\u0dff\u0e31-\u0e4e\u1ab0-\u1aff]"
)
_UNIT = re.compile(
    rf"{_LETTER}+(?:(?:['’\u2010\u2011-]+(?={_LETTER})|(?<=\d)[.,](?=\d)){_LETTER}+)*"
    r"|([^\w\s])(?:\1|[\ufe0f\U0001f3fb-\U0001f3ff]|\u200d\S)*"
)


@dataclass(frozen=True, slots=True)
class WordScore:
    """One word or punctuation mark of an answer with its score."""

    text: str
    start: int
    end: int
    """One past the last character."""
    score: float | None
    """Mean over the tokens that overlap the word; None if no token does (the answer was truncated)."""


def word_scores(answer: str, offsets: Sequence[tuple[int, int] | None], scores: TokenValues) -> list[WordScore]:
    """Return a score for each word of an answer: the mean over the tokens that overlap it.

    Words are split at white space; punctuation marks are words of their own; apostrophes, hyphens and decimal points
    inside a word stay ("author's", "Yun-Hwa", "3.5"). Scripts without spaces give long words.

    Args:
        offsets: Half-open character range of each token in `answer`; None or an empty range for special tokens.
            A leading space inside a token's range does not count as overlap.

    Returns:
        The words in order; joining `answer[word.start:word.end]` with the gaps between them gives the answer.
    """
    values = token_values(scores, "scores")
    spans = [(match.start(), match.end()) for match in _UNIT.finditer(answer)]
    collected: list[list[float]] = [[] for _ in spans]
    for offset, value in zip(offsets, values.tolist(), strict=True):
        if offset is None:
            continue
        # A token often begins with the space before its word, which would count for the word before.
        text = answer[offset[0] : offset[1]]
        start = offset[0] + len(text) - len(text.lstrip())
        end = offset[0] + len(text.rstrip())
        for place, (word_start, word_end) in enumerate(spans):
            if start < word_end and word_start < end:
                collected[place].append(value)
    words = []
    for (start, end), of_tokens in zip(spans, collected, strict=True):
        score = None
        if of_tokens:
            score = sum(of_tokens) / len(of_tokens)
        words.append(WordScore(answer[start:end], start, end, score))
    return words


def word_labels(words: Sequence[WordScore], spans: Sequence[tuple[int, int]]) -> list[int]:
    """Return 1 for each word that overlaps one of the half-open character spans, else 0."""
    return [int(any(word.start < end and start < word.end for start, end in spans)) for word in words]


TRACE_NAME = "trace.json"
TRACE_SCHEMA: Final = "atwu.trace/1"


@with_config(STRICT)
@dataclass(frozen=True, slots=True)
class TracedRow:
    """Word scores of one row over the run."""

    set: str
    """`forget`, or `holdout` for a row that was never trained on."""
    question: str
    answer: str
    forget_spans: tuple[tuple[int, int], ...] | None
    words: tuple[tuple[int, int], ...]
    """Character range of every word of `answer`."""
    scores: tuple[tuple[float | None, ...], ...]
    """One score per word for every traced step; None if no token overlaps the word."""


@with_config(STRICT)
@dataclass(frozen=True, slots=True)
class Trace:
    weighting: str
    steps: tuple[int, ...]
    """Optimizer steps at which weights were recorded; the first is 0."""
    rows: tuple[TracedRow, ...]
    auroc: Mapping[str, tuple[float | None, ...]]
    """`forget` and `holdout` -> mean AUROC within rows for every traced step."""
    seconds: float = 0.0
    """Time spent on tracing; part of the run's training time."""
    schema: Literal["atwu.trace/1"] = TRACE_SCHEMA


def read_trace(path: str | Path) -> Trace:
    return read_declared(path, Trace, TRACE_SCHEMA, what="trace", made_by="atwu study run")
