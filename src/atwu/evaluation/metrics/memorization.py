"""Memorization metrics of one teacher-forced pass: extraction strength, exact memorization, answer probability.

Extraction strength and exact memorization take argmax predictions and labels, aligned so that prediction t is for label
t, without the terminal token. One pass is enough: greedy decoding from an answer prefix reproduces the rest exactly if
no teacher-forced prediction after that prefix is wrong (Carlini et al. 2021). The probability also counts the terminal
token (TOFU, Maini et al. 2024).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from atwu.data.arrays import FloatArray
from atwu.evaluation.columns import FORGET, FORGET_OR_RETAIN, RETAIN, AggregateColumn, Column
from atwu.evaluation.metric import Metric

if TYPE_CHECKING:
    from atwu.evaluation.teacher_forced import TokenRow


def extraction_strength(predictions: ArrayLike, labels: ArrayLike, *, floor: bool) -> float | None:
    """Share of the answer that greedy decoding reproduces, given the part before it; None without tokens.

    ES = 1 - k* / T, with T the number of answer tokens and k* the 1-based index of the last wrong prediction, 0 if all
    are correct (definition of the ATWU paper). Range [0, 1]; lower is better on the forget set, higher on retain sets.

    Args:
        predictions: Argmax token at each answer position under teacher forcing, shape (tokens,); ties go to the first
            index, as with `torch.argmax`.
        labels: Answer tokens without the terminal token, shape (tokens,).
        floor: True bounds the value below by 1 / T, as open-unlearning's loop and published tables do (an answer of one
            wrong token then gives 1). False is the formula as written.
    """
    correct = _correct(predictions, labels)
    wrong, total = np.flatnonzero(~correct), len(correct)
    if not total:
        return None
    last_wrong = 0
    if wrong.size:
        last_wrong = int(wrong[-1]) + 1
    # open-unlearning stops at the last token, so that at least this one counts as reproduced.
    if floor:
        last_wrong = min(last_wrong, total - 1)
    return (total - last_wrong) / total


def exact_memorization(predictions: ArrayLike, labels: ArrayLike) -> float | None:
    """Share of answer tokens predicted correctly under teacher forcing (Tirumala et al. 2022); None without tokens.

    Arguments as for `extraction_strength`. Range [0, 1]; lower is better on the forget set, higher on retain sets.
    """
    correct = _correct(predictions, labels)
    if not correct.size:
        return None
    return float(correct.mean())


def _correct(predictions: ArrayLike, labels: ArrayLike) -> NDArray[np.bool_]:
    """Return True where the prediction equals the label, shape (tokens,)."""
    correct: NDArray[np.bool_] = np.asarray(predictions) == np.asarray(labels)
    return correct


def answer_probability(logps: ArrayLike) -> float | None:
    """Geometric mean of the token probabilities of one answer, exp((1 / T) * sum_t log p_t); None without tokens.

    Range [0, 1]; lower is better on the forget set, higher on retain sets.

    Args:
        logps: Natural log-probability of every answer token **including the terminal token**, shape (tokens,).
    """
    values = np.asarray(logps, dtype=np.float64)
    if not values.size:
        return None
    # The log-softmax of bfloat16 may give a mean slightly above 0.
    return min(1.0, math.exp(values.mean()))


def es_delta(retain: FloatArray, forget: FloatArray) -> FloatArray:
    """Extraction strength on the retain set minus that on the forget set, in [-1, 1]; higher is better."""
    return retain - forget


class Memorization(Metric):
    name = "memorization"
    about = "Extraction strength (ES), exact memorization (EM) and probability of the answer"
    cost = "one forward pass over every set"
    needs = reads = (FORGET_OR_RETAIN,)
    default = True
    columns = (
        Column(
            "extraction_strength",
            extraction_strength,
            "ES",
            "extraction strength: share of the answer that greedy decoding reproduces, given the part before it "
            "(Carlini et al. 2021)",
        ),
        Column(
            "extraction_strength_floored",
            extraction_strength,
            "ES floored",
            "extraction strength with lower bound 1 / answer length, as in published tables",
        ),
        Column(
            "exact_memorization",
            exact_memorization,
            "EM",
            "exact memorization: share of answer tokens predicted correctly under teacher forcing",
        ),
        Column(
            "probability",
            answer_probability,
            "probability",
            "probability per token of the true answer (geometric mean)",
        ),
        *(
            AggregateColumn(
                f"ES_delta{suffix}",
                es_delta,
                f"ES Δ{word}",
                f"ES{word} on the retain set minus ES{word} on the forget set",
                range=(-1.0, 1.0),
                of=((RETAIN, f"extraction_strength{suffix}"), (FORGET, f"extraction_strength{suffix}")),
            )
            for suffix, word in (("", ""), ("_floored", " floored"))
        ),
    )

    def record(self) -> None:
        self.record_tokens(
            extraction_strength=lambda _, tokens: row_extraction_strength(tokens),
            # As in the ATWU paper's tables: their smallest value, .033, is the mean of 1 / T over answers of thirty tokens.
            extraction_strength_floored=lambda _, tokens: row_extraction_strength(tokens, floor=True),
            exact_memorization=lambda _, tokens: row_exact_memorization(tokens),
            probability=lambda _, tokens: answer_probability(tokens.logps),
        )


def row_extraction_strength(row: TokenRow, *, floor: bool = False) -> float | None:
    return extraction_strength(row.predictions[row.content], row.targets[row.content], floor=floor)


def row_exact_memorization(row: TokenRow) -> float | None:
    return exact_memorization(row.predictions[row.content], row.targets[row.content])
