"""FQ, RD, UQ against published rows, and the win rate."""

from __future__ import annotations

import math

import numpy as np
import pytest

from atwu.evaluation.relative import fq, rd, uq, win, win_rate


def test_rows_of_published_tables() -> None:
    forgetting, cost = fq(14.5, 93.1), rd(40.3, 43.0)
    assert forgetting == pytest.approx(0.844253, abs=1e-6)
    assert cost == pytest.approx(0.062791, abs=1e-6)
    assert uq(forgetting, cost) == pytest.approx(0.781463, abs=1e-6)
    assert fq(4.8, 99.5) == pytest.approx(0.951759, abs=1e-6)
    assert rd(65.4, 67.8) == pytest.approx(0.035398, abs=1e-6)
    assert uq(fq(15.8, 84.8), rd(50.9, 65.8)) == pytest.approx(0.587235, abs=1e-6)
    # Printed from unrounded inputs.
    for value, printed in ((forgetting, 84.4), (cost, 6.3), (uq(forgetting, cost), 78.1)):
        assert 100 * value == pytest.approx(printed, abs=0.2)


def test_scale_does_not_matter_and_gains_count_as_nothing_lost() -> None:
    assert fq(0.145, 0.931) == pytest.approx(fq(14.5, 93.1))
    assert fq(95.0, 93.1) == rd(50.0, 43.0) == uq(0.1, 0.4) == 0.0
    assert isinstance(fq(14.5, 93.1), float)


def test_nothing_known_before_is_undefined() -> None:
    assert math.isnan(fq(0.0, 0.0))
    assert math.isnan(rd(1.0, 0.0))
    assert math.isnan(uq(fq(0.0, 0.0), 0.1))
    assert math.isnan(fq(0.5, math.nan))


def test_arrays_go_element_by_element() -> None:
    now, before = np.array([14.5, 95.0, 1.0]), np.array([93.1, 93.1, 0.0])
    np.testing.assert_allclose(fq(now, before), [0.844253, 0, np.nan], atol=1e-6)
    np.testing.assert_allclose(uq(np.array([0.8, np.nan]), np.array([0.3, 0.1])), [0.5, np.nan])


def test_win_rate_of_the_worked_example() -> None:
    first, second = [5.0] * 100, [8.0] * 40 + [5.0] * 30 + [2.0] * 30
    found = win_rate(first, second)
    assert (found.value, found.wins, found.ties, found.losses, found.unscored) == (55.0, 40, 30, 30, 0)
    assert np.mean([win(a, b) for a, b in zip(first, second, strict=True)]) == pytest.approx(55.0)
    assert win_rate(second, first).value == 45.0


def test_unscored_comparisons_are_in_no_denominator() -> None:
    found = win_rate([5, None, 5, None], [8, 8, None, None])
    assert (found.value, found.unscored) == (100.0, 3)
    empty = win_rate([None], [3.0])
    assert math.isnan(empty.value)
    assert empty.unscored == 1
    assert math.isnan(win_rate([], []).value)
    with pytest.raises(ValueError, match="2 ratings against 1"):
        win_rate([1, 2], [1])
