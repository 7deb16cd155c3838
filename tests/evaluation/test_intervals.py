"""Bootstrap intervals: clusters, pairing, and the nominal 95 % with few clusters."""

from __future__ import annotations

import math

import numpy as np
import pytest

from atwu.evaluation.intervals import Estimate, Resampler, combine, subtract, unseen_share, widening


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
    """Share of simulated data sets of several rows per cluster whose interval holds the mean (for `paired`, the difference)."""
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
        elif kind == "normal":
            found = resampler.mean(sample())
        else:
            found = resampler.mean(sample() > 0).bounded((0.0, 1.0))
        low, high = found.interval() or (0.0, 0.0)
        hits += low <= (0.5 if kind == "binary" else 0.0) <= high
    return hits / simulations


@pytest.mark.night
@pytest.mark.parametrize("kind", ["normal", "binary", "paired"])
@pytest.mark.parametrize("clusters", [2, 4, 8, 10, 20, 40])
def test_intervals_cover_what_they_promise(clusters, kind):
    # Of two clusters the outermost draws are the clusters themselves, less than two standard deviations away; equal ones tell
    # almost nothing.
    least, most = (0.88, 1.0) if clusters == 2 else (0.93, 0.965)
    assert least <= coverage(clusters, 3000, kind) <= most


RARE = (0.02, 0.1, 0.3)
"""Shares of rows with another value."""
CHANGES = {
    "one way": (lambda rng, rows: np.ones(rows), 1.0),
    "both ways": (lambda rng, rows: np.where(rng.random(rows) < 0.8, 1.0, -1.0), 0.6),
    "of any size": (lambda rng, rows: rng.random(rows), 0.5),
}
"""Kind -> change of the rows that change, and its mean."""


def coverage_of_changes(clusters: int, simulations: int, kind: str, share: float) -> float:
    """Coverage of the paired difference of two models that have equal values on most of their rows, one row per cluster."""
    rng = np.random.default_rng([clusters, list(CHANGES).index(kind)])
    resampler = Resampler([str(index) for index in range(clusters)], draws=400)
    change, mean = CHANGES[kind]
    hits = 0
    for _ in range(simulations):
        changed = (rng.random(clusters) < share) * change(rng, clusters)
        before = np.clip(-changed, 0.0, 1.0) + (changed == 0) * 0.3
        estimate = subtract(resampler.mean(before + changed), resampler.mean(before), (0.0, 1.0))
        low, high = estimate.interval() or (1.0, -1.0)
        hits += low <= share * mean <= high
    return hits / simulations


@pytest.mark.night
@pytest.mark.parametrize("share", RARE)
@pytest.mark.parametrize("kind", list(CHANGES))
@pytest.mark.parametrize("clusters", [2, 4, 8, 12, 20, 40])
def test_paired_differences_of_mostly_equal_values_are_covered(clusters, kind, share):
    assert coverage_of_changes(clusters, 3000, kind, share) >= (0.88 if clusters == 2 else 0.93)


@pytest.mark.parametrize("clusters", [8, 12])
def test_a_few_changes_among_equal_values_are_covered(clusters):
    assert coverage_of_changes(clusters, 300, "one way", 0.1) > 0.95  # percentiles alone: .58 and .69


@pytest.mark.parametrize("clusters", [2, 5, 6])
def test_a_change_of_every_row_is_significant_from_six_subjects_on(clusters):
    """With five, the sign test has p = 2 / 2^5 = .0625, with six .031."""
    resampler = Resampler([str(index) for index in range(clusters)])
    difference = subtract(resampler.mean([1.0] * clusters), resampler.mean([0.0] * clusters), (0.0, 1.0))
    low, high = difference.interval() or (1.0, 0.0)
    assert (difference.value, high) == (1.0, 1.0)
    assert low == pytest.approx(2 * 0.025 ** (1 / clusters) - 1)
    assert (low > 0) == (clusters == 6)


def test_no_change_at_all_leaves_room_for_changes_not_seen():
    resampler = Resampler([*"abcdefgh"])
    values = np.linspace(0.1, 0.8, 8)
    difference = subtract(resampler.mean(values), resampler.mean(values), (0.0, 1.0))
    assert difference.interval() == pytest.approx((-0.3694, 0.3694), abs=1e-4)  # 1 - .025^(1/8)


