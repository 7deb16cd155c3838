"""Real processes, really killed in the middle of a trial."""

from __future__ import annotations

import json
import sqlite3
import time

import pytest

from atwu.experiments.tuning.board import release_lost, release_silent
from atwu.experiments.tuning.presence import Presence
from atwu.experiments.tuning.storage import Heartbeat, open_storage

TRIALS = 12


@pytest.mark.slow
@pytest.mark.parametrize("storage", ["-", "search.journal"])
def test_killed_search_ends_with_the_same_points_as_one_that_was_not(
    tmp_path, searching, search_here, kill_in_trial, storage
):
    where = storage if storage == "-" else str(tmp_path / storage)
    killed = tmp_path / "killed"
    first = searching(killed, storage=where, trials=TRIALS, seconds=0.3)
    kill_in_trial(first, killed / "here.log", 4)
    again = searching(killed, storage=where, trials=TRIALS, seconds=0.0)
    found = json.loads(again.communicate(timeout=120)[0])
    assert again.returncode == 0
    assert found == search_here(tmp_path / "whole", trials=TRIALS)
    assert len(found) == TRIALS
    assert [int(line) for line in (killed / "here.log").read_text().split()] == [0, 1, 2, 3, 3, *range(4, TRIALS)]
    assert not list((killed / "workers").iterdir())


@pytest.mark.slow
def test_two_workers_of_which_one_is_killed_fill_the_budget_once(tmp_path, searching, kill_in_trial):
    first = searching(tmp_path, trials=8, seconds=0.5)
    other = searching(tmp_path, trials=8, seconds=0.5)
    kill_in_trial(first, tmp_path / "here.log", 3)
    found = json.loads(other.communicate(timeout=120)[0])
    assert [number for number, *_ in found] == list(range(8))
    with sqlite3.connect(tmp_path / "search.db") as file:
        states = [state for (state,) in file.execute("select state from trials")]
    assert states.count("COMPLETE") + states.count("PRUNED") == 8
    assert "RUNNING" not in states
    assert "WAITING" not in states


def test_a_worker_is_missed_when_its_process_ends(tmp_path, searching):
    mine, other = Presence(tmp_path), Presence(tmp_path)
    assert not mine.has_left(mine.owner())
    assert not mine.has_left(other.owner())
    other._file.close()  # as the system does for a process that was killed
    assert mine.has_left(other.owner())
    other.leave()
    assert not mine.has_left(other.owner())
    assert not mine.has_left({})


@pytest.mark.filterwarnings("ignore:Heartbeat of storage")
def test_worker_that_sleeps_here_keeps_its_silent_trial(tmp_path, search_here):
    search_here(tmp_path, trials=1)
    optuna = pytest.importorskip("optuna")
    storage = open_storage(f"sqlite:///{tmp_path}/search.db")
    study = optuna.load_study(study_name="people-tiny/atwu", storage=storage)
    states, mine, sleeper, gone = optuna.trial.TrialState, *(Presence(tmp_path) for _ in range(3))
    owners = [sleeper.owner(), gone.owner(), sleeper.owner() | {"host": "another"}, {"worker": "unknown"}]
    gone.leave()
    for slot, owner in enumerate(owners, start=1):
        study.enqueue_trial({"beta": 1.0}, user_attrs={"slot": slot, "owner": owner})
        with Heartbeat(storage, study.ask()):
            pass
    release_silent(study, storage, mine, states)
    assert [trial.state for trial in study.trials[1:]] == [states.RUNNING] * 4
    with sqlite3.connect(tmp_path / "search.db") as file:
        file.execute("update trial_heartbeats set heartbeat = datetime('now', '-1 hour')")
    release_silent(study, storage, mine, states)
    assert [trial.state for trial in study.trials[1:]] == [states.RUNNING, *[states.FAIL] * 3]


def test_trial_whose_process_died_before_its_first_heartbeat_is_run_after_a_while(tmp_path, search_here):
    search_here(tmp_path, trials=1)
    optuna = pytest.importorskip("optuna")
    study = optuna.load_study(study_name="people-tiny/atwu", storage=f"sqlite:///{tmp_path}/search.db")
    study.enqueue_trial({"beta": 1.0}, user_attrs={"slot": 1, "owner": {"worker": "of another machine"}})
    taken = study.ask()
    states, presence, waiting = optuna.trial.TrialState, Presence(tmp_path), {}
    release_lost(study, presence, waiting, states, grace=0.2)
    assert study.trials[taken.number].state == states.RUNNING
    time.sleep(0.3)
    release_lost(study, presence, waiting, states, grace=0.2)
    assert study.trials[taken.number].state == states.FAIL
