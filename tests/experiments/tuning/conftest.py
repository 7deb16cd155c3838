"""A search in a process of its own, to be killed."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Started

SEARCH = "import sys; from tests.experiments.tuning.searching import main; main(*sys.argv[1:])"


@pytest.fixture
def searching() -> Callable[..., Started]:
    """Starts a search, which ends by itself after seconds."""

    def start(folder: Path, *, trials: int, seconds: float, processes: int = 1) -> Started:
        folder.mkdir(parents=True, exist_ok=True)
        return Started([folder, trials, seconds, processes], code=SEARCH)

    return start


@pytest.fixture(scope="session")
def search_here() -> Callable[..., list[Any]]:
    """The same search in this process."""
    from tests.experiments.tuning.searching import search

    return search


@pytest.fixture
def kill_in_trial() -> Callable[[Started, Path, int], None]:
    """Kills a search as soon as it has begun so many trials."""

    def kill(process: Started, log: Path, trials: int) -> None:
        deadline = time.monotonic() + 240
        while not log.is_file() or len(log.read_text().split()) < trials:
            assert not process.ended(), "the search ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert process.kill().returncode == -signal.SIGKILL

    return kill
