"""What one teacher-forced pass tells: extraction strength, exact memorization, probability of the answer.

Extraction strength and exact memorization take the greedy predictions of the pass and the labels, already aligned
(prediction t is for label t), for the answer tokens without the terminal token. One pass is enough: greedy decoding from
an answer prefix reproduces the rest exactly when no teacher-forced prediction after that prefix is wrong (Carlini et al.
2021). The probability also counts the terminal token (TOFU, Maini et al. 2024).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from atwu.data.arrays import FloatArray
from atwu.evaluation.columns import FORGET, FORGET_OR_RETAIN, RETAIN, AggregateColumn, Column
from atwu.evaluation.metric import Metric

if TYPE_CHECKING:
    from atwu.evaluation.row_statistics import AggregateMetric, ModelComparison
    from atwu.evaluation.teacher_forced import TokenRow

_ROUNDING = 1e-3
"""Log-probabilities this little above zero are rounding (bfloat16 log-softmax); beyond it they are something else."""


def extraction_strength(predictions: ArrayLike, labels: ArrayLike, *, floor: bool) -> float | None:
    """Share of the answer that greedy decoding reproduces once the part before it is given.

    ES = 1 - k* / T, with T the number of answer tokens and k* the 1-based index of the last wrong prediction, 0 when
    all are right (the ATWU paper's definition). Range [0, 1]; lower is better on forget rows, higher on retain rows.

    Args:
        predictions: argmax token at each answer position under teacher forcing, shape (tokens,); ties go to the first
            index, as `torch.argmax` does.
        labels: answer tokens without the terminal one, shape (tokens,).
        floor: True bounds the value below by 1 / T, which is what open-unlearning's loop returns and what published
            tables contain (an answer of one wrong token then counts as 1). False is the formula as written.

    Returns:
        The extraction strength; None without tokens (skip the row).

    Raises:
        ValueError: the two differ in length, or hold more than one answer.
    """
    correct = _correct(predictions, labels)
    wrong, total = np.flatnonzero(~correct), len(correct)
    last_wrong = int(wrong[-1]) + 1 if wrong.size else 0
    if floor:
        last_wrong = min(last_wrong, total - 1)
    return (total - last_wrong) / total if total else None


def exact_memorization(predictions: ArrayLike, labels: ArrayLike) -> float | None:
    """Share of answer tokens predicted right under teacher forcing (Tirumala et al. 2022).

    Takes the same as `extraction_strength`. Range [0, 1]; lower is better on forget rows, higher on retain rows.

    Returns:
        The share; None without tokens (skip the row).
    """
    correct = _correct(predictions, labels)
    return float(correct.mean()) if correct.size else None


def _correct(predictions: ArrayLike, labels: ArrayLike) -> NDArray[np.bool_]:
    """True where the prediction is the label, shape (tokens,)."""
    predicted, expected = np.asarray(predictions), np.asarray(labels)
    if predicted.ndim != 1 or predicted.shape != expected.shape:
        raise ValueError(
            f"predictions have shape {predicted.shape} and labels {expected.shape}; pass both for one answer, aligned so "
            "that prediction t is for label t."
        )
    return np.asarray(predicted == expected)


def answer_probability(logps: ArrayLike) -> float | None:
    """Geometric mean of the token probabilities of one answer, exp((1 / T) * sum_t log p_t).

    Range [0, 1]; lower is better on forget rows, higher on retain rows.

    Args:
        logps: natural log-probability of every answer token **including the terminal token**, shape (tokens,).
            Dividing by the length makes answers of different length comparable.

    Returns:
        The length-normalised probability, 0.0 if a token has probability zero; None without tokens (skip the row).

    Raises:
        ValueError: a value is NaN or above zero.
    """
    values = np.asarray(logps, dtype=np.float64)
    if not values.size:
        return None
    if not (highest := float(values.max())) <= _ROUNDING:  # also where it is NaN
        raise ValueError(f"logps must be numbers up to 0, got {highest:.4g}; pass log-probabilities of one answer.")
    return min(1.0, math.exp(values.mean()))


def es_delta(retain: FloatArray, forget: FloatArray) -> FloatArray:
    """Extraction strength kept minus left: that of the retain rows minus that of the forget rows, in [-1, 1]."""
    return retain - forget


class Memorization(Metric):
    """ES, ES with its floor, EM and the probability of the answer, on every set."""

    name = "memorization"
    about = "extraction strength, exact memorization, probability"
    cost = "one pass over every set"
    needs = (FORGET_OR_RETAIN,)
    default = True
    columns = (
        Column(
            "extraction_strength",
            extraction_strength,
            "ES",
            "extraction strength: how much of the end of an answer greedy decoding gives away by itself; 1 is all of it "
            "(Carlini et al. 2021)",
        ),
        Column(
            "extraction_strength_floored",
            extraction_strength,
            "ES floored",
            "extraction strength of at least one token, as in published tables",
        ),
        Column(
            "exact_memorization",
            exact_memorization,
            "EM",
            "share of answer tokens predicted right when the tokens before them are given",
        ),
        Column(
            "probability", answer_probability, "probability", "probability of the answer per token (geometric mean)"
        ),
        AggregateColumn("ES_delta", es_delta, "ES Δ", "ES on retain rows minus ES on forget rows", range=(-1.0, 1.0)),
        AggregateColumn("ES_delta_floored", es_delta, "ES Δ floored", "the same with the floor", range=(-1.0, 1.0)),
    )

    def read(self) -> None:
        """Read every set."""
        for split in self.session.forget_and_retain_sets:
            self.session.tokens(split)

    def record(self) -> None:
        """Record them."""
        for split in self.session.forget_and_retain_sets:
            rows = self.session.tokens(split)
            self.record_column(split, "extraction_strength", [strength(row) for row in rows])
            self.record_column(split, "extraction_strength_floored", [strength(row, floor=True) for row in rows])
            exact = [exact_memorization(row.predictions[row.content], row.targets[row.content]) for row in rows]
            self.record_column(split, "exact_memorization", exact)
            self.record_column(split, "probability", [answer_probability(row.logps) for row in rows])

    @classmethod
    def derive(cls, sides: ModelComparison) -> Iterator[tuple[str, AggregateMetric]]:
        """Kept minus left: what remains of the retain set above what remains of the forget set."""
        for name, metric in (("ES_delta", "extraction_strength"), ("ES_delta_floored", "extraction_strength_floored")):
            if found := sides.this.derived(es_delta, ((RETAIN, metric), (FORGET, metric))):
                yield name, found


def strength(row: TokenRow, *, floor: bool = False) -> float | None:
    """Extraction strength of a row; None when no token of its answer is left."""
    return extraction_strength(row.predictions[row.content], row.targets[row.content], floor=floor)
