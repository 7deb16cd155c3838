"""How well a model knows the words of an answer that tell something.

Most words of an answer ("His dog is called ...") say nothing about the secret, and a model that forgot still finds them;
how many there are differs from one set of rows to another. The telling words are the labelled ones (`forget_spans`) where a
row has labels; else names and numbers that the question does not contain, or the longer words where there is no name: of
those that ordinary prose lacks too, where there are any ("Tokyo" is in ordinary prose, and yet all that "The capital of Japan
is Tokyo." tells). "Work" in the question is "worked" in the answer, and "Japan" is "Japanese". On telling words, rows of
different make can be compared.
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
"""Letters of a word that may tell something; shorter ones are mostly grammar."""
STEM, ENDING = 4, 3
"""Letters that a word of the question has at least, and that it may have further in the answer: Japan, Japanese."""


def key_token_spans(row: Example) -> tuple[tuple[int, int], ...]:
    """Character ranges of the telling words of an answer: where none stands out, of what is new in it, or of every word."""
    if row.forget_spans:
        return row.forget_spans
    every = list(_WORD.finditer(row.answer))
    asked = {_bare(word) for message in row.messages for word in _WORD.findall(message.content)}
    lower = {word.lower() for word in asked}
    unasked = [match for match in every if _bare(match.group()).lower() not in lower]
    new = [match for match in unasked if not _with_ending(_bare(match.group()), asked if _is_name(match) else lower)]
    rare = [match for match in new if _bare(match.group()).lower() not in _ordinary()]
    standing_out = (_standing_out(words, row) for words in (rare, new, unasked))
    return tuple(match.span() for match in next(filter(None, standing_out), rare or new or every))


def _bare(word: str) -> str:
    """A word without the `'s` of whose something is."""
    return re.sub("['’]s$", "", word)


def _is_name(match: re.Match[str]) -> bool:
    return match.group()[0].isupper()


def _with_ending(word: str, words: Set[str]) -> bool:
    """Whether a word is one of these with some letters more; a name is so behind a name alone ("Borneo" is not "born")."""
    stems = (word[:length] for length in range(max(STEM, len(word) - ENDING), len(word)))
    return word[0].isalpha() and any(stem in words for stem in stems)


def _standing_out(words: list[re.Match[str]], row: Example) -> list[re.Match[str]]:
    """Names and numbers, or longer words where there is none."""
    named = [word for word in words if _names(word, row.answer)]
    return named or [word for word in words if len(word.group()) >= SHORTEST]


def _names(word: re.Match[str], answer: str) -> bool:
    """Whether it is a number, or capitalised within a sentence."""
    text, before = word.group(), answer[: word.start()].rstrip(" \"'“‘(")
    return text[0].isdigit() or (text[0].isupper() and bool(before) and before[-1] not in ".!?:")


@functools.cache
def _ordinary() -> frozenset[str]:
    """Words of the shipped questions and texts."""
    return frozenset(_bare(word).lower() for text in general_text_documents() for word in _WORD.findall(text))


def key_token_recall(row: Example, answer: str) -> float | None:
    """Share of the telling words that an answer says, in any order and case. Range [0, 1]; None for a row without words."""
    words = [word.lower() for start, stop in key_token_spans(row) for word in _WORD.findall(row.answer[start:stop])]
    heard = {word.lower() for word in _WORD.findall(answer)}
    return sum(word in heard for word in words) / len(words) if words else None


def key_token_probability(row: Example, read: TokenRow) -> float | None:
    """Geometric mean of the probabilities of the telling words' tokens. Range [0, 1]; None for a row without words."""
    telling = _telling(row, read)
    return math.exp(float(read.logps[telling].mean())) if telling else None


def key_token_accuracy(row: Example, read: TokenRow) -> float | None:
    """Share of the telling words' tokens that are predicted right when those before are given. Range [0, 1]."""
    telling = _telling(row, read)
    return float((read.predictions[telling] == read.targets[telling]).mean()) if telling else None


def _telling(row: Example, read: TokenRow) -> list[int]:
    """Places of the telling words' tokens among the counted ones."""
    spans = key_token_spans(row)
    return [
        place
        for place, offset in enumerate(read.offsets)
        if offset is not None and any(offset[0] < stop and start < offset[1] for start, stop in spans)
    ]


class KeyTokens(Metric):
    """Telling words: their probability, whether they are guessed, and whether the answer to the row's question says them."""

    name = "key_tokens"
    about = "the words of an answer that tell something"
    cost = "one pass over every set, one answer per row"
    needs = (FORGET_OR_RETAIN,)
    needs_weights = False
    uses = ("max_new_tokens",)
    columns = (
        Column(
            "key_token_probability",
            key_token_probability,
            "telling words p",
            "probability of the words of an answer that tell something, per token (geometric mean)",
        ),
        Column(
            "key_token_accuracy",
            key_token_accuracy,
            "telling words guessed",
            "share of these words' tokens that are predicted right when the tokens before them are given",
        ),
        Column(
            "key_token_recall",
            key_token_recall,
            "telling words said",
            "share of the words that tell something which the greedy answer says",
        ),
    )

    def read(self) -> None:
        """Read every set; behind a server, only answers can be had."""
        if self.session.model is None:
            self.session.warnings.append(
                "telling: how probable and how well guessed the telling words are takes the model's weights; behind a server "
                "only what its answers say is measured."
            )
            return
        for split in self.session.forget_and_retain_sets:
            self.session.tokens(split)

    def prompts(self) -> Iterable[Prompt]:
        """Every row's own question."""
        rows = [row for rows in self.session.forget_and_retain_sets.values() for row in rows]
        return [question_prompt(row) for row in rows if row.messages]

    def record(self) -> None:
        """Record them."""
        teacher_forced = {"key_token_probability": key_token_probability, "key_token_accuracy": key_token_accuracy}
        for split, rows in self.session.forget_and_retain_sets.items():
            for name, formula in teacher_forced.items() if self.session.model is not None else ():
                read = self.session.tokens(split)
                self.record_column(split, name, [formula(row, tokens) for row, tokens in zip(rows, read, strict=True)])
            if any(row.messages for row in rows):
                said = [
                    key_token_recall(row, self.session.answer(question_prompt(row))) if row.messages else None
                    for row in rows
                ]
                self.record_column(split, "key_token_recall", said)
