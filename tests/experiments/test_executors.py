"""Executors on one machine, and on a real Ray cluster of two nodes there: workers and nodes are lost and added again."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from atwu.errors import BudgetReachedError, WorkerError
from atwu.experiments import executors
from atwu.experiments.executors import (
    InProcessExecutor,
    ProcessExecutor,
    RayExecutor,
    Task,
    open_executor,
    run_in_worker,
    run_remotely,
)
from tests.commands import COMMAND, Started, run_command
from tests.experiments.tuning.searching import Objective, points, run, search_for
from tests.experiments.worker_tasks import die, die_once, die_twice, fail, how_it_began, where
from tests.micro_models import write_models


def test_errors_are_sent_as_exceptions_or_as_text():
    class LocalError(Exception):
        pass

    def local() -> None:
        raise LocalError("broken")

    def too_dear() -> None:
        raise BudgetReachedError(limit=1, unjudged=3)

    with pytest.raises(FileNotFoundError):
        run_in_worker(fail, 1)
    with pytest.raises(RuntimeError, match=r"^LocalError: broken$"):
        run_in_worker(local, 1)
    with pytest.raises(BudgetReachedError) as spent:
        run_in_worker(too_dear, 1)
    assert spent.value.unjudged == 3


def test_a_task_waits_for_a_free_slot_and_for_its_dependencies():
    done: list[int] = []

    def begin() -> tuple[str, Task] | None:
        number = len(done)
        return (str(number), partial(where, number)) if number < 3 else None

    with InProcessExecutor() as executor:
        for _, value, _ in executor.run(begin):
            done.append(value[0])
    assert done == [0, 1, 2]


@pytest.mark.slow
def test_two_processes_share_the_work_and_tasks_of_a_dead_one_are_repeated(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "17")
    monkeypatch.setattr(executors, "PRELOADED", ["torch"])
    said: list[str] = []
    tasks = [partial(where, number) for number in range(4)] + [partial(die_once, tmp_path / "mark"), fail]
    waiting, values, errors = {str(number): task for number, task in enumerate(tasks)}, {}, {}
    with open_executor(2, folder=tmp_path / "logs", say=said.append) as executor:
        for name, value, error in executor.run(lambda: waiting.popitem() if waiting else None):
            values[name], errors[name] = value, error
        for name in ("one", "other"):  # deaths are counted per task
            (tmp_path / name).mkdir()
            assert executor.run_one(name, partial(die_twice, tmp_path / name)) == "done"
        with pytest.raises(WorkerError, match=r"(?s)died .*the last one.*what it said last"):
            executor.run_one("the last one", die)
    local = [values[str(number)] for number in range(4)]
    assert [number for number, *_ in local] == [0, 1, 2, 3]
    assert os.getpid() not in {process for _, process, _ in local}
    assert {threads for *_, threads in local} == {str(max(1, (os.cpu_count() or 1) // 2))}
    assert values["4"] == "done"
    assert isinstance(errors["5"], FileNotFoundError)
    assert re.search(r"exit code -9.*\b4\b", said[0])
    assert os.environ["OMP_NUM_THREADS"] == "17"


def test_gpus_per_run_need_a_cluster(tmp_path):
    with pytest.raises(ValueError, match=r"--gpus-per-run .*--cluster"):
        open_executor(None, folder=tmp_path, gpus_per_run=1.0, say=print)


@pytest.mark.night
def test_gpu_workers_are_not_forked_from_a_process_that_used_the_gpu(tmp_path):
    with ProcessExecutor(1, folder=tmp_path, threads=1, devices=("7",), say=print) as executor:
        assert executor.run_one("only", how_it_began) == ("7", "spawn")


NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
QUICK = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 4}
"""How soon a node is missed; a minute by default."""


PATIENT = """
import os, time
from pathlib import Path
import atwu

class Patient(atwu.Weighting):
    formula = "1, as soon as somebody says so"
    is_score = False

    def weights(self, seen):
        here = Path(__file__).parent
        if not (here / "go").exists():
            import ray
            (here / f"{ray.get_runtime_context().get_node_id()}.pid").write_text(str(os.getpid()))
        while not (here / "go").exists():
            time.sleep(0.02)
        return seen.mask.to(seen.logps)

def register():
    atwu.register_weighting("patient", Patient)
"""
"""A weighting that reports its node, and waits."""


@pytest.fixture(scope="module")
def patient(tmp_path_factory) -> Path:
    """A folder with that weighting, installed as a package would be."""
    folder = tmp_path_factory.mktemp("patient")
    (folder / "patient.py").write_text(PATIENT)
    info = folder / "patient-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: patient\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[atwu.methods]\npatient = patient:register\n")
    return folder


@pytest.fixture(scope="module")
def environment(tmp_path_factory, patient) -> dict[str, str]:
    return {
        "ATWU_CACHE": str(tmp_path_factory.mktemp("cache")),
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
        "PYTHONPATH": os.pathsep.join([str(patient), *sys.path, str(Path.cwd())]),
    }


@pytest.fixture(scope="module")
def nodes(environment) -> Iterator[object]:
    """The cluster; a command uses it through its address."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'atwu[cluster]'")
    from ray.cluster_utils import Cluster as Nodes

    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        head = {**NODE, "include_dashboard": False, "_system_config": QUICK}
        found = Nodes(initialize_head=True, head_node_args=head)
        found.add_node(**NODE)
        yield found
        found.shutdown()


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """An untrained model, and a study of it."""
    root = tmp_path_factory.mktemp("study")
    write_models(root / "model")
    (root / "mine.yaml").write_text(
        f"""
methods:
  - {{method: grad_diff, weighting: patient}}
  - {{method: atwu, weighting: scorer*patient}}
  - {{label: frozen, method: atwu, scorer_from: atwu, scorer_procedure: frozen}}
seeds: 1
metrics: [memorization, scores]
setting:
  like: people-tiny
  name: micro
  target: {root / "model"}
  training: {{max_steps: 6, per_device_train_batch_size: 4, save_strategy: "no"}}
"""
    )
    return root


