"""Points of a search, its exact budget, resuming, and searches that share an executor."""

from __future__ import annotations

import dataclasses
import math
import sqlite3
from concurrent.futures import Future
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atwu.experiments.benchmark_settings import find_setting
from atwu.experiments.executors import InProcessExecutor, Task
from atwu.experiments.tuning.search import FinishedTrial, PreparedSearch, PrunedError, Search, SearchPoint, SearchResult
from atwu.experiments.tuning.trials import STARTUP_TRIALS, Searches, open_trials, search_all, startup_points
from atwu.methods.component import Range
from tests.experiments.tuning.searching import run_trials, value

SETTING = find_setting("people-tiny")
SPACE = {
    "learning_rate": Range(1e-5, 1e-3),
    "delta": Range(0.0, 2.0, log=False),
    "layer": Range(4, 12, log=False, integer=True),
}


class Objective:
    """Maximal where all numbers are 0.7; fails at some trials the first time."""

    def __init__(self, *, fail_at: dict[int, BaseException] | None = None) -> None:
        self.fail_at = dict(fail_at or {})
        self.asked: list[int] = []

    def __call__(self, number: int, point: SearchPoint, folder: Path) -> FinishedTrial:
        self.asked.append(number)
        if number in self.fail_at:
            raise self.fail_at.pop(number)
        if point.get("beta", 0) > 8:
            raise PrunedError("beta is too large")
        return FinishedTrial(number, point, value(point), forget=0.1, retain=0.2)


class AtOnce(InProcessExecutor):
    """So many tasks at once, of which the oldest ends first, except for `slow` ones; notes those under way."""

    slots = 1

    def __init__(self, slots: int, slow: str = "-") -> None:
        super().__init__()
        self.slots, self.slow = slots, slow
        self.tasks: dict[Future, Task] = {}
        self.at_once: list[list[str]] = []

    def submit(self, task: Task) -> Future:
        future: Future = Future()
        self.tasks[future] = task
        return future

    def wait(self, futures):
        names = {future: self.name(self.tasks[future]) for future in futures}
        self.at_once.append(list(names.values()))
        future = min(names, key=lambda each: names[each] == self.slow)
        try:
            future.set_result(self.tasks[future]())
        except Exception as error:
            future.set_exception(error)
        return future

    @staticmethod
    def name(task: Task) -> str:
        return f"{task.folder.parent.name.partition('_')[2]} {int(task.folder.name)}"


def search_for(method: str = "atwu", **changes: object) -> Search:
    return Search(method, SETTING, **{"trials": 13, **changes}).decided()


def run(search: Search, objective: object, folder: Path, executor: InProcessExecutor | None = None) -> SearchResult:
    return run_trials(search, objective, executor or InProcessExecutor(), folder=folder, what={})


def points(found: SearchResult) -> list[tuple[int, SearchPoint, float | None]]:
    return [(trial.number, trial.point, trial.value) for trial in found.trials]


def test_first_points_are_tried_first_and_completed():
    first = [{"learning_rate": 1e-3, "delta": 0.5, "layer": 5, "unknown": 3.0}, {"delta": 0.25}]
    found = startup_points(SPACE, seed=0, first=first)
    assert found[0] == {"learning_rate": 1e-3, "delta": 0.5, "layer": 5}
    assert found[1]["delta"] == 0.25
    assert found[2:] == startup_points(SPACE, seed=0, first=())[2:] != startup_points(SPACE, seed=1, first=())[2:]
    many = startup_points(SPACE, seed=0, first=[{"delta": place / 10} for place in range(12)])
    assert [point["delta"] for point in many] == [place / 10 for place in range(12)]


def test_integers_of_a_range_have_equal_shares():
    layers = SPACE["layer"]
    assert [layers.at((step + 0.5) / 9) for step in range(9)] == list(range(4, 13))
    assert (layers.at(0.0), layers.at(1.0)) == (4, 12)


@given(seed=st.integers(0, 2**31))
def test_startup_points_are_spread_over_the_ranges(seed):
    found = startup_points(SPACE, seed=seed, first=())
    assert len(found) == STARTUP_TRIALS
    assert all(where.low <= point[name] <= where.high for point in found for name, where in SPACE.items())
    assert all(isinstance(point["layer"], int) for point in found)
    (*shares,) = (math.log(point["learning_rate"] / 1e-5) / math.log(100) for point in found[:8])
    assert {int(4 * share) for share in shares[:4]} == {0, 1, 2, 3}
    assert {int(8 * share) for share in shares} == set(range(8))


