"""Model utility and TOFU's forget quality."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atwu.evaluation.metrics.truth_ratio import forget_quality, model_utility

NINE = [0.9, 0.8, 0.5, 0.6, 0.7, 0.5, 0.6, 0.8, 0.4]


def test_utility_of_the_worked_example() -> None:
    assert model_utility(NINE) == pytest.approx(0.605123, abs=1e-6)
    assert model_utility(NINE[:3]) == pytest.approx(3 / (1 / 0.9 + 1 / 0.8 + 1 / 0.5))
    assert isinstance(model_utility(NINE), float)


def test_utility_edges() -> None:
    assert model_utility([0.9, 0.0, 1.0]) == 0.0
    assert math.isnan(model_utility([0.9, math.nan]))


@settings(max_examples=25)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_utility_lies_between_the_smallest_and_the_mean(values: list[float]) -> None:
    utility = model_utility(values)
    assert min(values) - 1e-12 <= utility <= np.mean(values) + 1e-12


def test_forget_quality_of_the_worked_example() -> None:
    distance, p_value = forget_quality([0.1, 0.2, 0.3, 0.4], [0.3, 0.5, 0.6, 0.7])
    assert distance == pytest.approx(0.75)
    assert p_value == pytest.approx(0.228571, abs=1e-6)


@pytest.mark.parametrize("values", [[], [0.5, -0.1]])
def test_values_without_a_harmonic_mean_are_rejected(values) -> None:
    with pytest.raises(ValueError, match=">= 0"):
        model_utility(values)
