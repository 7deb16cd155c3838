"""The queue on one machine: several processes, dead workers, errors of tasks."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
from pathlib import Path

import pytest

from atwu.errors import BudgetReached, WorkerError
from atwu.experiments.experiment_run import check_workers
from atwu.experiments.open_queue import open_queue
from atwu.experiments.queue import InProcessExecutor, ProcessPool, Task, attempt, run_tasks
from atwu.methods.method_table import METHODS
from tests.commands import run_here


def where(number: int) -> tuple[int, int, str | None]:
    return number, os.getpid(), os.environ.get("OMP_NUM_THREADS")


def how_it_began() -> tuple[str, str | None]:
    return os.environ["CUDA_VISIBLE_DEVICES"], multiprocessing.get_start_method()


def die_once(mark: Path) -> str:
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


def die_twice(folder: Path) -> str:
    for name in ("first", "second"):
        die_once(folder / name)
    return "done"


def die() -> None:
    print("what it said last", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def fail() -> None:
    raise FileNotFoundError(2, "gone", "rows.jsonl")


def test_errors_are_sent_as_exceptions_or_as_text():
    class LocalError(Exception):
        pass

    def local() -> None:
        raise LocalError("broken")

    def too_dear() -> None:
        raise BudgetReached(spent=1.0, limit=1.0, unjudged=3)

    assert type(attempt(Task(fail)).error) is FileNotFoundError
    assert str(attempt(Task(local)).error) == "LocalError: broken"
    error = attempt(Task(too_dear)).error
    assert isinstance(error, BudgetReached)
    assert error.unjudged == 3


def test_a_task_waits_for_a_free_slot_and_for_its_dependencies():
    done: list[int] = []

    def begin() -> tuple[int, Task] | None:
        number = len(done)
        return (number, Task(where, (number,))) if number < 3 else None

    with InProcessExecutor() as queue:
        run_tasks(queue, begin, lambda key, found: done.append(found.get()[0]))
    assert done == [0, 1, 2]


@pytest.mark.slow
def test_two_processes_share_the_work_and_tasks_of_a_dead_one_are_repeated(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "17")
    said: list[str] = []
    tasks = [Task(where, (number,)) for number in range(4)] + [Task(die_once, (tmp_path / "mark",)), Task(fail)]
    waiting, found = dict(enumerate(tasks)), {}
    with open_queue(2, folder=tmp_path / "logs", say=said.append) as queue:
        run_tasks(queue, lambda: waiting.popitem() if waiting else None, found.__setitem__)
        waiting["the last one"] = Task(die)
        with pytest.raises(WorkerError, match=r"(?s)died .*the last one.*what it said last"):
            run_tasks(queue, lambda: waiting.popitem() if waiting else None, found.__setitem__)
    assert [found[number].get()[0] for number in range(4)] == [0, 1, 2, 3]
    assert os.getpid() not in {found[number].get()[1] for number in range(4)}
    assert {found[number].get()[2] for number in range(4)} == {str(max(1, (os.cpu_count() or 1) // 2))}
    assert found[4].get() == "done"
    assert isinstance(found[5].error, FileNotFoundError)
    assert re.search(r"exit code -9.*\b4\b", said[0])
    assert os.environ["OMP_NUM_THREADS"] == "17"


@pytest.mark.slow
def test_worker_deaths_are_counted_per_task(tmp_path):
    said: list[str] = []
    with ProcessPool(1, folder=tmp_path, threads=1, say=said.append) as queue:
        for name in ("one", "other"):
            (tmp_path / name).mkdir()
            queue.submit("people-tiny/wga, trial 3", Task(die_twice, (tmp_path / name,)))
            assert queue.result()[1].get() == "done"
    assert len(said) == 4
    assert all("people-tiny/wga, trial 3" in line for line in said)


def test_devices_cannot_be_combined_with_cluster(tmp_path):
    with pytest.raises(ValueError, match=r"--devices .*--cluster"):
        open_queue(None, folder=tmp_path, devices="0", cluster="auto", say=print)


@pytest.mark.night
def test_gpu_workers_are_not_forked_from_a_process_that_used_the_gpu(tmp_path):
    tasks, found = [Task(how_it_began)], {}
    with ProcessPool(1, folder=tmp_path, threads=1, devices=("7",), say=print) as queue:
        run_tasks(queue, lambda: (len(tasks), tasks.pop()) if tasks else None, found.__setitem__)
    assert [each.get() for each in found.values()] == [("7", "spawn")]


@pytest.mark.slow
@pytest.mark.parametrize("command", [("study", "run", "mine.yaml"), ("tune", "--method", "mine")])
def test_components_registered_in_a_script_are_rejected_by_other_processes(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATWU_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(METHODS, "mine", METHODS["wga"])
    Path("mine.yaml").write_text("methods: [wga, mine]\nmetrics: [memorization]\n")
    done = run_here(*command, "--setting", "tiny", "--processes", 2, "--output", "out")
    assert isinstance(done.exception, ValueError)
    assert re.search(r"\bmine\b.*--processes 1", str(done.exception))
    assert not Path("cache").exists()  # nothing was trained
    with InProcessExecutor() as queue:
        check_workers(queue, ["mine"], [{"weighting": "saturation*rarity", "beta": 2.0}], ["memorization"])