def test_the_search_moves_towards_large_values(tmp_path):
    def near(number: int, point: SearchPoint, folder: Path) -> FinishedTrial:
        if number % 5 == 3:
            raise PrunedError("now and then")
        return FinishedTrial(number, point, -abs(point["delta"] - 1.5))

    search = dataclasses.replace(search_for(trials=40), space=SPACE, first=())
    found = run(search, near, tmp_path)
    distances = [abs(trial.point["delta"] - 1.5) for trial in found.trials]
    assert sum(distances[30:]) / 10 < 0.5 * sum(distances[:10]) / 10
    assert all(
        SPACE[name].low <= number <= SPACE[name].high for each in found.trials for name, number in each.point.items()
    )
    assert all(isinstance(trial.point["layer"], int) for trial in found.trials)
    shorter = dataclasses.replace(search, trials=STARTUP_TRIALS + 4)
    assert points(run(shorter, near, tmp_path / "again")) == points(found)[: shorter.trials]
    assert (
        points(run(dataclasses.replace(shorter, seed=1), near, tmp_path / "other")) != points(found)[: shorter.trials]
    )


@pytest.mark.parametrize("storage", [None, "{}/one.journal"])
def test_a_stopped_search_keeps_finished_trials_and_repeats_the_others(tmp_path, storage):
    where = None if storage is None else storage.format(tmp_path)
    search = search_for(storage=where)
    objective = Objective(fail_at={4: KeyboardInterrupt(), 9: ValueError("broken"), 12: OSError("no space")})
    for stopped in (KeyboardInterrupt, ValueError, OSError):
        with pytest.raises(stopped):
            run(search, objective, tmp_path / "stopped")
    found = run(search, objective, tmp_path / "stopped")
    assert objective.asked == [0, 1, 2, 3, 4, 4, 5, 6, 7, 8, 9, 9, 10, 11, 12, 12]
    whole = run(search_for(), Objective(), tmp_path / "whole")
    assert points(found)[:STARTUP_TRIALS] == points(whole)[:STARTUP_TRIALS]
    assert run(search, Objective(), tmp_path / "stopped") == found


def test_budget_is_the_same_for_all_and_counts_pruned_trials(tmp_path):
    found = {name: run(search_for(name), Objective(), tmp_path) for name in ("atwu", "grad_diff", "npo")}
    assert {len(result.trials) for result in found.values()} == {13}
    assert found["atwu"].pruned == sum(trial.point["beta"] > 8 for trial in found["atwu"].trials) > 0
    assert all(trial.reason == "beta is too large" for trial in found["atwu"].trials if trial.value is None)
    assert found["atwu"].budget.startswith(f"13 trials, {found['atwu'].pruned} pruned, ")
    assert found["grad_diff"].trials[0].point.keys() == {"learning_rate", "forget_weight", "retain_weight"}


def test_a_larger_budget_continues_the_same_search(tmp_path):
    small, objective = run(search_for(trials=3), Objective(), tmp_path), Objective()
    assert points(run(search_for(trials=13), objective, tmp_path))[:3] == points(small)
    assert objective.asked == list(range(3, 13))
    assert points(run(search_for(trials=3), Objective(), tmp_path)) == points(small)


def test_a_search_with_a_gap_continues_with_a_smaller_budget(tmp_path):
    objective = Objective(fail_at={3: OSError("killed")})
    with pytest.raises(OSError, match="killed"):
        run(search_for(), objective, tmp_path, AtOnce(4, slow="atwu 3"))
    begun = len(objective.asked)
    assert objective.asked[-1] == 3
    found = run(search_for(trials=4), objective, tmp_path)
    assert [trial.number for trial in found.trials] == [0, 1, 2, 3]
    assert objective.asked[begun:] == [3]


def test_a_second_command_in_the_same_storage_is_noticed(tmp_path):
    search = search_for(storage=f"{tmp_path}/one.db", trials=2)

    def meanwhile(number: int, point: SearchPoint, folder: Path) -> FinishedTrial:
        run(search, Objective(), tmp_path / "there")  # from another machine, without our lock
        return FinishedTrial(number, point, 1.0)

    with pytest.raises(ValueError, match="another command is running people-tiny/atwu"):
        run(search, meanwhile, tmp_path / "here")
    assert len(run(search, Objective(), tmp_path / "here").trials) == 2


