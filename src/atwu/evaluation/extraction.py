"""Extraction strength and exact memorization of one answer, from token ids alone.

Takes the greedy predictions of one teacher-forced pass and the labels, already aligned (prediction t is for label t),
for the answer tokens without the terminal token. One pass is enough: greedy decoding from an answer prefix reproduces
the rest exactly when no teacher-forced prediction after that prefix is wrong (Carlini et al. 2021).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from atwu.data.schema import IGNORE_INDEX

TokenIds: TypeAlias = "Sequence[int] | Tensor | NDArray[Any]"
"""Token ids of one answer, one-dimensional."""


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

    Args:
        predictions: as for `extraction_strength`.
        labels: as for `extraction_strength`.

    Returns:
        The share, or None when no token is left to count (skip the row).

    Raises:
        ValueError: as for `extraction_strength`.
    """
    correct = _correct(predictions, labels)
    return float(correct.mean()) if len(correct) else None


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
    ids = torch.as_tensor(values).detach().cpu()
    if ids.ndim != 1:
        raise ValueError(f"{name} must hold one answer, shape (tokens,), got shape {tuple(ids.shape)}; call per row.")
    if ids.numel() and (ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool):
        raise ValueError(f"{name} must be integer token ids, got {ids.dtype}; take the argmax of the logits first.")
    array: NDArray[np.int64] = ids.to(torch.int64).numpy()
    return array
