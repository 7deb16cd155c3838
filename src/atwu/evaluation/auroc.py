"""AUROC of token scores as detectors of labelled tokens, per answer.

Takes scores and 0/1 labels of answer tokens, usually without the terminal token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from atwu.data.arrays import FloatArray

if TYPE_CHECKING:  # pages read scores, and need no torch
    from torch import Tensor

TokenValues: TypeAlias = "Sequence[float] | Sequence[int] | Sequence[bool] | Tensor | NDArray[Any]"
"""One number per token, shape (tokens,)."""


@dataclass(frozen=True, slots=True)
class SampleAuroc:
    """AUROC within each answer, averaged over answers."""

    mean: float | None
    """Mean over answers with both classes, in [0, 1], higher is better; None without any."""
    std: float | None
    """Standard deviation over those answers (divisor n); None without any."""
    n: int
    """Number of answers averaged."""
    skipped: int
    """Answers left out because all their labels are equal."""
    values: tuple[float | None, ...]
    """One value per answer in input order, None where skipped."""


def auroc(scores: TokenValues, labels: TokenValues) -> float | None:
    """Probability that a random positive scores higher than a random negative, ties count one half (Mann-Whitney).

    Range [0, 1]: 1 ranks every labelled token first, 0.5 is chance or a constant score. Only the order of scores
    matters.

    Args:
        scores: One per token, shape (tokens,); infinite values are allowed.
        labels: 1 (or True) for labelled tokens, else 0, shape (tokens,).

    Returns:
        The area under the ROC curve; None if all labels are equal.
    """
    from scipy.stats import rankdata

    values, positive = _checked(scores, labels)
    positives, negatives = int(positive.sum()), int((~positive).sum())
    if not (positives and negatives):
        return None
    rank_sum = float(rankdata(values)[positive].sum())
    return (rank_sum - positives * (positives + 1) / 2) / (positives * negatives)


def per_sample_auroc(scores: Sequence[TokenValues], labels: Sequence[TokenValues]) -> SampleAuroc:
    """AUROC of each answer, then mean and standard deviation over answers (as reported in the ATWU paper)."""
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


def _checked(scores: TokenValues, labels: TokenValues) -> tuple[FloatArray, NDArray[np.bool_]]:
    values, marks = token_values(scores, "scores"), token_values(labels, "labels")
    if len(values) != len(marks):
        raise ValueError(f"got {len(values)} scores for {len(marks)} labels; give one label per scored token.")
    odd = marks[(marks != 0) & (marks != 1)]
    if odd.size:
        raise ValueError(f"labels must be 0 or 1, got {odd[0]:g}; drop uncounted tokens first.")
    return values, marks.astype(np.bool_)


def token_values(values: TokenValues, name: str) -> FloatArray:
    """Convert values to float64 on the CPU; NaN is an error."""
    given: Any = values
    array: FloatArray = np.asarray(
        given.detach().cpu().double() if hasattr(given, "detach") else given, dtype=np.float64
    )
    if unknown := int(np.isnan(array).sum()):
        raise ValueError(f"{unknown} of {len(array)} {name} are NaN; check the model they come from.")
    return array
