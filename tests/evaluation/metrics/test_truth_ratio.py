"""Truth ratio and its forms, model utility and forget quality."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atwu.evaluation.metrics.truth_ratio import (
    model_utility,
    probability_with_options,
    scaled_truth_ratio,
    truth_ratio,
)

LOSSES = st.floats(0, 15)


def test_worked_example() -> None:
    ratio = truth_ratio(0.5, [1, 1.5, 2])
    assert ratio == pytest.approx(0.367879, abs=1e-6)
    assert scaled_truth_ratio(ratio, "forget") == pytest.approx(0.367879, abs=1e-6)
    assert scaled_truth_ratio(ratio, "retain") == pytest.approx(0.632121, abs=1e-6)
    assert truth_ratio(0.5, [1, 1.5, 2], mean="arithmetic") == pytest.approx(0.399180, abs=1e-6)


@settings(max_examples=25)
@given(LOSSES, st.lists(LOSSES, min_size=1, max_size=5))
def test_identities(correct: float, wrong: list[float]) -> None:
    geometric, arithmetic = (truth_ratio(correct, wrong, mean=mean) for mean in ("geometric", "arithmetic"))
    assert geometric <= arithmetic * (1 + 1e-12)
    assert truth_ratio(correct, wrong[:1], mean="arithmetic") == pytest.approx(truth_ratio(correct, wrong[:1]))
    for ratio in (geometric, arithmetic):
        assert 0 <= scaled_truth_ratio(ratio, "forget") <= 1
        assert 0 <= scaled_truth_ratio(ratio, "retain") <= 1


def test_impossible_answers_stay_finite() -> None:
    assert truth_ratio(1e4, [1e4]) == 0.0


def test_probability_with_options() -> None:
    assert probability_with_options(0.6, [0.2, 0.1, 0.1]) == pytest.approx(0.6, abs=1e-6)
    assert probability_with_options(0.0, []) == 0.0


@pytest.mark.parametrize(("correct", "wrong"), [(0.5, [math.nan]), (math.nan, [1.0])])
def test_a_loss_that_is_nan_is_rejected(correct, wrong) -> None:
    with pytest.raises(ValueError, match="NaN"):
        truth_ratio(correct, wrong)


def test_utility_edges() -> None:
    assert model_utility([0.9, 0.0, 1.0]) == 0.0
    assert math.isnan(model_utility([0.9, math.nan]))


@settings(max_examples=25)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_utility_lies_between_the_smallest_and_the_mean(values: list[float]) -> None:
    utility = model_utility(values)
    assert min(values) - 1e-12 <= utility <= np.mean(values) + 1e-12
