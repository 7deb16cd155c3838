"""A search by one process, in a journal, and one by two, in SQLite, really killed in the middle of a trial, and continued."""

from __future__ import annotations

import sqlite3

import pytest

TRIALS = 13


@pytest.mark.slow
def test_killed_search_ends_with_the_same_points_as_one_that_was_not(tmp_path, searching, search_here, kill_in_trial):
    where = str(tmp_path / "search.journal")
    killed = tmp_path / "killed"
    first = searching(killed, storage=where, trials=TRIALS, seconds=0.3)
    kill_in_trial(first, killed / "begun.log", 4)
    again = search_here(killed, where, trials=TRIALS)
    assert again == search_here(tmp_path / "whole", trials=TRIALS)
    assert len(again) == TRIALS
    assert [int(line) for line in (killed / "begun.log").read_text().split()] == [0, 1, 2, 3, 3, *range(4, TRIALS)]


@pytest.mark.night
def test_two_processes_ask_for_the_same_points_whichever_ends_first_killed_or_not(
    tmp_path, searching, search_here, kill_in_trial
):
    killed = tmp_path / "killed"
    first = searching(killed, trials=TRIALS, seconds=0.2, processes=2)
    kill_in_trial(first, killed / "begun.log", 6)
    again = search_here(killed, trials=TRIALS, processes=2)
    assert [number for number, *_ in again] == list(range(TRIALS))
    assert again == search_here(tmp_path / "whole", trials=TRIALS, processes=2)
    with sqlite3.connect(killed / "search.db") as file:
        states = [state for (state,) in file.execute("select state from trials")]
    assert len(states) == TRIALS
    assert set(states) <= {"COMPLETE", "PRUNED"}
