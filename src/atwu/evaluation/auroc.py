"""How well token scores find the secret: AUROC per answer and pooled.

Takes scores and 0/1 labels of answer tokens (by default without the terminal token).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from torch import Tensor

from atwu.data.arrays import FloatArray

TokenValues: TypeAlias = "Sequence[float] | Sequence[int] | Sequence[bool] | Tensor | NDArray[Any]"
"""One number per token, one-dimensional."""


@dataclass(frozen=True, slots=True)
class SampleAuroc:
    """AUROC within each answer, summarised over answers."""

    mean: float | None
    """Mean over the answers that have both classes, in [0, 1], higher is better; None when there is none."""
    std: float | None
    """Standard deviation over those answers (divisor n); None when there is none."""
    n: int
    """Answers counted."""
    skipped: int
    """Answers left out because all their labels are equal."""
    values: tuple[float | None, ...]
    """One value per answer in input order, None where skipped."""


class RocCurve(NamedTuple):
    """ROC curve from (0, 0) to (1, 1), one point per distinct score, highest score first; no points for a single class."""

    fpr: FloatArray
    tpr: FloatArray


def auroc(scores: TokenValues, labels: TokenValues) -> float | None:
    """Probability that a random positive outscores a random negative, ties one half (Mann-Whitney).

    Range [0, 1]; 1 finds every secret token first, .5 is chance or a constant score. Only the order of scores matters.

    Args:
        scores: one per token, shape (tokens,); infinite values are allowed.
        labels: 1 (or True) where the token carries the secret, else 0, shape (tokens,).

    Returns:
        The area under the ROC curve; None when all labels are equal.

    Raises:
        ValueError: if the lengths differ, a score is NaN, or a label is not 0 or 1.
    """
    values, positive = _checked(scores, labels)
    positives, negatives = int(positive.sum()), int((~positive).sum())
    if not (positives and negatives):
        return None
    rank_sum = float(rankdata(values)[positive].sum())
    return (rank_sum - positives * (positives + 1) / 2) / (positives * negatives)


def per_sample_auroc(scores: Sequence[TokenValues], labels: Sequence[TokenValues]) -> SampleAuroc:
    """AUROC of each answer on its own, then mean and spread over answers (the paper's figure).

    Returns:
        Mean, standard deviation, counts and the single values; answers with one class only are skipped and counted.

    Raises:
        ValueError: as for `auroc`, with the number of the answer.
    """
    values: list[float | None] = []
    for index, (row_scores, row_labels) in enumerate(zip(scores, labels, strict=True)):
        try:
            values.append(auroc(row_scores, row_labels))
        except ValueError as error:
            raise ValueError(f"answer {index}: {error}") from error
    found = np.array([value for value in values if value is not None], dtype=np.float64)
    return SampleAuroc(
        mean=float(found.mean()) if found.size else None,
        std=float(found.std()) if found.size else None,
        n=int(found.size),
        skipped=len(values) - int(found.size),
        values=tuple(values),
    )


def roc(scores: TokenValues, labels: TokenValues) -> RocCurve:
    """ROC curve: false and true positive rates, both rising from 0 to 1; its trapezoid area is `auroc`.

    Over the tokens of all answers together it is not comparable with the mean of `per_sample_auroc`: a score whose level
    differs between answers loses here.

    Raises:
        ValueError: as for `auroc`.
    """
    values, positive = _checked(scores, labels)
    if positive.all() or not positive.any():
        return RocCurve(np.empty(0), np.empty(0))
    order = np.argsort(-values, kind="stable")
    values, positive = values[order], positive[order]
    last_of_tie = np.append(values[1:] != values[:-1], True)
    true = np.cumsum(positive)[last_of_tie]
    false = np.cumsum(~positive)[last_of_tie]
    return RocCurve(fpr=np.append(0.0, false / false[-1]), tpr=np.append(0.0, true / true[-1]))


def _checked(scores: TokenValues, labels: TokenValues) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Scores and labels as arrays of the same length."""
    values, marks = token_values(scores, "scores"), token_values(labels, "labels")
    if len(values) != len(marks):
        raise ValueError(f"{len(values)} scores for {len(marks)} labels; give one label per scored token.")
    odd = marks[(marks != 0) & (marks != 1)]
    if odd.size:
        raise ValueError(f"labels must be 0 or 1, got {odd[0]:g}; drop uncounted tokens first.")
    return values, marks.astype(np.bool_)


def token_values(values: TokenValues, name: str) -> FloatArray:
    """Values as float64 on the CPU, without NaN."""
    row = torch.as_tensor(values, dtype=torch.float64).detach().cpu()
    if unknown := int(row.isnan().sum()):
        raise ValueError(f"{unknown} of {len(row)} {name} are NaN; check the model they come from.")
    array: FloatArray = row.numpy()
    return array
