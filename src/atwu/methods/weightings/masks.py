"""Token masks read off the probabilities of frozen models or tables, once per row before training.

Each takes the values of one row's counted tokens, shape (tokens,), and gives 0/1 weights of the same shape. Selection
is strict, so a row in which all tokens are alike has nothing selected.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from atwu.data.arrays import FloatArray

GAP = 2
"""Longest gap between selected tokens that `below_mean` fills."""
LEFT = 2
"""Tokens that `differing` adds before each selected one."""


def below_mean(logps: FloatArray) -> FloatArray:
    """Tokens less likely than the row's average, with short gaps filled (SEUL: Wang et al. 2025b, online mode).

    Selects `log p_t < mean`, then every token between two selected ones that have at most `GAP` unselected tokens between
    them, so that the selection forms spans.

    Args:
        logps: log p(x_t | x_<t) under the starting model, shape (tokens,).

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
    """Tokens on which two predictors disagree more than on the row's average, with their context (SU: Wan et al. 2025).

    Selects `d_t > mean` with `d_t = |first_t - second_t|`, then adds the `LEFT` tokens before each selected one, as the code
    does that the ATWU paper compares with. Its two models are the starting model and the base model before fine-tuning;
    Wan et al. compare a model fine-tuned on the forget set with one fine-tuned on the retain set, or two n-gram tables of
    these sets.

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
        raise ValueError("a row has values that are NaN or infinite; check the model they come from.")
    # The mean of equal numbers can be off by a rounding error, which a strict comparison would see.
    if values.size == 0 or values.min() == values.max():
        return np.zeros(values.shape)
    above: FloatArray = (values > values.mean()).astype(np.float64)
    return above