INSTALLED = "import sys; sys.path.insert(0, {folder!r}); " + COMMAND


def until(true: Callable[[], object], process: Started, seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert not process.ended(), "the study ended before it could be disturbed: " + process.said()
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.night
def test_lost_workers_and_nodes_do_not_change_results(nodes, folder, environment, patient):
    output = folder / "cluster"
    study = ["study", "run", folder / "mine.yaml"]
    given = {"code": INSTALLED.format(folder=str(patient)), "env": os.environ | environment}
    process = Started([*study, "--output", output, "--cluster", nodes.address], **given)
    stays, goes = nodes.list_all_nodes()
    at_work = [patient / f"{node.node_id}.pid" for node in (stays, goes)]
    until(lambda: all(file.is_file() and file.read_text() for file in at_work), process)
    os.kill(int(at_work[0].read_text()), signal.SIGKILL)
    until(lambda: "a worker was lost (WorkerCrashedError)" in process.said(), process)
    nodes.remove_node(goes, allow_graceful=False)
    until(lambda: "a worker was lost (NodeDiedError)" in process.said(), process)
    nodes.add_node(**NODE)
    (patient / "go").touch()
    done = process.wait()
    assert done.returncode == 0, done.stdout + done.stderr
    alone = run_command([*study, "--output", folder / "alone", "--processes", 1], **given)
    assert alone.returncode == 0, alone.stdout + alone.stderr
    for name in ("table.md", "results.csv"):
        assert (output / name).read_text() == (folder / "alone" / name).read_text()
    for one in sorted((folder / "alone").glob("runs/*/eval.json")):
        other = output / one.relative_to(folder / "alone")
        one_result, other_result = (json.loads(path.read_text()) for path in (one, other))
        assert {name: one_result[name] for name in ("sets", "overall", "fingerprint")} == {
            name: other_result[name] for name in ("sets", "overall", "fingerprint")
        }
        there = {path.name for path in one.parent.iterdir()}
        assert {path.name for path in other.parent.iterdir()} == there
        assert "model.safetensors" not in there


@pytest.mark.night
def test_a_search_runs_on_a_cluster(nodes, tmp_path):
    search = search_for(trials=6)
    with RayExecutor(nodes.address, slots=2, say=print) as executor:
        found = run(search, tmp_path / "cluster", Objective(), executor)
    assert points(found) == points(run(search, tmp_path / "here"))  # startup points do not depend on results


@pytest.mark.parametrize("address", ["127.0.0.1:{}", "ray://127.0.0.1:{}"])
def test_a_cluster_that_does_not_answer_is_an_error_at_once(address):
    """Ray itself is not called: it would wait for minutes."""
    pytest.importorskip("ray")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ConnectionError, match=f"no Ray cluster at {address.format(port)}; start one"):
        open_executor(1, folder=Path(), cluster=address.format(port), say=print)


def leave(text: str, folder: Path) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "left.txt").write_text(text)
    return folder.name


def test_a_node_needs_the_same_versions_and_the_working_folder(tmp_path, monkeypatch):
    from atwu._files import versions

    monkeypatch.chdir(tmp_path.parent)
    task = partial(leave, "it", Path("run-s1"))
    assert run_remotely(task, tmp_path, versions()) == ("run-s1", None)
    assert (tmp_path / "run-s1" / "left.txt").read_text() == "it"
    _, error = run_remotely(task, tmp_path, versions() | {"torch": "1.0"})
    assert re.search(r"torch.* 1\.0\b", str(error))
    _, error = run_remotely(task, tmp_path / "nowhere", versions())
    assert re.search("nowhere.*same disk", str(error))


class LostError(Exception):
    """Stand-in for `ray.exceptions.RayError`."""


class FakeRay:
    """Ray's calls, carried out here; the first `lose` tasks lose their worker."""

    exceptions = SimpleNamespace(RayError=LostError)

    def __init__(self, lose: int) -> None:
        self.lose = lose

    def init(self, **options: object) -> None:
        """Connects to nothing."""

    def shutdown(self) -> None:
        """Nothing to leave."""

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 3.0}

    def remote(self, **resources: object) -> Callable:
        assert resources == {"num_cpus": 1, "num_gpus": 0.0, "max_retries": 0}
        return lambda function: SimpleNamespace(remote=partial(self.call, function))

    def call(self, function: Callable, *args: object) -> SimpleNamespace:
        future: Future = Future()
        self.lose -= 1
        if self.lose >= 0:
            future.set_exception(LostError("node died"))
        else:
            future.set_result(function(*args))
        return SimpleNamespace(future=lambda: future)


@pytest.mark.parametrize("lose", [2, 3])
def test_a_lost_task_is_sent_again(tmp_path, monkeypatch, lose):
    monkeypatch.setitem(sys.modules, "ray", FakeRay(lose))
    task, said = partial(leave, "it", tmp_path / "run-s1"), []
    with RayExecutor("auto", say=said.append) as executor:
        assert (executor.slots, executor.device) == (3, "cpu")
        if lose == 3:
            with pytest.raises(WorkerError, match=r"LostError.* during wga-s1, as in 2 .*node died"):
                executor.run_one("wga-s1", task)
            return
        assert executor.run_one("wga-s1", task) == "run-s1"
        with pytest.raises(FileNotFoundError):
            executor.run_one("wga-s2", partial(leave, "it", tmp_path / "no" / "folder"))
    assert said == ["a worker was lost (LostError); wga-s1 starts again"] * 2
