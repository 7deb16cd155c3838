"""What one teacher-forced pass tells: extraction strength, exact memorization, probability of the answer.

Extraction strength and exact memorization take the greedy predictions of the pass and the labels, already aligned
(prediction t is for label t), for the answer tokens without the terminal token. One pass is enough: greedy decoding from
an answer prefix reproduces the rest exactly when no teacher-forced prediction after that prefix is wrong (Carlini et al.
2021). The probability also counts the terminal token (TOFU, Maini et al. 2024).
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from atwu.data.schema import IGNORE_INDEX
from atwu.evaluation.arrays import OneRow, one_row
from atwu.evaluation.columns import FORGET, OVERALL, RETAIN, ROWS, Column
from atwu.evaluation.metric import Metric

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from atwu.evaluation.numbers import Derivation, Sides
    from atwu.evaluation.teacher_forced import TokenRow

TokenIds: TypeAlias = "Sequence[int] | Tensor | NDArray[Any]"
"""Token ids of one answer, one-dimensional."""

_ROUNDING = 1e-3
"""Log-probabilities this little above zero are rounding (bfloat16 log-softmax); beyond it they are something else."""


def extraction_strength(predictions: TokenIds, labels: TokenIds, *, floor: bool) -> float:
    """Share of the answer that greedy decoding reproduces once the part before it is given.

    ES = 1 - k* / T, with T the number of answer tokens and k* the 1-based index of the last wrong prediction, 0 when
    all are right (the ATWU paper's definition). Range [0, 1]; lower is better on forget rows, higher on retain rows.

    Args:
        predictions: argmax token at each answer position under teacher forcing, shape (tokens,); ties go to the first
            index, as `torch.argmax` does.
        labels: answer tokens without the terminal one, shape (tokens,). Positions labelled IGNORE_INDEX are dropped.
        floor: True bounds the value below by 1 / T, which is what open-unlearning's loop returns and what published
            tables contain (an answer of one wrong token then counts as 1). False is the formula as written.

    Returns:
        The extraction strength; 0.0, with a warning, when no token is left to count.

    Raises:
        ValueError: if the two differ in length, or are not one-dimensional sequences of integers.
    """
    import numpy as np

    correct = _correct(predictions, labels)
    total = len(correct)
    if total == 0:
        warnings.warn(
            "extraction_strength got an answer without counted tokens and returns 0.0; "
            "leave such rows out of the mean, or check that the answer is not only a terminal token.",
            stacklevel=2,
        )
        return 0.0
    wrong = np.flatnonzero(~correct)
    last_wrong = int(wrong[-1]) + 1 if wrong.size else 0
    if floor:
        last_wrong = min(last_wrong, total - 1)
    return (total - last_wrong) / total


def exact_memorization(predictions: TokenIds, labels: TokenIds) -> float | None:
    """Share of answer tokens predicted right under teacher forcing (Tirumala et al. 2022).

    Range [0, 1]; lower is better on forget rows, higher on retain rows.

    Returns:
        The share, or None when no token is left to count (skip the row).

    Raises:
        ValueError: as for `extraction_strength`.
    """
    correct = _correct(predictions, labels)
    return float(correct.mean()) if len(correct) else None


def answer_probability(logps: OneRow) -> float:
    """Geometric mean of the token probabilities of one answer, exp((1 / T) * sum_t log p_t).

    Range [0, 1]; lower is better on forget rows, higher on retain rows.

    Args:
        logps: natural log-probability of every answer token **including the terminal token**, shape (tokens,).
            Dividing by the length makes answers of different length comparable.

    Returns:
        The length-normalised probability; 0.0 if a token has probability zero.

    Raises:
        ValueError: if there is no token (leave such a row out of the mean), a value is NaN, a value is above zero, or
            the shape is not (tokens,).
    """
    values = one_row(logps, "logps")
    if values.size == 0:
        raise ValueError("logps is empty: an answer has at least its terminal token; leave empty rows out of the mean.")
    if float(values.max()) > _ROUNDING:
        raise ValueError(
            f"logps must be <= 0, got {float(values.max()):.4g}; pass log-probabilities, not logits or losses."
        )
    return min(1.0, math.exp(float(values.mean())))


class Memorization(Metric):
    """ES, ES with its floor, EM and the probability of the answer, on every set."""

    name = "memorization"
    about = "extraction strength, exact memorization, probability"
    cost = "one pass over every set"
    needs = (ROWS,)
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
        Column(
            "ES_delta",
            extraction_strength,
            "ES Δ",
            "ES on retain rows minus ES on forget rows",
            sets=(OVERALL,),
            range=(-1.0, 1.0),
        ),
        Column(
            "ES_delta_floored",
            extraction_strength,
            "ES Δ floored",
            "the same with the floor",
            sets=(OVERALL,),
            range=(-1.0, 1.0),
        ),
    )

    def read(self) -> None:
        """Read every set."""
        for split in self.session.answered:
            self.session.tokens(split)

    def record(self) -> None:
        """Record them."""
        for split in self.session.answered:
            rows = self.session.tokens(split)
            self.keep(split, "extraction_strength", [strength(row) for row in rows])
            self.keep(split, "extraction_strength_floored", [strength(row, floor=True) for row in rows])
            self.keep(split, "exact_memorization", [memorized(row) for row in rows])
            self.keep(split, "probability", [probability(row) for row in rows])

    @classmethod
    def derive(cls, sides: Sides) -> Iterator[tuple[str, Derivation]]:
        """Kept minus left: what remains of the retain set above what remains of the forget set."""
        from atwu.evaluation.intervals import combine
        from atwu.evaluation.numbers import Derivation

        for name, metric in (("ES_delta", "extraction_strength"), ("ES_delta_floored", "extraction_strength_floored")):
            used = ((RETAIN, metric), (FORGET, metric))
            if all(sides.this.has(*pair) for pair in used):
                estimate = combine(operator.sub, *(sides.this.mean(*pair) for pair in used))
                yield name, Derivation(estimate, used)


def strength(row: TokenRow, *, floor: bool = False) -> float | None:
    """Extraction strength of a row; None when no token of its answer is left."""
    content = row.content
    return extraction_strength(row.predictions[content], row.targets[content], floor=floor) if content.any() else None


def memorized(row: TokenRow) -> float | None:
    """Exact memorization of a row."""
    return exact_memorization(row.predictions[row.content], row.targets[row.content])


def probability(row: TokenRow) -> float | None:
    """Probability of a row's answer, end token included."""
    return answer_probability(row.logps) if row.logps.size else None


def _correct(predictions: TokenIds, labels: TokenIds) -> NDArray[np.bool_]:
    """True where the prediction is the label, shape (counted tokens,)."""
    predicted, expected = _ids(predictions, "predictions"), _ids(labels, "labels")
    if len(predicted) != len(expected):
        raise ValueError(
            f"predictions have {len(predicted)} tokens but labels have {len(expected)}; "
            "pass both for the answer positions only, shifted so that prediction t is for label t."
        )
    counted = expected != IGNORE_INDEX
    correct: NDArray[np.bool_] = predicted[counted] == expected[counted]
    return correct


def _ids(values: TokenIds, name: str) -> NDArray[np.int64]:
    """Ids on the CPU, checked for shape and kind."""
    import torch

    ids = torch.as_tensor(values).detach().cpu()
    if ids.ndim != 1:
        raise ValueError(f"{name} must hold one answer, shape (tokens,), got shape {tuple(ids.shape)}; call per row.")
    if ids.numel() and (ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool):
        raise ValueError(f"{name} must be integer token ids, got {ids.dtype}; take the argmax of the logits first.")
    array: NDArray[np.int64] = ids.to(torch.int64).numpy()
    return array
