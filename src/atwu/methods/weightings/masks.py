"""Token masks read off the probabilities of frozen models or tables, once per row before training.

Each takes the values of one row's counted tokens, shape (tokens,), and gives 0/1 weights of the same shape. Selection
is strict, so a row in which all tokens are alike has nothing selected.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
Numbers: TypeAlias = "Sequence[float] | NDArray[Any]"


def below_mean(logps: Numbers, *, deviations: float = 0.0, gap: int = 2) -> FloatArray:
    """Tokens less likely than the row's average, with short gaps filled (SEUL: Wang et al. 2025b, online mode).

    Selects `log p_t < mean + deviations * std` (std with n - 1), then every token between two selected ones that have
    at most `gap` unselected tokens between them, so that the selection forms spans.

    Args:
        logps: log p(x_t | x_<t) under the starting model, shape (tokens,).
        deviations: moves the threshold; larger selects more tokens.
        gap: longest gap that is filled, >= 0; 0 leaves the selection as it is.

    Returns:
        1 on selected tokens, else 0, shape (tokens,).

    Raises:
        ValueError: a value is not finite, the shape is not (tokens,), or `gap` is negative.
    """
    if gap < 0:
        raise ValueError(f"gap must be at least 0 tokens, got {gap}.")
    values = _row(logps, "logps")
    chosen = np.flatnonzero(_above_mean(-values, -deviations))  # -log p > mean(-log p) - deviations * std
    mask = np.zeros_like(values)
    mask[chosen] = 1.0
    for left, right in pairwise(chosen):
        if right - left - 1 <= gap:
            mask[left:right] = 1.0
    return mask


def differing(
    first: Numbers, second: Numbers, *, deviations: float = 0.0, expand_left: int = 2, expand_right: int = 0
) -> FloatArray:
    """Tokens on which two predictors disagree more than on the row's average, with their context (SU: Wan et al. 2025).

    Selects `d_t > mean + deviations * std` with `d_t = |first_t - second_t|` (std with n - 1), then adds the
    `expand_left` tokens before and the `expand_right` tokens after each selected one. The code that the ATWU paper
    compares with adds two tokens on the left only, which are the defaults here; `expand_right=2` makes the context
    symmetric. Its two models are the starting model and the base model before fine-tuning; Wan et al. compare a model
    fine-tuned on the forget set with one fine-tuned on the retain set, or two n-gram tables of these sets.

    Args:
        first: p(x_t | x_<t) under the first predictor, in [0, 1], shape (tokens,).
        second: the same under the second predictor, same shape; the order of the two does not matter.
        deviations: moves the threshold; larger selects fewer tokens.
        expand_left: tokens added before each selected token, >= 0.
        expand_right: tokens added after each selected token, >= 0.

    Returns:
        1 on selected and added tokens, else 0, shape (tokens,).

    Raises:
        ValueError: the shapes differ, a value is not finite, or an expansion is negative.
    """
    if expand_left < 0 or expand_right < 0:
        raise ValueError(f"expand_left and expand_right must be at least 0, got {expand_left} and {expand_right}.")
    one, other = _row(first, "first"), _row(second, "second")
    if one.shape != other.shape:
        raise ValueError(f"first has {one.size} tokens and second {other.size}; give both for the same counted tokens.")
    distance = np.abs(one - other)
    mask = np.zeros_like(distance)
    for index in np.flatnonzero(_above_mean(distance, deviations)):
        mask[max(index - expand_left, 0) : index + expand_right + 1] = 1.0
    return mask


def _above_mean(values: FloatArray, deviations: float) -> NDArray[np.bool_]:
    # The mean of equal numbers can be off by a rounding error, which a strict comparison would see.
    if values.size == 0 or values.min() == values.max():
        return np.zeros(values.shape, dtype=np.bool_)
    above: NDArray[np.bool_] = values > values.mean() + deviations * values.std(ddof=1)
    return above


def _row(values: Numbers, name: str) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"{name} must hold the tokens of one row, shape (tokens,), got shape {array.shape}.")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} has values that are NaN or infinite; check the model they come from.")
    return array