def test_unseen_changes_are_bounded_by_the_range_and_by_those_seen():
    """One of eight rows changes: the exact end of 1/8 is .5265, so .4015 more rows may have changed."""
    assert unseen_share(1, 8) == pytest.approx(0.5265 - 0.125, abs=1e-4)
    assert unseen_share(8, 8) == 0.0
    resampler = Resampler([*"abcdefgh"])

    def change(size: float) -> tuple[float, float]:
        difference = subtract(resampler.mean([size] + [0.0] * 7), resampler.mean([0.0] * 8), (0.0, 1.0))
        return difference.interval() or (1.0, 0.0)

    assert change(1.0) == pytest.approx((0.125 - 0.4015, 0.125 + 0.4015), abs=1e-4)
    low, high = change(0.1)  # unseen ones may be twice as large as the only one seen
    assert low == pytest.approx(0.0125 - 0.2 * 0.4015, abs=1e-4)
    assert high == pytest.approx(0.0125 + 0.2 * 0.4015, abs=1e-4)


def test_values_that_all_differ_keep_the_widened_percentiles():
    values = np.random.default_rng(3).normal(size=8)
    estimate = Resampler([*"abcdefgh"]).mean(values)
    low, high = estimate.percentiles() or (0.0, 0.0)
    ends = [estimate.value + widening(8) * (end - estimate.value) for end in (low, high)]
    assert estimate.interval() == pytest.approx(tuple(ends))
    assert estimate.bounded((-10.0, 10.0)).interval() == estimate.interval()


def test_each_set_of_clusters_has_its_own_unseen_changes():
    """Half of the forget set's change comes from one of its four rows; nothing is known of the eight equal retain rows."""
    forget, retain = Resampler([*"abcd"], seed=1), Resampler([*"abcdefgh"], seed=2)
    both = combine(np.add, forget.mean([1.0, 0.0, 0.0, 0.0]), retain.mean([0.5] * 8))
    low, high = both.interval() or (1.0, 0.0)
    reach = 2 * unseen_share(1, 4)
    assert (low, high) == pytest.approx((0.75 - reach, 0.75 + reach))


def test_a_cluster_without_values_is_no_equal_one():
    values = [0.1, 0.4, 0.7, None, None, None]
    estimate = Resampler([*"abcdef"]).mean(values)
    assert np.isnan(next(iter(estimate.alike.values()))[3:]).all()
    assert estimate.interval() == estimate.bounded((-9.0, 9.0)).interval()


def test_few_clusters_have_wider_intervals():
    assert 0.9 <= coverage(4, 300, "normal") <= 0.99
    assert widening(20) == pytest.approx(1.0957, abs=1e-3)
    assert widening(2) == pytest.approx(9.168, abs=1e-2)
    assert widening(0) == widening(1) == 1.0
    assert widening(10_000) == pytest.approx(1.0, abs=1e-3)


def test_the_interval_of_equal_values_at_an_end_has_a_width():
    def interval(value: float, clusters: str, within):
        return Resampler([*clusters]).mean([value] * len(clusters)).bounded(within).interval()

    assert interval(0.0, "abcdefghijkl", (0.0, 1.0)) == pytest.approx((0.0, 0.2646), abs=1e-4)
    assert interval(100.0, "abcd", (0.0, 100.0)) == pytest.approx((39.76, 100.0), abs=1e-2)
    assert interval(0.5, "abcd", (0.0, 1.0)) == pytest.approx((0.1988, 0.8012), abs=1e-4)
    assert interval(2.0, "abcd", (None, None)) is interval(2.0, "abcd", (0.0, None)) is None


@pytest.mark.parametrize("share", [0.02, 0.05, 0.1])
def test_few_rows_of_a_rare_event_are_covered(share):
    rng, resampler, hits = np.random.default_rng(0), Resampler([*"abcdefghijkl"], draws=400), 0
    for _ in range(400):
        low, high = resampler.mean(rng.random(12) < share).bounded((0.0, 1.0)).interval() or (1.0, 0.0)
        hits += low <= share <= high
    assert hits / 400 > 0.94  # percentiles alone: .20, .44 and .70


def test_intervals_stay_within_possible_values_and_hold_the_value():
    resampler = Resampler(["a", "a", "b", "c"])
    assert resampler.mean([0.0, 0.0, 1.0, 0.0]).bounded((0.0, 1.0)).interval() == (0.0, 1.0)
    largest = combine(np.maximum, resampler.mean([0.2, 0.4, 0.4, 0.2]), resampler.mean([0.4, 0.2, 0.2, 0.4]))
    low, high = largest.interval() or (1.0, 0.0)
    assert low <= largest.value <= high
