"""Row values of judged metrics from verdicts over several prompts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atwu.evaluation.metrics.judge_scores import average, unscored, worst

PLAIN = [[True, False, False], [False, False, False]]
SHOWN = [[False, False, False], [False, True, False]]


def test_worked_examples() -> None:
    assert worst(PLAIN) == [1.0, 0.0]
    assert worst(SHOWN) == [0.0, 1.0]
    assert worst(PLAIN, SHOWN) == [1.0, 1.0]
    assert [np.mean(values) for values in (worst(PLAIN), worst(SHOWN), worst(PLAIN, SHOWN))] == [0.5, 0.5, 1.0]
    assert np.mean(average([[True, True, False], [False, True, False]])) == pytest.approx(0.5)


def test_missing_verdicts_are_neither_right_nor_wrong() -> None:
    table = [[None, True], [None, False], [None, None], []]
    assert worst(table) == [1.0, 0.0, None, None]
    assert average(table) == [1.0, 0.0, None, None]
    assert worst(table, [[None], [True], [False], [None]]) == [1.0, 1.0, 0.0, None]
    assert unscored(table) == 4
    assert unscored(table, PLAIN) == 4


VERDICTS = st.lists(st.sampled_from([True, False, None]), max_size=4)


@settings(max_examples=25)
@given(st.lists(st.tuples(VERDICTS, VERDICTS), max_size=6))
def test_worst_of_both_is_the_larger_of_the_two(rows) -> None:
    plain, shown = [row[0] for row in rows], [row[1] for row in rows]
    for both, one, other, mean in zip(worst(plain, shown), worst(plain), worst(shown), average(plain), strict=True):
        known = [value for value in (one, other) if value is not None]
        assert both == (max(known) if known else None)
        assert (mean is None) == (one is None)
        assert mean is None or 0 <= mean <= one
