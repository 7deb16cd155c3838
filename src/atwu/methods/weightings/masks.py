"""Token masks from probabilities of frozen models or n-gram tables, computed once per row before training.

`below_mean` and `differing` take the values of one row's counted tokens, shape (tokens,), and return 0/1 weights of the same
shape. Comparisons are strict, so a row with equal values selects no token. Tables of the forget and the retain set give the
n-gram variant of selective unlearning (Wan et al. 2025): pass both probabilities of a row to `differing`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from atwu.data.arrays import FloatArray
from atwu.data.encode import EncodedRow
from atwu.data.schema import IGNORE_INDEX

GAP = 2
"""Longest gap between selected tokens that `below_mean` fills, in tokens."""
LEFT = 2
"""Number of tokens that `differing` adds before each selected token."""
N = 3
"""Length of an n-gram, including the predicted token."""
Context = tuple[int, ...]


def below_mean(logps: FloatArray) -> FloatArray:
    """Select tokens less likely than the mean of the row, with short gaps filled (SEUL: Wang et al. 2025b, online mode).

    Selects `log p_t < mean`, then fills gaps of at most `GAP` tokens between selected tokens, so selections form spans.

    Args:
        logps: log p(x_t | x_<t) under the original model, shape (tokens,).

    Returns:
        1 on selected tokens, else 0, shape (tokens,).
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
    """
    mask = _above_mean(np.abs(first - second))
    for index in np.flatnonzero(mask):
        mask[max(index - LEFT, 0) : index] = 1.0
    return mask


def _above_mean(values: FloatArray) -> FloatArray:
    if not np.isfinite(values).all():
        raise ValueError("a row has NaN or infinite values; check the model that produced them.")
    # The mean of equal numbers can differ from them by a rounding error, and all of them would be selected.
    if values.size == 0 or values.min() == values.max():
        return np.zeros(values.shape)
    above: FloatArray = (values > values.mean()).astype(np.float64)
    return above


@dataclass(frozen=True, slots=True)
class NgramTable:
    """Counts of each counted token after its N - 1 previous tokens.

    Contexts include prompt and template tokens; predicted tokens are counted tokens. At the start of a row contexts are
    shorter and have their own keys.
    """

    continuations: Mapping[Context, Mapping[int, int]]
    """Context ids -> target id -> occurrences."""

    @classmethod
    def of(cls, rows: Iterable[EncodedRow]) -> NgramTable:
        counts: dict[Context, Counter[int]] = {}
        for row in rows:
            for context, target in _ngrams(row):
                counts.setdefault(context, Counter())[target] += 1
        return cls(counts)

    def probabilities(self, row: EncodedRow) -> FloatArray:
        """`count(context, x_t) / count(context)` of each counted token, 0 for an unknown context."""
        values = []
        for context, target in _ngrams(row):
            followers = self.continuations.get(context)
            if followers is None:
                values.append(0.0)
            else:
                values.append(followers.get(target, 0) / sum(followers.values()))
        return np.array(values, dtype=np.float64)


def _ngrams(row: EncodedRow) -> Iterator[tuple[Context, int]]:
    for index, label in enumerate(row.labels):
        if label != IGNORE_INDEX:
            yield row.input_ids[max(index - N + 1, 0) : index], label
