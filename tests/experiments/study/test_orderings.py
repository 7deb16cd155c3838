"""Pairwise orderings of a published table compared with those of a study."""

from __future__ import annotations

import math

import pytest

from atwu.experiments.study.published_comparison import orderings, outcome_of

NAN = math.nan


@pytest.mark.parametrize(
    ("difference", "outcome"),
    [
        ((2.0, 1.0, 3.0), "holds"),
        ((2.0, -1.0, 5.0), "holds, within noise"),
        ((2.0, 0.0, 4.0), "holds, within noise"),
        ((2.0, NAN, NAN), "holds, within noise"),
        ((0.0, -1.0, 1.0), "open"),
        ((NAN, NAN, NAN), "open"),
        (None, "open"),
        ((-2.0, -5.0, 1.0), "reversed, within noise"),
        ((-2.0, -3.0, -1.0), "reversed"),
    ],
)
def test_outcome_of_one_pair(difference, outcome):
    assert outcome_of(difference, direction="up") == outcome
    mirrored = difference and (-difference[0], -difference[2], -difference[1])
    assert outcome_of(mirrored, direction="down") == outcome


def test_four_methods_worked_out_by_hand():
    published = {"orla": 80.0, "tavi": 60.0, "venn": 60.0, "brook": 20.0, "kelbury": 99.0}
    ours = {"orla": 70.0, "tavi": 75.0, "venn": 40.0, "brook": 30.0, "other": 1.0}
    differences = {
        ("orla", "tavi"): (-5.0, -9.0, -1.0),
        ("orla", "venn"): (30.0, 20.0, 40.0),
        ("orla", "brook"): (40.0, 35.0, 45.0),
        ("tavi", "brook"): (45.0, 40.0, 50.0),
        ("venn", "brook"): (10.0, -2.0, 22.0),
    }
    found = orderings(ours, published, lambda *pair: differences[pair], direction="up")
    assert {(pair.better, pair.worse): pair.outcome for pair in found.pairs} == {
        ("orla", "tavi"): "reversed",
        ("orla", "venn"): "holds",
        ("orla", "brook"): "holds",
        ("tavi", "brook"): "holds",
        ("venn", "brook"): "holds, within noise",
    }
    (pair,) = [pair for pair in found.pairs if (pair.better, pair.worse) == ("orla", "venn")]
    assert (pair.published, pair.ours) == (20.0, (30.0, 20.0, 40.0))
    # 4 concordant and 1 discordant of 6 pairs, 1 tied in the published table: (4 - 1) / sqrt(5 * 6).
    assert found.tau == pytest.approx(3 / math.sqrt(30))
    assert found.reading == (
        "Of 5 published orderings 3 hold beyond noise, 1 holds within noise, 1 is reversed beyond noise "
        "(Kendall's tau 0.55)."
    )


def test_lower_values_win_if_less_is_better():
    published, ours = {"orla": 0.03, "tavi": 0.3}, {"orla": 0.1, "tavi": 0.2}
    found = orderings(ours, published, lambda first, second: (ours[first] - ours[second], NAN, NAN), direction="down")
    (pair,) = found.pairs
    assert (pair.better, pair.worse, pair.outcome) == ("orla", "tavi", "holds, within noise")
    assert pair.published == pytest.approx(-0.27)
    assert found.tau == 1
    assert found.reading == "Of 1 published ordering 1 holds within noise (Kendall's tau 1.00)."


def test_too_few_values_to_compare():
    empty = orderings({"orla": 1.0}, {"orla": 2.0, "tavi": 1.0}, lambda *pair: None, direction="up")
    assert (empty.pairs, empty.tau) == ((), None)
    assert "No two labels" in empty.reading
    tied = orderings(
        {"orla": 1.0, "tavi": 2.0, "venn": NAN}, {"orla": 5.0, "tavi": 5.0, "venn": 1.0}, {}, direction="up"
    )
    assert (tied.pairs, tied.tau) == ((), None)
    unasked = orderings({"orla": 1.0, "tavi": 2.0}, {"orla": 5.0, "tavi": 4.0}, lambda *pair: None, direction="up")
    assert "1 is open" in unasked.reading
