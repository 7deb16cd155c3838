"""A dozen kills; `python -m tests.kills.run` does hundreds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random

import pytest

from tests.kills.run import Workplace, kill, places
from tests.kills.targets import Target


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Workplace, dict[str, Target]]]:
    pytest.importorskip("openai")
    with places(tmp_path_factory.mktemp("kills")) as found:
        yield found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kills"),
    [
        pytest.param("unlearn", 2, marks=pytest.mark.night),  # training/test_kill_and_resume.py
        ("evaluate", 2),
        ("judge", 2),
        pytest.param("tune", 2, marks=pytest.mark.night),  # in the daily run: experiments/tuning/test_trials.py
        pytest.param("study, 1 at once", 2, marks=pytest.mark.night),  # and experiments/study/test_run_study.py
    ],
)
def test_killed_commands_end_with_the_files_of_undisturbed_ones_and_repeat_no_call(name, kills, started):
    seed = int(time.time())
    print("seed of the kills:", seed)
    place, targets = started
    assert not kill(place, targets[name], kills, Random(seed)).messages
