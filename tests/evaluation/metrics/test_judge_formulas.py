"""Row values of judged metrics from verdicts; FQ, RD, UQ against published rows; single wins."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atwu.evaluation.metrics.fluency import win
from atwu.evaluation.metrics.judge_scores import average, relative_drop, uq, worst


def test_missing_verdicts_are_neither_right_nor_wrong() -> None:
    rows = [[None, True], [None, False], [None, None], []]
    assert [worst(row) for row in rows] == [1.0, 0.0, None, None]
    assert [average(row) for row in rows] == [1.0, 0.0, None, None]


VERDICTS = st.lists(st.sampled_from([True, False, None]), max_size=4)


@settings(max_examples=25)
@given(VERDICTS, VERDICTS)
def test_worst_of_both_is_the_larger_of_the_two(plain, shown) -> None:
    known = [value for value in (worst(plain), worst(shown)) if value is not None]
    assert worst([*plain, *shown]) == (max(known) if known else None)
    mean = average(plain)
    assert (mean is None) == (worst(plain) is None)
    assert mean is None or 0 <= mean <= worst(plain)


def test_rows_of_published_tables() -> None:
    forgetting, cost = relative_drop(14.5, 93.1), relative_drop(40.3, 43.0)
    assert forgetting == pytest.approx(0.844253, abs=1e-6)
    assert cost == pytest.approx(0.062791, abs=1e-6)
    assert uq(forgetting, cost) == pytest.approx(0.781463, abs=1e-6)
    assert relative_drop(4.8, 99.5) == pytest.approx(0.951759, abs=1e-6)
    assert relative_drop(65.4, 67.8) == pytest.approx(0.035398, abs=1e-6)
    assert uq(relative_drop(15.8, 84.8), relative_drop(50.9, 65.8)) == pytest.approx(0.587235, abs=1e-6)
    # Printed from unrounded inputs.
    for value, printed in ((forgetting, 84.4), (cost, 6.3), (uq(forgetting, cost), 78.1)):
        assert 100 * value == pytest.approx(printed, abs=0.2)


def test_results_are_independent_of_scale_and_gains_count_as_zero() -> None:
    assert relative_drop(0.145, 0.931) == pytest.approx(relative_drop(14.5, 93.1))
    assert relative_drop(95.0, 93.1) == relative_drop(50.0, 43.0) == uq(0.1, 0.4) == 0.0
    assert isinstance(relative_drop(14.5, 93.1), float)


def test_undefined_if_the_original_model_knew_nothing() -> None:
    assert math.isnan(relative_drop(0.0, 0.0))
    assert math.isnan(relative_drop(1.0, 0.0))
    assert math.isnan(uq(relative_drop(0.0, 0.0), 0.1))
    assert math.isnan(relative_drop(0.5, math.nan))


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [(5.0, 8.0, 100.0), (5.0, 5.0, 50.0), (5.0, 2.0, 0.0), (None, 8.0, None), (5.0, None, None)],
)
def test_win_rate_counts_ties_half_and_skips_unscored_comparisons(first, second, expected) -> None:
    assert win(first, second) == expected
