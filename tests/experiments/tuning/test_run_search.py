"""Points of a search, its exact budget, and resuming; kinds of storage, and passwords that are never shown."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atwu.experiments.executors import InProcessExecutor
from atwu.experiments.run_search import STARTUP_TRIALS, startup_points, storage_place
from atwu.experiments.search import FinishedTrial, SearchPoint
from atwu.methods.component import Range
from tests.damage import damage
from tests.experiments.tuning.searching import Objective, points, run, search_for

SPACE = {
    "learning_rate": Range(1e-5, 1e-3),
    "delta": Range(0.0, 2.0, log=False),
    "layer": Range(4, 12, log=False, integer=True),
}


class FourAtOnce(InProcessExecutor):
    slots = 4


def test_first_points_are_tried_first_and_completed():
    first = [{"learning_rate": 1e-3, "delta": 0.5, "layer": 5, "unknown": 3.0}, {"delta": 0.25}]
    found = startup_points(SPACE, seed=0, first=first)
    assert found[0] == {"learning_rate": 1e-3, "delta": 0.5, "layer": 5}
    assert found[1]["delta"] == 0.25
    assert found[2:] == startup_points(SPACE, seed=0, first=())[2:] != startup_points(SPACE, seed=1, first=())[2:]
    layers = SPACE["layer"]
    assert [layers.at(unit) for unit in (0.0, *((step + 0.5) / 9 for step in range(9)), 1.0)] == [4, *range(4, 13), 12]
    many = startup_points(SPACE, seed=0, first=[{"delta": place / 10} for place in range(12)])
    assert [point["delta"] for point in many] == [place / 10 for place in range(12)]


@settings(max_examples=20)
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
    def near(number: int, point: SearchPoint, **folders: Path | None) -> FinishedTrial:
        if number % 5 == 3:
            return FinishedTrial(number, point, None, reason="now and then")
        return FinishedTrial(number, point, -abs(point["delta"] - 1.5))

    search = dataclasses.replace(search_for(trials=24), space=SPACE, first=())
    found = run(search, tmp_path, near)
    distances = [abs(trial.point["delta"] - 1.5) for trial in found.trials]
    assert sum(distances[14:]) < 0.6 * sum(distances[:10])
    assert all(
        SPACE[name].low <= number <= SPACE[name].high for each in found.trials for name, number in each.point.items()
    )
    assert all(isinstance(trial.point["layer"], int) for trial in found.trials)
    shorter = dataclasses.replace(search, trials=STARTUP_TRIALS + 2)
    assert points(run(shorter, tmp_path / "again", near)) == points(found)[: shorter.trials]


@pytest.mark.parametrize("storage", [None, "one.journal"])
def test_a_stopped_search_keeps_finished_trials_and_repeats_the_others(tmp_path, storage):
    search = search_for(storage=storage and str(tmp_path / storage))
    objective = Objective({4: KeyboardInterrupt(), 9: ValueError("broken"), 12: OSError("no space")})
    for stopped in (KeyboardInterrupt, ValueError, OSError):
        with pytest.raises(stopped):
            run(search, tmp_path / "stopped", objective)
    found = run(search, tmp_path / "stopped", objective)
    assert objective.asked == [0, 1, 2, 3, 4, 4, 5, 6, 7, 8, 9, 9, 10, 11, 12, 12]
    first = dataclasses.replace(search_for(), trials=STARTUP_TRIALS)
    assert points(found)[:STARTUP_TRIALS] == points(run(first, tmp_path / "whole"))
    assert run(search, tmp_path / "stopped") == found


@pytest.mark.parametrize(
    ("pattern", "written", "message"),
    [
        (rb"log(?=\W+true)", b"lng", "unexpected keyword"),
        (rb"\n\Z", b'\n{"op_code":99}\n', "Should not reach"),
    ],
)
def test_a_damaged_journal_is_rejected_by_name(tmp_path, pattern, written, message):
    journal = tmp_path / "one.journal"
    search = search_for(storage=str(journal), trials=2)
    whole = run(search, tmp_path)
    assert run(search, tmp_path) == whole
    content = journal.read_bytes()
    journal.write_bytes(re.sub(pattern, lambda _: written, content, count=1))
    assert journal.read_bytes() != content
    with pytest.raises(ValueError, match=f"{re.escape(str(journal))}.*{message}"):
        run(search, tmp_path)


def test_pruned_trials_count_and_a_larger_budget_continues_the_same_search(tmp_path):
    small, objective = run(search_for(trials=2), tmp_path), Objective()
    found = run(search_for(trials=10), tmp_path, objective)
    assert points(found)[:2] == points(small) == points(run(search_for(trials=2), tmp_path))
    assert objective.asked == [2, 3, 4, 5, 6, 7, 8, 9]
    assert len(found.trials) == 10
    assert found.pruned == sum(trial.point["beta"] > 8 for trial in found.trials) > 0
    assert all(trial.reason == "beta is too large" for trial in found.trials if trial.value is None)
    assert found.budget.startswith(f"10 trials, {found.pruned} pruned, ")


def test_a_search_with_a_gap_continues_with_a_smaller_budget(tmp_path):
    objective = Objective({1: OSError("killed")})
    with pytest.raises(OSError, match="killed"):
        run(search_for(), tmp_path, objective, FourAtOnce())
    begun = len(objective.asked)
    assert begun > 4  # later trials than the killed one are finished
    found = run(search_for(trials=4), tmp_path, objective)
    assert [trial.number for trial in found.trials] == [0, 1, 2, 3]
    assert 1 in objective.asked[begun:]
    assert set(objective.asked[begun:]) < {0, 1, 2, 3}


def test_a_second_command_in_the_same_storage_is_noticed(tmp_path):
    search = search_for(storage=f"{tmp_path}/one.db", trials=2)

    def meanwhile(number: int, point: SearchPoint, **folders: Path | None) -> FinishedTrial:
        run(search, tmp_path / "there")  # from another machine, without our lock
        return FinishedTrial(number, point, 1.0)

    with pytest.raises(ValueError, match="another command is running people-tiny/atwu"):
        run(search, tmp_path / "here", meanwhile)
    assert len(run(search, tmp_path / "here").trials) == 2


def test_the_kind_of_storage_follows_from_its_name(tmp_path):
    assert storage_place(None, tmp_path) == f"{tmp_path}/search.db"
    for name in ("mine.db", "mine.journal"):
        assert storage_place(f"{tmp_path}/{name}", tmp_path) == f"{tmp_path}/{name}"
    with pytest.raises(ValueError, match=r"NAME\.db.*NAME\.journal"):
        storage_place("mine.txt", tmp_path)


@pytest.mark.parametrize("name", ["a#1", "a?1%23 ä b"])
def test_a_storage_folder_may_have_any_name(tmp_path, name):
    run(search_for("grad_diff", trials=1), tmp_path / name)
    run(search_for("grad_diff", trials=1, storage=str(tmp_path / name / "mine.db")), tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert {"search.db", "mine.db"} <= {path.name for path in (tmp_path / name).iterdir()}


def test_a_damaged_storage_is_named(tmp_path):
    search = search_for("grad_diff", trials=1)
    run(search, tmp_path)
    for neighbour in tmp_path.glob("search.db-*"):
        neighbour.unlink()
    damage(tmp_path / "search.db", "zeroed")
    with pytest.raises(ValueError, match=r"cannot open the storage .*search\.db"):
        run(search, tmp_path)
