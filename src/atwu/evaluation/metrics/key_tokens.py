"""How well a model knows the key tokens of an answer (`atwu.data.fact`).

A model that forgot a fact still predicts most words of its answer; their share differs between data sets. Key tokens make
such data sets comparable.

A model that refuses may know the answer all the same. The asked part of a row's answer is replaced by texts that would be wrong
in its place, such as what the original model answers about related subjects ("Berlin", "Tokyo" for "Paris"), and the model
reads all of them behind the same question and the same beginning of the answer. It needs no words of any language.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import mean
from typing import TYPE_CHECKING

import numpy as np

from atwu.data.arrays import FloatArray
from atwu.data.fact import asked_part, key_token_spans, telling_texts
from atwu.data.matching import stated_share
from atwu.data.schema import Example, Span, overlap
from atwu.evaluation.columns import FORGET_OR_RETAIN, Column
from atwu.evaluation.metric import Metric

if TYPE_CHECKING:
    from atwu.evaluation.teacher_forced import TokenRow
    from atwu.methods.weightings.contrast import TokenLogps


ALTERNATIVES = 4
"""Wrong texts per fact; chance is then one in five."""

ReadLogps = Callable[[Sequence[Example]], Sequence[FloatArray]]
"""Reads rows teacher-forced: the log-probabilities of the tokens of each answer."""


def key_token_recall(row: Example, answer: str) -> float | None:
    """Share of the key text that an answer states (`stated_share`), mean over its parts. Range [0, 1]; None for a row without
    words."""
    shares = [stated_share(answer, part, aliases=row.aliases, question=row.question) for part in telling_texts(row)]
    if not shares:
        return None
    return mean(shares)


def key_token_probability(row: Example, tokens: TokenRow | TokenLogps) -> float | None:
    """Geometric mean of the probabilities of the key tokens. Range [0, 1]; None for a row without words."""
    positions = key_token_positions(row, tokens.offsets)
    if not positions:
        return None
    return math.exp(float(tokens.logps[positions].mean()))


def fact_probability(row: Example, tokens: TokenRow | TokenLogps) -> float | None:
    """Probability of a fact: that of the least likely token of the part that the question asks for.

    A part comes out only if each of its tokens does. Behind "war", the rest of "warfarin" is certain whatever was forgotten,
    and a mean would take it for knowledge. Of "Anna Berg has multiple sclerosis, diagnosed in 2019.", a model may have lost the
    year and still know the illness, so that other parts do not count.

    Returns:
        Range [0, 1]; None for a row without words. Of a text to be recited, the words known by heart are the fact, and no part
        of them is asked for: `key_token_probability`.
    """
    probability = key_token_probability(row, tokens)
    part = asked_part(row)
    if probability is None or part is None or row.chance_run is not None:
        return probability
    positions = token_positions((part,), tokens.offsets)
    if not positions:
        return probability
    return math.exp(float(tokens.logps[positions].min()))


def key_token_accuracy(row: Example, tokens: TokenRow) -> float | None:
    """Share of key tokens predicted correctly under teacher forcing. Range [0, 1]; None for a row without words."""
    positions = key_token_positions(row, tokens.offsets)
    if not positions:
        return None
    return float((tokens.predictions[positions] == tokens.targets[positions]).mean())


def key_token_positions(row: Example, offsets: Sequence[tuple[int, int] | None]) -> list[int]:
    """Return the positions of the key tokens, given the character range of each token in the answer."""
    return token_positions(key_token_spans(row), offsets)


def token_positions(spans: Sequence[Span], offsets: Sequence[tuple[int, int] | None]) -> list[int]:
    """Return the positions of the tokens that overlap one of the character ranges."""
    return [place for place, offset in enumerate(offsets) if any(overlap(offset, span) for span in spans)]


def known_probabilities(rows: Sequence[Example], read: ReadLogps) -> list[float | None]:
    """Compute the probability of each fact among its alternatives.

    Args:
        rows: question-answer rows with `alternatives`.
        read: reads rows with the model.

    Returns:
        Probability in (0, 1), 1/5 for a model that cannot tell; None for a row without `ALTERNATIVES` alternatives or without a
        fact. The answer is read up to the end of the part: what follows would tell nothing about it.
    """
    choices = [_choices(row) for row in rows]
    logps = iter(read([choice for several in choices for choice in several]))
    probabilities: list[float | None] = []
    for several in choices:
        if not several:
            probabilities.append(None)
            continue
        # Sums and not means: what counts is how likely the model is to write the whole text.
        sums = np.array([float(next(logps).sum()) for _ in several])
        # The largest is subtracted, since the others would underflow to 0.
        likelihoods = np.exp(sums - sums.max())
        probabilities.append(float(likelihoods[0] / likelihoods.sum()))
    return probabilities


def known_notes(before: Sequence[float | None], after: Sequence[float | None]) -> tuple[str, ...]:
    """Say for how many facts the key text is likelier than its alternatives together; nothing where no fact has alternatives.

    Args:
        before: probabilities in the original model, one per row.
        after: the same in the unlearned model.
    """
    pairs = [(was, now) for was, now in zip(before, after, strict=False) if was is not None and now is not None]
    if not pairs:
        return ()
    was, now = (sum(value > 0.5 for value in side) for side in zip(*pairs, strict=True))
    return (
        f"Whatever it says, {now} of {len(pairs)} facts are likelier to the model than {ALTERNATIVES} alternatives together "
        f"({was} before).",
    )


def _choices(row: Example) -> list[Example]:
    """Return the row with its key text and with each alternative in place of it, cut behind that text."""
    part = asked_part(row)
    if part is None or not row.messages:
        return []
    key = row.answer[part[0] : part[1]]
    wrong = [text for text in dict.fromkeys(row.alternatives) if text.casefold() != key.casefold()][:ALTERNATIVES]
    if len(wrong) < ALTERNATIVES:
        return []
    opening = row.answer[: part[0]]
    return [row.with_answer(opening + text) for text in (key, *wrong)]


class KeyTokens(Metric):
    name = "key_tokens"
    about = "Key tokens (names, numbers, or labelled words of the answer): probability, accuracy, recall"
    cost = "one forward pass over every set and one answer per row"
    needs = (FORGET_OR_RETAIN,)
    needs_weights = False
    reads = (FORGET_OR_RETAIN,)
    asks = True
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
            "share of the key text that the greedy answer states",
        ),
    )

    def read(self) -> None:
        """Read every set; a served model only gives answers."""
        if self.session.model is not None:
            super().read()
            return
        self.session.warnings.append(
            "key_tokens: probability and accuracy need the model's weights; for a served model only the recall is "
            "measured."
        )

    def record(self) -> None:
        if self.session.model is not None:
            self.record_tokens(key_token_probability=key_token_probability, key_token_accuracy=key_token_accuracy)
        self.record_answers(key_token_recall=key_token_recall)
