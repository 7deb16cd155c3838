"""Points: inside their ranges, and the same whenever the same is known."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from atwu.experiments.tuning.points import Tried, propose
from atwu.methods.options import Range

SPACE = {
    "learning_rate": Range(1e-5, 1e-3),
    "delta": Range(0.0, 2.0, log=False),
    "layer": Range(4, 12, log=False, integer=True),
}


def history(count: int) -> list[Tried]:
    found: list[Tried] = []
    for slot in range(count):
        point = propose(SPACE, seed=0, slot=slot, tried=found)
        pruned = slot % 5 == 3
        found.append(Tried(slot, point, None if pruned else -abs(point["delta"] - 1.5), pruned))
    return found


def test_first_points_come_first_clipped_and_completed():
    first = [{"learning_rate": 1.0, "delta": 0.5, "layer": 5, "unknown": 3.0}, {"delta": 0.25}]
    point = propose(SPACE, seed=0, slot=0, first=first)
    assert point == {"learning_rate": 1e-3, "delta": 0.5, "layer": 5}
    second = propose(SPACE, seed=0, slot=1, first=first)
    assert second["delta"] == 0.25
    assert SPACE["learning_rate"].low <= second["learning_rate"] <= SPACE["learning_rate"].high


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**31), slot=st.integers(0, 30), known=st.integers(0, 14))
def test_points_lie_in_their_ranges(seed, slot, known):
    point = propose(SPACE, seed=seed, slot=slot, tried=HISTORY[:known])
    assert point.keys() == SPACE.keys()
    assert all(where.low <= point[name] <= where.high for name, where in SPACE.items())
    assert isinstance(point["layer"], int)


HISTORY = history(14)


def test_a_point_follows_from_seed_place_and_what_is_known_in_any_order():
    shuffled = random.Random(1).sample(HISTORY, len(HISTORY))
    asked = propose(SPACE, seed=0, slot=14, tried=HISTORY)
    assert propose(SPACE, seed=0, slot=14, tried=shuffled) == asked
    assert propose(SPACE, seed=1, slot=14, tried=HISTORY) != asked
    assert propose(SPACE, seed=0, slot=15, tried=HISTORY) != asked
    assert propose(SPACE, seed=0, slot=14, tried=HISTORY[:12]) != asked


def test_what_runs_at_the_moment_is_kept_away_from():
    asked = propose(SPACE, seed=0, slot=14, tried=HISTORY)
    again = propose(SPACE, seed=0, slot=14, tried=[*HISTORY, Tried(13, asked)])
    assert again != asked


def test_the_search_moves_to_where_values_are_large():
    found = history(40)
    early = [abs(each.point["delta"] - 1.5) for each in found[:10]]
    late = [abs(each.point["delta"] - 1.5) for each in found[30:]]
    assert sum(late) / 10 < 0.5 * sum(early) / 10
