"""Points are within their ranges, and equal for equal known results."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from atwu.experiments.tuning.sampler import FinishedTrial, propose
from atwu.methods.component import Range

SPACE = {
    "learning_rate": Range(1e-5, 1e-3),
    "delta": Range(0.0, 2.0, log=False),
    "layer": Range(4, 12, log=False, integer=True),
}


def history(count: int) -> dict[int, FinishedTrial]:
    found: dict[int, FinishedTrial] = {}
    for place in range(count):
        point = propose(SPACE, seed=0, points=[trial.point for trial in found.values()], found=found)
        value = None if place % 5 == 3 else -abs(point["delta"] - 1.5)
        found[place] = FinishedTrial(place, point, value, 0.1)
    return found


def test_first_points_are_tried_first_clipped_and_completed():
    first = [{"learning_rate": 1.0, "delta": 0.5, "layer": 5, "unknown": 3.0}, {"delta": 0.25}]
    point = propose(SPACE, seed=0, first=first)
    assert point == {"learning_rate": 1e-3, "delta": 0.5, "layer": 5}
    second = propose(SPACE, seed=0, points=[point], first=first)
    assert second["delta"] == 0.25
    assert SPACE["learning_rate"].low <= second["learning_rate"] <= SPACE["learning_rate"].high


def test_all_first_points_are_tried():
    first = [{"delta": place / 10} for place in range(12)]
    found = history(11)
    point = propose(SPACE, seed=0, points=[trial.point for trial in found.values()], found=found, first=first)
    assert point["delta"] == 1.1


def test_integers_of_a_range_have_equal_shares():
    layers = SPACE["layer"]
    assert [layers.at((step + 0.5) / 9) for step in range(9)] == list(range(4, 13))
    assert (layers.at(0.0), layers.at(1.0)) == (4, 12)


HISTORY = history(40)
POINTS = [trial.point for trial in HISTORY.values()]


@settings(max_examples=10)
@given(seed=st.integers(0, 2**31), place=st.integers(0, 16))
def test_points_are_within_their_ranges(seed, place):
    point = propose(SPACE, seed=seed, points=POINTS[:place], found=HISTORY)
    assert point.keys() == SPACE.keys()
    assert all(where.low <= point[name] <= where.high for name, where in SPACE.items())
    assert isinstance(point["layer"], int)


def test_a_point_depends_on_seed_index_and_known_results():
    asked = propose(SPACE, seed=0, points=POINTS[:14], found=HISTORY)
    assert asked == POINTS[14]
    assert propose(SPACE, seed=1, points=POINTS[:14], found=HISTORY) != asked
    assert propose(SPACE, seed=0, points=POINTS[:13], found=HISTORY) != asked
    running = {place: trial for place, trial in HISTORY.items() if place < 6}
    assert propose(SPACE, seed=0, points=POINTS[:14], found=running) != asked


def test_the_search_moves_towards_large_values():
    distances = [abs(point["delta"] - 1.5) for point in POINTS]
    assert sum(distances[30:]) / 10 < 0.5 * sum(distances[:10]) / 10


@given(seed=st.integers(0, 2**31))
def test_a_few_points_are_spread_over_the_range(seed):
    rates = {"learning_rate": SPACE["learning_rate"]}
    points: list = []
    for _ in range(8):
        points.append(propose(rates, seed=seed, points=points))
    shares = [math.log(point["learning_rate"] / 1e-5) / math.log(100) for point in points]
    assert {int(4 * share) for share in shares[:4]} == {0, 1, 2, 3}
    assert {int(8 * share) for share in shares} == set(range(8))
