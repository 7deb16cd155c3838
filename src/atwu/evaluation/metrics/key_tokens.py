"""How well a model knows the key tokens of an answer (`atwu.data.fact`).

A model that forgot a fact still predicts most words of its answer; their share differs between data sets. Key tokens make
such data sets comparable.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean
from typing import TYPE_CHECKING

from atwu.data.fact import key_token_spans, telling_texts
from atwu.data.matching import stated_share
from atwu.data.schema import Example
from atwu.evaluation.columns import FORGET_OR_RETAIN, Column
from atwu.evaluation.metric import Metric

if TYPE_CHECKING:
    from atwu.evaluation.teacher_forced import TokenRow


def key_token_recall(row: Example, answer: str) -> float | None:
    """Share of the key text that an answer states (`stated_share`), mean over its parts. Range [0, 1]; None for a row without
    words."""
    shares = [stated_share(answer, part, aliases=row.aliases, question=row.question) for part in telling_texts(row)]
    return mean(shares) if shares else None


def key_token_probability(row: Example, read: TokenRow) -> float | None:
    """Geometric mean of the probabilities of the key tokens. Range [0, 1]; None for a row without words."""
    positions = key_token_positions(row, read.offsets)
    return math.exp(float(read.logps[positions].mean())) if positions else None


def key_token_accuracy(row: Example, read: TokenRow) -> float | None:
    """Share of key tokens predicted correctly under teacher forcing. Range [0, 1]; None for a row without words."""
    positions = key_token_positions(row, read.offsets)
    return float((read.predictions[positions] == read.targets[positions]).mean()) if positions else None


def key_token_positions(row: Example, offsets: Sequence[tuple[int, int] | None]) -> list[int]:
    """Return the positions of the key tokens, given the character range of each token in the answer."""
    spans = key_token_spans(row)
    return [
        place
        for place, offset in enumerate(offsets)
        if offset is not None and any(offset[0] < stop and start < offset[1] for start, stop in spans)
    ]


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
