"""Several processes on one machine fill one budget."""

from __future__ import annotations

import os

import pytest

from atwu.experiments.study.scales import find_scale
from atwu.experiments.tuning.points import Point
from atwu.experiments.tuning.run import run_trials
from atwu.experiments.tuning.search import Outcome, Search
from atwu.experiments.tuning.workers import _portable, environment


def threads(slot: int, point: Point) -> Outcome:
    if slot == 5:
        raise ValueError(f"place {slot} is broken")
    return Outcome(float(os.environ["OMP_NUM_THREADS"]), float(os.getpid()))


def test_cores_and_devices_are_shared_out():
    assert environment(0, 2, cores=8) == {"OMP_NUM_THREADS": "4"}
    assert environment(2, 3, cores=2, devices=("4", "7")) == {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "4"}


def test_errors_travel_to_the_parent_as_themselves_or_as_text():
    class LocalError(Exception):
        pass

    assert type(_portable(FileNotFoundError(2, "gone", "rows.jsonl"))) is FileNotFoundError
    assert str(_portable(LocalError("broken"))) == "LocalError: broken"


@pytest.mark.slow
def test_workers_fill_the_budget_and_an_error_in_one_stops_all(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "17")
    search = Search("atwu", find_scale("people-tiny"), trials=5).decided()
    found = run_trials(search, threads, folder=tmp_path, what={}, processes=2)
    assert len(found.trials) == 5
    assert {trial.value for trial in found.trials} == {max(1.0, (os.cpu_count() or 1) // 2)}
    assert os.getpid() not in {trial.forget for trial in found.trials}
    assert os.environ["OMP_NUM_THREADS"] == "17"
    more = Search("atwu", find_scale("people-tiny"), trials=7).decided()
    with pytest.raises(ValueError, match="place 5 is broken"):
        run_trials(more, threads, folder=tmp_path, what={}, processes=2)
