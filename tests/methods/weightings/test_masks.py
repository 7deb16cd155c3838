"""Log-probability and difference masks: worked examples, gaps and context, rows in which nothing differs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atwu.methods.weightings.masks import below_mean, differing

RUNNING = np.log([0.9, 0.2, 0.6, 0.5])
GAPPED = np.log([0.9, 0.05, 0.95, 0.1, 0.99])
VALUES = st.lists(st.floats(0.01, 0.99), min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("logps", "gap", "mask", "loss"),
    [
        (RUNNING, 2, [0, 1, 0, 0], -1.609438),
        (GAPPED, 2, [0, 1, 1, 1, 0], -1.783204),
        (GAPPED, 0, [0, 1, 0, 1, 0], -2.649159),
    ],
)
def test_below_mean_worked_examples(logps, gap, mask, loss):
    got = below_mean(logps, gap=gap)
    assert got.dtype == np.float64
    assert got.tolist() == mask
    assert (got * logps).sum() / got.sum() == pytest.approx(loss, abs=1e-6)


@pytest.mark.parametrize(("unselected", "filled"), [(1, True), (2, True), (3, False)])
def test_gaps_of_up_to_two_tokens_are_filled(unselected, filled):
    mask = below_mean(np.log([0.9, 0.01, *[0.9] * unselected, 0.01, 0.9]))
    assert mask.tolist() == [0, 1, *[float(filled)] * unselected, 1, 0]


def test_below_mean_threshold_moves_by_sample_deviations():
    # mean -2.5, sample deviation sqrt(5/3) = 1.29 (population 1.12): -1 lies between mean + 1.12 and mean + 1.29 + .22
    logps = [-1.0, -2.0, -3.0, -4.0]
    assert below_mean(logps).tolist() == [0, 0, 1, 1]
    assert below_mean(logps, deviations=1.15).tolist() == [0, 1, 1, 1]
    assert below_mean(logps, deviations=1.17).tolist() == [1, 1, 1, 1]
    assert below_mean(logps, deviations=-1.0).tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize("row", [[-0.3], [-0.1] * 3, [-0.7] * 7, []])
@pytest.mark.parametrize("deviations", [-1.0, 0.0, 1.0])
def test_nothing_is_selected_where_all_tokens_are_alike(row, deviations):
    assert below_mean(row, deviations=deviations).tolist() == [0.0] * len(row)
    assert differing(row, [0.0] * len(row), deviations=deviations).tolist() == [0.0] * len(row)


@pytest.mark.parametrize(
    ("left", "right", "mask"), [(0, 0, [0, 1, 0, 0]), (2, 0, [1, 1, 0, 0]), (2, 2, [1, 1, 1, 1]), (0, 1, [0, 1, 1, 0])]
)
def test_differing_worked_example(left, right, mask):
    first, second = [0.9, 0.95, 0.8, 0.99], [0.88, 0.1, 0.6, 0.98]
    assert differing(first, second, expand_left=left, expand_right=right).tolist() == mask
    assert differing(second, first, expand_left=left, expand_right=right).tolist() == mask


def test_differing_threshold_uses_sample_deviations():
    # d = 0, 0, 0, 1: mean .25, sample deviation .5 (population .433)
    d = [0.0, 0.0, 0.0, 1.0]
    assert differing(d, [0.0] * 4, deviations=1.49, expand_left=0).tolist() == [0, 0, 0, 1]
    assert differing(d, [0.0] * 4, deviations=1.51, expand_left=0).tolist() == [0, 0, 0, 0]


def test_differing_reproduces_the_ngram_example():
    assert differing([0.75, 0.25, 0.0], [0.5, 0.0, 0.0], expand_left=0).tolist() == [1, 1, 0]


@given(VALUES, st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))
def test_masks_agree_with_plain_loops(probabilities, gap, left, right):
    logps = np.log(probabilities)
    selected = [i for i, v in enumerate(logps) if v < logps.mean()] if len(set(logps)) > 1 else []
    filled = {j for a in selected for b in selected if 0 <= b - a <= gap + 1 for j in range(a, b + 1)}
    assert np.flatnonzero(below_mean(logps, gap=gap)).tolist() == sorted(filled)

    distance = np.abs(np.subtract(probabilities, 0.5))
    chosen = [i for i, v in enumerate(distance) if v > distance.mean()] if len(set(distance)) > 1 else []
    near = {j for j in range(len(distance)) for i in chosen if i - left <= j <= i + right}
    mask = differing(probabilities, [0.5] * len(distance), expand_left=left, expand_right=right)
    assert np.flatnonzero(mask).tolist() == sorted(near)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: below_mean([-1.0], gap=-1), "gap must be at least 0"),
        (lambda: below_mean([-1.0, float("nan")]), "NaN or infinite"),
        (lambda: below_mean([[-1.0]]), "shape"),
        (lambda: differing([0.1], [0.1, 0.2]), "first has 1 tokens and second 2"),
        (lambda: differing([0.1], [0.2], expand_right=-1), "expand_left and expand_right"),
    ],
)
def test_bad_values_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
