"""Executors on one machine: several processes, dead workers, errors of tasks."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
from pathlib import Path

import pytest

from atwu.errors import BudgetReachedError, WorkerError
from atwu.experiments.executors import InProcessExecutor, ProcessExecutor, Task, run_in_worker
from atwu.experiments.experiment_run import check_workers
from atwu.experiments.open_executor import open_executor
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
        raise BudgetReachedError(spent=1.0, limit=1.0, unjudged=3)

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
        executor.run(begin, lambda name, value, error: done.append(value[0]))
    assert done == [0, 1, 2]


@pytest.mark.slow
def test_two_processes_share_the_work_and_tasks_of_a_dead_one_are_repeated(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "17")
    said: list[str] = []
    tasks = [Task(where, (number,)) for number in range(4)] + [Task(die_once, (tmp_path / "mark",)), Task(fail)]
    waiting, values, errors = {str(number): task for number, task in enumerate(tasks)}, {}, {}

    def finish(name: str, value: object, error: Exception | None) -> None:
        values[name], errors[name] = value, error

    with open_executor(2, folder=tmp_path / "logs", say=said.append) as executor:
        executor.run(lambda: waiting.popitem() if waiting else None, finish)
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


@pytest.mark.slow
def test_worker_deaths_are_counted_per_task(tmp_path):
    said: list[str] = []
    with ProcessExecutor(1, folder=tmp_path, threads=1, say=said.append) as executor:
        for name in ("one", "other"):
            (tmp_path / name).mkdir()
            assert executor.run_one("people-tiny/wga, trial 3", Task(die_twice, (tmp_path / name,))) == "done"
    assert len(said) == 4
    assert all("people-tiny/wga, trial 3" in line for line in said)


def test_devices_cannot_be_combined_with_cluster(tmp_path):
    with pytest.raises(ValueError, match=r"--devices .*--cluster"):
        open_executor(None, folder=tmp_path, devices="0", cluster="auto", say=print)


@pytest.mark.night
def test_gpu_workers_are_not_forked_from_a_process_that_used_the_gpu(tmp_path):
    with ProcessExecutor(1, folder=tmp_path, threads=1, devices=("7",), say=print) as executor:
        assert executor.run_one("only", Task(how_it_began)) == ("7", "spawn")


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
    with InProcessExecutor() as executor:
        check_workers(executor, ["mine"], [{"weighting": "saturation*rarity", "beta": 2.0}], ["memorization"])
