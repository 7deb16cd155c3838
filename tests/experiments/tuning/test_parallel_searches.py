"""Parallel searches: a later one uses idle workers, and has the same result as alone."""

from __future__ import annotations

import re
from collections import deque
from pathlib import Path

import pytest

from atwu.experiments.benchmark_settings import find_setting
from atwu.experiments.executors import InProcessExecutor
from atwu.experiments.tuning.search import FinishedTrial, SearchPoint
from atwu.experiments.tuning.search import PreparedSearch, Search, SearchResult
from atwu.experiments.tuning.trials import Searches, open_trials, search_all
from tests.experiments.tuning.searching import run_trials, value

METHODS = ("atwu", "wga", "npo")


class Noted(InProcessExecutor):
    """So many at once; which ones, is noted at every result."""

    def __init__(self, slots: int) -> None:
        super().__init__()
        self.slots = slots
        self.at_once: list[list[str]] = []

    def result(self):
        self.at_once.append([str(key).removeprefix("people-tiny/") for key, _ in self._waiting])
        return super().result()


def search_for(method: str, **changes: object) -> Search:
    return Search(method, find_setting("people-tiny"), **{"trials": 2, **changes}).decided()


def evaluate(place: int, point: SearchPoint, folder: Path) -> FinishedTrial:
    return FinishedTrial(place, point, value(point))


def line(
    search: Search, queue: InProcessExecutor, folder: Path, found: dict[str, SearchResult], *, twice: bool = False
) -> Searches:
    for name in ("first", "second") if twice else ("only",):
        with open_trials(PreparedSearch(search, evaluate, {}), slots=queue.slots, folder=folder / name) as trials:
            yield trials
            found[f"{search.method} {name}"] = trials.result()


def points(found: SearchResult) -> list[tuple[int, SearchPoint, float | None]]:
    return [(trial.number, trial.point, trial.value) for trial in found.trials]


def test_a_later_search_starts_when_earlier_ones_leave_workers_idle(tmp_path):
    queue, found = Noted(4), {}
    search_all((line(search_for(method), queue, tmp_path / "together", found) for method in METHODS), queue)
    assert queue.at_once == [
        ["atwu, trial 0", "atwu, trial 1", "wga, trial 0", "wga, trial 1"],
        ["atwu, trial 1", "wga, trial 0", "wga, trial 1", "npo, trial 0"],
        ["wga, trial 0", "wga, trial 1", "npo, trial 0", "npo, trial 1"],
        ["wga, trial 1", "npo, trial 0", "npo, trial 1"],
        ["npo, trial 0", "npo, trial 1"],
        ["npo, trial 1"],
    ]
    for method in METHODS:
        alone = run_trials(search_for(method), evaluate, Noted(4), folder=tmp_path / "alone", what={})
        assert points(found[f"{method} only"]) == points(alone)


def test_with_one_worker_searches_run_one_after_the_other(tmp_path):
    queue, found, opened = Noted(1), {}, []

    def noted(method: str) -> Searches:
        opened.append((method, sorted(found)))
        yield from line(search_for(method), queue, tmp_path, found)

    search_all(map(noted, METHODS), queue)
    assert opened == [("atwu", []), ("wga", ["atwu only"]), ("npo", ["atwu only", "wga only"])]
    assert [keys for (keys,) in queue.at_once] == [f"{method}, trial {n}" for method in METHODS for n in (0, 1)]


def test_the_second_search_of_a_variant_starts_as_soon_as_the_first_ends(tmp_path):
    queue, found = Noted(2), {}
    lines = [
        line(search_for("atwu"), queue, tmp_path, found, twice=True),
        line(search_for("wga", trials=3), queue, tmp_path, found),
    ]
    search_all(lines, queue)
    assert queue.at_once[:4] == [
        ["atwu, trial 0", "atwu, trial 1"],
        ["atwu, trial 1", "wga, trial 0"],
        ["wga, trial 0", "atwu, trial 0"],
        ["atwu, trial 0", "atwu, trial 1"],
    ]
    assert sorted(found) == ["atwu first", "atwu second", "wga only"]


class FirstIsSlow(Noted):
    """The first trial of atwu takes longest."""

    def result(self):
        self._waiting = deque(sorted(self._waiting, key=lambda waiting: waiting[0].endswith("atwu, trial 0")))
        return super().result()


def test_a_search_is_closed_as_soon_as_it_ends(tmp_path):
    queue, found, closed = FirstIsSlow(2), {}, []

    def noted(method: str, trials: int) -> Searches:
        yield from line(search_for(method, trials=trials), queue, tmp_path, found)
        closed.append((method, len(queue.at_once)))

    search_all([noted("atwu", 5), noted("wga", 1)], queue)
    assert queue.at_once[:3] == [
        ["atwu, trial 1", "atwu, trial 0"],
        ["wga, trial 0", "atwu, trial 0"],
        ["atwu, trial 0"],
    ]
    assert closed == [("wga", 2), ("atwu", 6)]


def test_a_failing_trial_ends_all_searches_and_finished_trials_are_kept(tmp_path):
    def broken(place: int, point: SearchPoint, folder: Path) -> FinishedTrial:
        if place == 1:
            raise OSError("no space")
        return FinishedTrial(place, point, value(point))

    def failing() -> Searches:
        with open_trials(PreparedSearch(search_for("wga"), broken, {}), slots=4, folder=tmp_path) as trials:
            yield trials

    queue, found = Noted(4), {}
    with pytest.raises(OSError, match="no space"):
        search_all([line(search_for("atwu"), queue, tmp_path / "whole", found), failing()], queue)
    assert len(found["atwu only"].trials) == 2
    again, said = Noted(4), []
    search_all([_said(search_for("wga"), tmp_path, said)], again)
    assert again.at_once == [["wga, trial 1"]]
    (note,) = said
    assert re.search("^people-tiny/wga: 1 of 2 trials", note)


def _said(search: Search, folder: Path, said: list[str]) -> Searches:
    with open_trials(PreparedSearch(search, evaluate, {}), slots=4, folder=folder, say=said.append) as trials:
        yield trials
