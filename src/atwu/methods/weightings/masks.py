"""Token masks from probabilities of frozen models or n-gram tables, computed once per row before training.

Each function takes the values of one row's counted tokens, shape (tokens,), and returns 0/1 weights of the same shape.
Comparisons are strict, so a row with equal values selects no token.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from atwu.data.arrays import FloatArray

GAP = 2
"""Longest gap between selected tokens that `below_mean` fills, in tokens."""
LEFT = 2
"""Number of tokens that `differing` adds before each selected token."""


def below_mean(logps: FloatArray) -> FloatArray:
    """Select tokens less likely than the mean of the row, with short gaps filled (SEUL: Wang et al. 2025b, online mode).

    Selects `log p_t < mean`, then fills gaps of at most `GAP` tokens between selected tokens, so selections form spans.

    Args:
        logps: log p(x_t | x_<t) under the original model, shape (tokens,).

    Returns:
        1 on selected tokens, else 0, shape (tokens,).

    Raises:
        ValueError: a value is not finite.
    """
    mask = _above_mean(-logps)
    for left, right in pairwise(np.flatnonzero(mask)):
        if right - left - 1 <= GAP:
            mask[left:right] = 1.0
    return mask


def differing(first: FloatArray, second: FloatArray) -> FloatArray:
    """Select tokens on which two predictors differ more than the mean of the row, with left context (SU: Wan et al. 2025).

    Selects `d_t > mean` with `d_t = |first_t - second_t|`, then adds the `LEFT` tokens before each selected one, as in the
    code that the ATWU paper compares with. That code uses the original model and the base model before fine-tuning; Wan et
    al. compare a model fine-tuned on the forget set with one fine-tuned on the retain set, or n-gram tables of these sets.

    Args:
        first: p(x_t | x_<t) under the first predictor, in [0, 1], shape (tokens,).
        second: the same under the second predictor, same shape; the order of the two does not matter.

    Returns:
        1 on selected and added tokens, else 0, shape (tokens,).

    Raises:
        ValueError: a value is not finite.
    """
    mask = _above_mean(np.abs(first - second))
    for index in np.flatnonzero(mask):
        mask[max(index - LEFT, 0) : index] = 1.0
    return mask


def _above_mean(values: FloatArray) -> FloatArray:
    if not np.isfinite(values).all():
        raise ValueError("a row has NaN or infinite values; check the model that produced them.")
    # The mean of equal numbers can differ from them by a rounding error.
    if values.size == 0 or values.min() == values.max():
        return np.zeros(values.shape)
    above: FloatArray = (values > values.mean()).astype(np.float64)
    return above