def searches(
    search: Search, executor: AtOnce, folder: Path, found: dict[str, SearchResult], stages: tuple[str, ...] = ("only",)
) -> Searches:
    for name in stages:
        with open_trials(PreparedSearch(search, Objective(), {}), folder=folder / name) as trials:
            yield trials
            found[f"{search.method} {name}"] = trials.result()


def test_a_later_search_starts_when_earlier_ones_leave_workers_idle(tmp_path):
    executor, found, methods = AtOnce(4), {}, ("atwu", "wga", "npo")
    search_all((searches(search_for(each, trials=2), executor, tmp_path, found) for each in methods), executor)
    assert executor.at_once == [
        ["atwu 0", "atwu 1", "wga 0", "wga 1"],
        ["atwu 1", "wga 0", "wga 1", "npo 0"],
        ["wga 0", "wga 1", "npo 0", "npo 1"],
        ["wga 1", "npo 0", "npo 1"],
        ["npo 0", "npo 1"],
        ["npo 1"],
    ]
    for method in methods:
        alone = run(search_for(method, trials=2), Objective(), tmp_path / "alone")
        assert points(found[f"{method} only"]) == points(alone)


def test_with_one_worker_searches_run_one_after_the_other_and_a_second_stage_follows_its_first(tmp_path):
    executor, found, opened = AtOnce(1), {}, []

    def noted(method: str) -> Searches:
        opened.append((method, sorted(found)))
        yield from searches(search_for(method, trials=2), executor, tmp_path, found, ("first", "second"))

    search_all(map(noted, ("atwu", "wga")), executor)
    assert opened == [("atwu", []), ("wga", ["atwu first", "atwu second"])]
    assert [names for (names,) in executor.at_once] == [f"{name} {n}" for name in ("atwu", "wga") for n in (0, 1, 0, 1)]


def test_a_search_is_closed_as_soon_as_it_ends(tmp_path):
    executor, found, closed = AtOnce(2, slow="atwu 0"), {}, []

    def noted(method: str, trials: int) -> Searches:
        yield from searches(search_for(method, trials=trials), executor, tmp_path, found)
        closed.append(method)

    search_all([noted("atwu", 2), noted("wga", 1)], executor)
    assert executor.at_once == [["atwu 0", "atwu 1"], ["atwu 0", "wga 0"], ["atwu 0"]]
    assert closed == ["wga", "atwu"]


def test_a_failing_trial_ends_all_searches_and_finished_trials_are_kept(tmp_path):
    def failing() -> Searches:
        broken = PreparedSearch(search_for("wga", trials=2), Objective(fail_at={1: OSError("no space")}), {})
        with open_trials(broken, folder=tmp_path) as trials:
            yield trials

    executor, found, said = AtOnce(4), {}, []
    with pytest.raises(OSError, match="no space"):
        search_all([searches(search_for(trials=2), executor, tmp_path, found), failing()], executor)
    assert len(found["atwu only"].trials) == 2
    with open_trials(PreparedSearch(search_for("wga", trials=2), Objective(), {}), folder=tmp_path, say=said.append):
        assert said == ["people-tiny/wga: 1 of 2 trials are already finished"]


@pytest.mark.night
def test_a_killed_search_with_two_processes_continues(tmp_path, searching, search_here, kill_in_trial):
    first = searching(tmp_path, trials=13, seconds=0.2, processes=2)
    kill_in_trial(first, tmp_path / "begun.log", 6)
    found = search_here(tmp_path, trials=13, processes=2)
    assert [number for number, *_ in found] == list(range(13))
    with sqlite3.connect(tmp_path / "search.db") as file:
        states = [state for (state,) in file.execute("select state from trials")]
    assert len(states) == 13
    assert set(states) <= {"COMPLETE", "PRUNED"}


@pytest.mark.slow
def test_a_killed_search_in_postgres_continues_in_another_folder(
    tmp_path, postgres, searching, search_here, kill_in_trial
):
    psycopg = pytest.importorskip("psycopg")
    lost = searching(tmp_path / "one", storage=postgres, trials=12, seconds=0.2)
    kill_in_trial(lost, tmp_path / "one" / "begun.log", 5)
    found = search_here(tmp_path / "two", postgres, trials=12)
    assert found[:STARTUP_TRIALS] == search_here(tmp_path / "file", trials=12)[:STARTUP_TRIALS]
    with psycopg.connect(postgres) as server:
        rows = server.execute("select number, state::text from trials").fetchall()
    assert sorted(number for number, _ in rows) == list(range(12))
    assert {state for _, state in rows} <= {"COMPLETE", "PRUNED"}
