"""Bootstrap intervals: clusters, pairing, and the nominal 95 % with few clusters."""

from __future__ import annotations

import math

import numpy as np
import pytest

from atwu.evaluation.intervals import Estimate, Resampler, combine, widening


def test_every_draw_has_the_original_number_of_whole_clusters():
    clusters = ["Orla", "Orla", "Tavi", "Ines", "Ines", "Ines"]
    draws = Resampler(clusters, draws=50)
    assert draws.clusters == 3
    assert (draws.weights[:, 0] == draws.weights[:, 1]).all()
    assert (draws.weights[:, [0, 2, 3]].sum(1) == 3).all()


def test_mean_by_hand_with_a_missing_value():
    draws = Resampler(["a", "b"], draws=400)
    estimate = draws.mean([1.0, None])
    assert estimate.value == 1.0
    only_b = draws.weights[:, 1] == 2
    assert only_b.any()
    assert np.isnan(estimate.draws[only_b]).all()
    assert (estimate.draws[~only_b] == 1.0).all()


def test_the_order_of_rows_does_not_matter():
    clusters, values = ["a", "a", "b", "c"], [1.0, 2.0, 3.0, 5.0]
    one = Resampler(clusters).mean(values)
    other = Resampler(clusters[::-1]).mean(values[::-1])
    assert one.interval() == pytest.approx(other.interval())


def test_no_values_give_no_interval():
    assert Resampler(["a", "b"]).mean([None, None]).interval() is None
    assert math.isnan(Resampler(["a"]).mean([None]).value)
    assert Estimate(0.5, np.full(10, np.nan)).interval() is None


ROWS = 8
"""Rows of each cluster."""
WITHIN = 0.2
"""Correlation of the rows of a cluster."""


def coverage(clusters: int, simulations: int, kind: str) -> float:
    """Share of simulated data sets whose interval holds the true mean (for `paired`, the true difference)."""
    rng = np.random.default_rng([clusters, ["normal", "binary", "paired"].index(kind)])
    names = [str(index // ROWS) for index in range(clusters * ROWS)]
    resampler = Resampler(names, draws=400)

    def sample() -> np.ndarray:
        shared = np.repeat(rng.normal(size=clusters), ROWS) * WITHIN**0.5
        return shared + rng.normal(size=clusters * ROWS) * (1 - WITHIN) ** 0.5

    hits = 0
    for _ in range(simulations):
        if kind == "paired":
            found = combine(np.subtract, resampler.mean(sample()), resampler.mean(sample()))
        else:
            found = resampler.mean(sample() if kind == "normal" else sample() > 0)
        low, high = found.interval() or (0.0, 0.0)
        hits += low <= (0.5 if kind == "binary" else 0.0) <= high
    return hits / simulations


@pytest.mark.night
@pytest.mark.parametrize("kind", ["normal", "binary", "paired"])
@pytest.mark.parametrize("clusters", [2, 4, 8, 10, 20, 40])
def test_intervals_cover_what_they_promise(clusters, kind):
    # Of two clusters the outermost draws are the clusters themselves, less than two standard deviations away.
    assert (0.88 if clusters == 2 else 0.93) <= coverage(clusters, 3000, kind) <= 0.965


def test_few_clusters_have_wider_intervals():
    assert 0.9 <= coverage(4, 300, "normal") <= 0.99
    assert widening(20) == pytest.approx(1.0957, abs=1e-3)
    assert widening(2) == pytest.approx(9.168, abs=1e-2)
    assert widening(0) == widening(1) == 1.0
    assert widening(10_000) == pytest.approx(1.0, abs=1e-3)


def test_the_interval_of_equal_values_at_an_end_has_a_width():
    assert Resampler([*"abcdefghijkl"]).mean([0.0] * 12).interval((0.0, 1.0)) == pytest.approx((0.0, 0.2646), abs=1e-4)
    assert Resampler([*"abcd"]).mean([100.0] * 4).interval((0.0, 100.0)) == pytest.approx((39.76, 100.0), abs=1e-2)
    assert Resampler([*"abcd"]).mean([2.0] * 4).interval((None, None)) == (2.0, 2.0)
    assert Resampler([*"abcd"]).mean([0.5] * 4).interval((0.0, 1.0)) == (0.5, 0.5)


@pytest.mark.parametrize("share", [0.02, 0.05, 0.1])
def test_few_rows_of_a_rare_event_are_covered(share):
    rng, resampler, hits = np.random.default_rng(0), Resampler([*"abcdefghijkl"], draws=400), 0
    for _ in range(400):
        low, high = resampler.mean(rng.random(12) < share).interval((0.0, 1.0)) or (1.0, 0.0)
        hits += low <= share <= high
    assert hits / 400 > 0.94  # percentiles alone: .20, .44 and .70


def test_intervals_stay_within_possible_values_and_hold_the_value():
    resampler = Resampler(["a", "a", "b", "c"])
    assert resampler.mean([0.0, 0.0, 1.0, 0.0]).interval((0.0, 1.0)) == (0.0, 1.0)
    largest = combine(np.maximum, resampler.mean([0.2, 0.4, 0.4, 0.2]), resampler.mean([0.4, 0.2, 0.2, 0.4]))
    low, high = largest.interval() or (1.0, 0.0)
    assert low <= largest.value <= high
