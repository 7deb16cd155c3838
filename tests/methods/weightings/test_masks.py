"""Log-probability and difference masks: worked examples, gaps and context, rows with equal values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atwu.methods.weightings.fixed_weights import below_mean, differing

RUNNING = np.log([0.9, 0.2, 0.6, 0.5])
GAPPED = np.log([0.9, 0.05, 0.95, 0.1, 0.99])
VALUES = st.lists(st.floats(0.01, 0.99), min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("logps", "mask", "loss"), [(RUNNING, [0, 1, 0, 0], -1.609438), (GAPPED, [0, 1, 1, 1, 0], -1.783204)]
)
def test_below_mean_worked_examples(logps, mask, loss):
    got = below_mean(logps)
    assert got.dtype == np.float64
    assert got.tolist() == mask
    assert (got * logps).sum() / got.sum() == pytest.approx(loss, abs=1e-6)


@pytest.mark.parametrize("row", [[-0.3], [-0.1] * 3, [-0.7] * 7, []])
def test_equal_values_select_nothing(row):
    assert below_mean(np.array(row)).tolist() == [0.0] * len(row)
    assert differing(np.array(row), np.zeros(len(row))).tolist() == [0.0] * len(row)


@given(VALUES)
def test_masks_agree_with_plain_loops(probabilities):
    logps = np.log(probabilities)
    selected = [i for i, v in enumerate(logps) if v < logps.mean()] if len(set(logps)) > 1 else []
    filled = {j for a in selected for b in selected if 0 <= b - a <= 3 for j in range(a, b + 1)}
    assert np.flatnonzero(below_mean(logps)).tolist() == sorted(filled)

    distance = np.abs(np.subtract(probabilities, 0.5))
    chosen = [i for i, v in enumerate(distance) if v > distance.mean()] if len(set(distance)) > 1 else []
    near = {j for j in range(len(distance)) for i in chosen if i - 2 <= j <= i}
    assert np.flatnonzero(differing(np.array(probabilities), np.full(len(distance), 0.5))).tolist() == sorted(near)


def test_values_that_are_not_finite_are_rejected():
    with pytest.raises(ValueError, match="NaN"):
        below_mean(np.array([-1.0, float("nan")]))
