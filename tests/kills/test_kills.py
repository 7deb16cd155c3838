"""A few kills; `python -m tests.kills.run` does hundreds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random

import pytest

from tests.kills.run import Workplace, kill, places
from tests.kills.targets import Target

pytestmark = pytest.mark.night  # whole runs of several requests


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Workplace, dict[str, Target]]]:
    pytest.importorskip("openai")
    with places(tmp_path_factory.mktemp("kills")) as found:
        yield found


@pytest.mark.night
@pytest.mark.parametrize(
    ("name", "kills"),
    # In the daily run: training/test_kill_and_resume.py, study/test_run_study.py, judge/test_prompted_calls.py
    [("unlearn", 2), ("tune", 2), ("study, 1 at once", 2), ("evaluate", 6), ("judge", 6)],
)
def test_killed_commands_end_with_the_files_of_undisturbed_ones_and_repeat_no_call(name, kills, started):
    seed = int(time.time())
    print("seed of the kills:", seed)
    place, targets = started
    assert not kill(place, targets[name], kills, Random(seed)).messages
