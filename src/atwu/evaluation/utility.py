"""TOFU's two summary numbers: model utility, and forget quality against a model that never saw the forget set.

Both come from Maini et al. 2024. TOFU's forget quality is the p-value of a test; it is not FQ of `relative`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

T = TypeVar("T", float, NDArray[np.float64])


@dataclass(frozen=True, slots=True)
class ForgetQuality:
    """Two-sample Kolmogorov-Smirnov test."""

    statistic: float
    """Largest distance between the two distribution functions, in [0, 1]; lower is better."""
    p_value: float
    """In [0, 1]; higher is better, below .05 the two models can be told apart. Often printed as log10."""


def model_utility(values: Sequence[T]) -> T:
    """Harmonic mean: one value near 0 pulls everything down, so that no ability can be traded for another.

    TOFU takes it over nine means: probability, ROUGE-L recall and `retain_form` of the truth ratio on the retain set,
    real authors and world facts. Range [0, 1], higher is better; 0 as soon as any value is 0.

    Args:
        values: numbers in [0, 1], any count; or arrays of equal shape (bootstrap draws), taken element by element.

    Raises:
        ValueError: no values, or a negative one.
    """
    stacked = np.asarray(values, dtype=np.float64)
    if len(stacked) == 0:
        raise ValueError("model utility of no values; give at least one mean.")
    if bool((stacked < 0).any()):
        raise ValueError(f"model utility is a harmonic mean of numbers >= 0, got {np.nanmin(stacked):g}.")
    with np.errstate(divide="ignore", over="ignore"):
        mean: Any = len(stacked) / (1 / stacked).sum(axis=0)  # 1 / 0 is inf, and n / inf is 0
    if not np.ndim(mean):
        mean = float(mean)
    result: T = mean
    return result


def forget_quality(unlearned_ratios: ArrayLike, retain_ratios: ArrayLike) -> ForgetQuality:
    """Can the unlearned model be told from one that never saw the forget set, by its raw truth ratios?

    The p-value of the same difference falls with the number of rows, so only equal forget sets compare. It is no mean over
    rows and suits no bootstrap: resampling adds noise of its own to both sides, which pushes it towards 0.

    Args:
        unlearned_ratios: `truth_ratio` of every forget row under the unlearned model, shape (rows,).
        retain_ratios: the same under the retain model, shape (rows,).

    Raises:
        ValueError: no ratio on one side, or a NaN.
    """
    from scipy.stats import ks_2samp

    unlearned, retained = (np.asarray(part, dtype=np.float64) for part in (unlearned_ratios, retain_ratios))
    if not unlearned.size or not retained.size:
        raise ValueError(f"forget quality needs ratios of both models, got {unlearned.size} and {retained.size}.")
    if bool(np.isnan(unlearned).any() or np.isnan(retained).any()):
        raise ValueError("a truth ratio is NaN; leave out rows without one, from both models.")
    test: Any = ks_2samp(unlearned, retained)
    return ForgetQuality(statistic=float(test.statistic), p_value=float(test.pvalue))
