"""How well a model knows the key tokens of an answer.

Most words of an answer ("His dog is called ...") carry no information, and a model that forgot the fact still predicts
them; their share differs between data sets. Key tokens make such data sets comparable. They are the tokens of the
labelled words (`forget_spans`) if a row has labels. Otherwise a rule finds them: names and numbers that are not in the
question, or longer words if there is no name. Words that are rare in general text are preferred ("Tokyo" is common, but
the only key word of "The capital of Japan is Tokyo."). Inflected words of the question do not count: "worked" after
"work", "Japanese" after "Japan".
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Set
from typing import TYPE_CHECKING

from atwu.benchmarks.general_rows import general_text_documents
from atwu.data.schema import Example
from atwu.evaluation.columns import FORGET_OR_RETAIN, Column
from atwu.evaluation.generations import Prompt
from atwu.evaluation.metric import Metric
from atwu.evaluation.questions.prompts import question_prompt

if TYPE_CHECKING:
    from atwu.evaluation.teacher_forced import TokenRow

_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
SHORTEST = 4
"""Minimum number of letters of a key word; shorter words are mostly function words."""
STEM, ENDING = 4, 3
"""Minimum length of a word of the question, and maximum length of its ending in the answer: Japan, Japanese."""


def key_token_spans(row: Example) -> tuple[tuple[int, int], ...]:
    """Return the character ranges of an answer's key words; if none qualifies, of new words, or of all words."""
    if row.forget_spans:
        return row.forget_spans
    every = list(_WORD.finditer(row.answer))
    asked = {_bare(word) for message in row.messages for word in _WORD.findall(message.content)}
    lower = {word.lower() for word in asked}
    unasked = [match for match in every if _bare(match.group()).lower() not in lower]
    new = [match for match in unasked if not _with_ending(_bare(match.group()), asked if _is_name(match) else lower)]
    rare = [match for match in new if _bare(match.group()).lower() not in _ordinary()]
    candidates = (_names_or_long_words(words, row) for words in (rare, new, unasked))
    return tuple(match.span() for match in next(filter(None, candidates), rare or new or every))


def _bare(word: str) -> str:
    """Remove the possessive `'s` of a word."""
    return re.sub("['’]s$", "", word)


def _is_name(match: re.Match[str]) -> bool:
    return match.group()[0].isupper()


def _with_ending(word: str, words: Set[str]) -> bool:
    """Return whether a word is one of `words` plus an ending; names are compared with names only ("Borneo", "born")."""
    stems = (word[:length] for length in range(max(STEM, len(word) - ENDING), len(word)))
    return word[0].isalpha() and any(stem in words for stem in stems)


def _names_or_long_words(words: list[re.Match[str]], row: Example) -> list[re.Match[str]]:
    """Return the names and numbers, or the longer words if there are none."""
    named = [word for word in words if _names(word, row.answer)]
    return named or [word for word in words if len(word.group()) >= SHORTEST]


def _names(word: re.Match[str], answer: str) -> bool:
    """Return whether a word is a number, or capitalized within a sentence."""
    text, before = word.group(), answer[: word.start()].rstrip(" \"'“‘(")
    return text[0].isdigit() or (text[0].isupper() and bool(before) and before[-1] not in ".!?:")


@functools.cache
def _ordinary() -> frozenset[str]:
    """Return the words of the shipped general questions and texts."""
    return frozenset(_bare(word).lower() for text in general_text_documents() for word in _WORD.findall(text))


def key_token_recall(row: Example, answer: str) -> float | None:
    """Share of the key words that an answer contains, in any order and case. Range [0, 1]; None for a row without
    words."""
    words = [word.lower() for start, stop in key_token_spans(row) for word in _WORD.findall(row.answer[start:stop])]
    answer_words = {word.lower() for word in _WORD.findall(answer)}
    return sum(word in answer_words for word in words) / len(words) if words else None


def key_token_probability(row: Example, read: TokenRow) -> float | None:
    """Geometric mean of the probabilities of the key tokens. Range [0, 1]; None for a row without words."""
    positions = _key_token_positions(row, read)
    return math.exp(float(read.logps[positions].mean())) if positions else None


def key_token_accuracy(row: Example, read: TokenRow) -> float | None:
    """Share of key tokens predicted correctly under teacher forcing. Range [0, 1]; None for a row without words."""
    positions = _key_token_positions(row, read)
    return float((read.predictions[positions] == read.targets[positions]).mean()) if positions else None


def _key_token_positions(row: Example, read: TokenRow) -> list[int]:
    """Return the positions of the key tokens among the counted tokens."""
    spans = key_token_spans(row)
    return [
        place
        for place, offset in enumerate(read.offsets)
        if offset is not None and any(offset[0] < stop and start < offset[1] for start, stop in spans)
    ]


class KeyTokens(Metric):
    """Key tokens: probability, teacher-forced accuracy, and recall in the greedy answer."""

    name = "key_tokens"
    about = "Key tokens (names, numbers, or labelled words of the answer): probability, accuracy, recall"
    cost = "one forward pass over every set and one answer per row"
    needs = (FORGET_OR_RETAIN,)
    needs_weights = False
    uses = ("max_new_tokens",)
    columns = (
        Column(
            "key_token_probability",
            key_token_probability,
            "key-token probability",
            "probability per key token of the true answer (geometric mean)",
        ),
        Column(
            "key_token_accuracy",
            key_token_accuracy,
            "key-token accuracy",
            "share of key tokens predicted correctly under teacher forcing",
        ),
        Column(
            "key_token_recall",
            key_token_recall,
            "key-token recall",
            "share of key words that the greedy answer contains",
        ),
    )

    def read(self) -> None:
        """Read every set; a served model only gives answers."""
        if self.session.model is None:
            self.session.warnings.append(
                "key_tokens: probability and accuracy need the model's weights; for a served model only the recall is "
                "measured."
            )
            return
        for split in self.session.forget_and_retain_sets:
            self.session.tokens(split)

    def prompts(self) -> Iterable[Prompt]:
        """Return every row's own question."""
        rows = [row for rows in self.session.forget_and_retain_sets.values() for row in rows]
        return [question_prompt(row) for row in rows if row.messages]

    def record(self) -> None:
        """Record the values."""
        teacher_forced = {"key_token_probability": key_token_probability, "key_token_accuracy": key_token_accuracy}
        for split, rows in self.session.forget_and_retain_sets.items():
            for name, formula in teacher_forced.items() if self.session.model is not None else ():
                read = self.session.tokens(split)
                self.record_column(split, name, [formula(row, tokens) for row, tokens in zip(rows, read, strict=True)])
            if any(row.messages for row in rows):
                recalls = [
                    key_token_recall(row, self.session.answer(question_prompt(row))) if row.messages else None
                    for row in rows
                ]
                self.record_column(split, "key_token_recall", recalls)
