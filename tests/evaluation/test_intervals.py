"""Bootstrap intervals: clusters and pairing."""

from __future__ import annotations

import math

import numpy as np
import pytest

from atwu.evaluation.intervals import Estimate, Resampler, combine


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


def test_draws_depend_only_on_the_clusters_so_differences_are_paired():
    clusters = [f"person {index % 9}" for index in range(40)]
    rng = np.random.default_rng(0)
    base = rng.normal(size=40)
    first, second = (Resampler(clusters).mean(base + shift) for shift in (0.0, 0.25))
    difference = combine(np.subtract, second, first)
    assert difference.value == pytest.approx(0.25)
    assert difference.interval() == pytest.approx((0.25, 0.25))
    low, high = first.interval()
    assert high - low > 0.1  # the two alone overlap widely


def test_the_order_of_rows_does_not_matter():
    clusters, values = ["a", "a", "b", "c"], [1.0, 2.0, 3.0, 5.0]
    one = Resampler(clusters).mean(values)
    other = Resampler(clusters[::-1]).mean(values[::-1])
    assert one.interval() == pytest.approx(other.interval())


def test_no_values_give_no_interval():
    assert Resampler(["a", "b"]).mean([None, None]).interval() is None
    assert math.isnan(Resampler(["a"]).mean([None]).value)
    assert Estimate(0.5, np.full(10, np.nan)).interval() is None
