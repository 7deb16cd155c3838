"""A dozen of the kills that `python -m tests.kills.run` does by the hundred."""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random

import pytest

from tests.kills.run import DeviceInfo, kill, places
from tests.kills.targets import Target


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DeviceInfo, dict[str, Target]]]:
    pytest.importorskip("openai")
    with places(tmp_path_factory.mktemp("kills")) as found:
        yield found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kills"),
    [
        ("unlearn", 2),
        ("evaluate", 2),
        ("judge", 2),
        pytest.param("tune", 2, marks=pytest.mark.night),  # by day: experiments/tuning/test_kill_and_continue.py
        pytest.param("study, 1 at once", 2, marks=pytest.mark.night),  # and experiments/study/test_run_study.py
    ],
)
def test_killed_commands_leave_what_undisturbed_ones_leave_and_pay_once(name, kills, started):
    seed = int(time.time())
    print("seed of the kills:", seed)
    place, targets = started
    assert not kill(place, targets[name], kills, Random(seed)).said
