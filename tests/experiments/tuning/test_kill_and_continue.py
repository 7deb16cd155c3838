"""A search by two processes with SQLite, killed during a trial and resumed."""

from __future__ import annotations

import sqlite3

import pytest

TRIALS = 13


@pytest.mark.night
def test_two_processes_propose_the_same_points_in_any_order_and_after_kills(
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
