"""Executors on one machine: several processes, dead workers, errors of tasks."""

from __future__ import annotations

import os
import re

import pytest

from atwu.errors import BudgetReachedError, WorkerError
from atwu.experiments import executors
from atwu.experiments.cluster import open_executor
from atwu.experiments.executors import InProcessExecutor, ProcessExecutor, Task, run_in_worker
from tests.experiments.worker_tasks import die, die_once, die_twice, fail, how_it_began, where


def test_errors_are_sent_as_exceptions_or_as_text():
    class LocalError(Exception):
        pass

    def local() -> None:
        raise LocalError("broken")

    def too_dear() -> None:
        raise BudgetReachedError(limit=1, unjudged=3)

    with pytest.raises(FileNotFoundError):
        run_in_worker(Task(fail), 1)
    with pytest.raises(RuntimeError, match=r"^LocalError: broken$"):
        run_in_worker(Task(local), 1)
    with pytest.raises(BudgetReachedError) as spent:
        run_in_worker(Task(too_dear), 1)
    assert spent.value.unjudged == 3


def test_a_task_waits_for_a_free_slot_and_for_its_dependencies():
    done: list[int] = []

    def begin() -> tuple[str, Task] | None:
        number = len(done)
        return (str(number), Task(where, (number,))) if number < 3 else None

    with InProcessExecutor() as executor:
        for _, value, _ in executor.run(begin):
            done.append(value[0])
    assert done == [0, 1, 2]


@pytest.mark.slow
def test_two_processes_share_the_work_and_tasks_of_a_dead_one_are_repeated(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "17")
    monkeypatch.setattr(executors, "PRELOADED", ["torch"])
    said: list[str] = []
    tasks = [Task(where, (number,)) for number in range(4)] + [Task(die_once, (tmp_path / "mark",)), Task(fail)]
    waiting, values, errors = {str(number): task for number, task in enumerate(tasks)}, {}, {}
    with open_executor(2, folder=tmp_path / "logs", say=said.append) as executor:
        for name, value, error in executor.run(lambda: waiting.popitem() if waiting else None):
            values[name], errors[name] = value, error
        for name in ("one", "other"):  # deaths are counted per task
            (tmp_path / name).mkdir()
            assert executor.run_one(name, Task(die_twice, (tmp_path / name,))) == "done"
        with pytest.raises(WorkerError, match=r"(?s)died .*the last one.*what it said last"):
            executor.run_one("the last one", Task(die))
    local = [values[str(number)] for number in range(4)]
    assert [number for number, *_ in local] == [0, 1, 2, 3]
    assert os.getpid() not in {process for _, process, _ in local}
    assert {threads for *_, threads in local} == {str(max(1, (os.cpu_count() or 1) // 2))}
    assert values["4"] == "done"
    assert isinstance(errors["5"], FileNotFoundError)
    assert re.search(r"exit code -9.*\b4\b", said[0])
    assert os.environ["OMP_NUM_THREADS"] == "17"


def test_devices_cannot_be_combined_with_cluster(tmp_path):
    with pytest.raises(ValueError, match=r"--devices .*--cluster"):
        open_executor(None, folder=tmp_path, devices="0", cluster="auto", say=print)
    with pytest.raises(ValueError, match=r"--gpus-per-run .*--cluster"):
        open_executor(None, folder=tmp_path, gpus_per_run=1.0, say=print)


@pytest.mark.night
def test_gpu_workers_are_not_forked_from_a_process_that_used_the_gpu(tmp_path):
    with ProcessExecutor(1, folder=tmp_path, threads=1, devices=("7",), say=print) as executor:
        assert executor.run_one("only", Task(how_it_began)) == ("7", "spawn")
