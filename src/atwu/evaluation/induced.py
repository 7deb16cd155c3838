"""Token scores that each weighting induces on a model, for AUROC and heat maps."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from atwu.evaluation.teacher_forced import FloatArray, TokenRow


def _entropy(row: TokenRow) -> FloatArray:
    largest = row.entropy.max(initial=0.0)
    return row.entropy / largest if largest > 0 else np.ones_like(row.entropy)


def _learned(row: TokenRow) -> FloatArray:
    if row.scores is None:
        raise ValueError("the score 'scorer' needs a learned scorer; this model folder has none.")
    return row.scores


def _labels(row: TokenRow) -> FloatArray:
    if row.labels is None:
        raise ValueError("the score 'labels' needs rows with forget_spans.")
    return row.labels.astype(np.float64)


SCORES: Mapping[str, Callable[[TokenRow], FloatArray]] = {
    "scorer": _learned,
    "saturation": lambda row: np.exp(row.logps),
    "importance": lambda row: -np.expm1(row.logps),
    "entropy": _entropy,
    "labels": _labels,
}
"""Score in [0, 1] of every counted token by name. Exponents and temperatures of a method are left out: they do not change
the order of saturation and importance, and entropy is shown relative to the row's largest."""


def available(rows: list[TokenRow]) -> list[str]:
    """Names of the scores that these rows allow."""
    missing = set()
    if any(row.scores is None for row in rows):
        missing.add("scorer")
    if any(row.labels is None for row in rows):
        missing.add("labels")
    return [name for name in SCORES if name not in missing]
