"""A real Ray cluster of two nodes on this machine: a worker is killed, a node is removed and added again."""

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

from atwu.errors import WorkerError
from atwu.experiments.cluster import (
    RayExecutor,
    open_executor,
    read_files,
    receive_input,
    replace_files,
    run_remotely,
    write_files,
)
from atwu.experiments.executors import Task
from tests.commands import COMMAND, Started, run_command
from tests.experiments.tuning.searching import Objective, points, run, search_for
from tests.micro_models import write_models

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


@pytest.mark.parametrize("before", [{}, {"model.safetensors": b"weights"}])
def test_files_of_a_run_are_moved_into_its_folder_atomically(tmp_path, monkeypatch, before):
    folder, files = tmp_path / "runs" / "wga-s1", {"eval.json": b"{}", "run.json": b"{}"}
    write_files(before, folder)
    write = Path.write_bytes

    def full(path: Path, content: bytes) -> int:
        if path.name == "run.json":
            raise OSError(28, "No space left on device")
        return write(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(OSError, match="No space"):
            replace_files(files, folder)
    assert read_files(folder) == before
    replace_files(files, folder)
    assert read_files(folder) == files
    assert [path.name for path in folder.parent.iterdir()] == ["wga-s1"]


def leave(text: str, *, folder: Path, source: Path | None) -> str:
    assert source is not None
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "left.txt").write_text(text + (source / "scorer.txt").read_text())
    return folder.name


def test_files_are_sent_with_a_task(tmp_path, monkeypatch):
    from atwu._files import versions

    (tmp_path / "there").mkdir()
    task = Task(leave, ("it ",), tmp_path / "run-s1", tmp_path / "source", (tmp_path / "there" / "rows.jsonl",))
    carried = {"": b"rows"}
    given = (task, {}, {"scorer.txt": b"came along"}, task.needs, versions())
    value, error, left = run_remotely(*given, carried)
    assert (value, error) == ("run-s1", None)
    write_files(left, tmp_path / "run-s1")
    assert read_files(tmp_path / "run-s1") == {"deep/left.txt": b"it came along"}
    assert (tmp_path / "there" / "rows.jsonl").read_text() == "rows"
    receive_input(tmp_path / "there" / "rows.jsonl", carried)
    assert "rows.jsonl" in str(run_remotely(*given, {"": b"other rows"})[1])
    _, error, left = run_remotely(*given[:-1], versions() | {"torch": "1.0"}, carried)
    assert re.search(r"torch.* 1\.0\b", str(error))
    assert not left
    monkeypatch.setenv("HOME", str(tmp_path))  # every machine has its own
    assert run_remotely(*given[:3], (Path("~/rows.jsonl"),), versions(), {"": b"at home"})[1] is None
    assert (tmp_path / "rows.jsonl").read_bytes() == b"at home"


class LostError(Exception):
    """Stand-in for `ray.exceptions.RayError`."""


class FakeRay:
    """Ray's calls, carried out here; the first `lose` tasks lose their worker."""

    exceptions = SimpleNamespace(RayError=LostError)

    def __init__(self, lose: int) -> None:
        self.lose, self.put = lose, lambda value: value

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
def test_a_lost_task_is_sent_again_and_its_files_come_back(tmp_path, monkeypatch, lose):
    monkeypatch.setitem(sys.modules, "ray", FakeRay(lose))
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "scorer.txt").write_text("came along")
    task, said = Task(leave, ("it ",), tmp_path / "run-s1", tmp_path / "source"), []
    with RayExecutor("auto", say=said.append) as executor:
        assert (executor.slots, executor.device) == (3, "cpu")
        if lose == 3:
            with pytest.raises(WorkerError, match=r"LostError.* during wga-s1, as in 2 .*node died"):
                executor.run_one("wga-s1", task)
            return
        assert executor.run_one("wga-s1", task) == "run-s1"
        with pytest.raises(FileNotFoundError):
            executor.run_one("wga-s2", Task(leave, ("it ",), tmp_path / "run-s2", tmp_path / "nowhere"))
    assert said == ["a worker was lost (LostError); wga-s1 starts again"] * 2
    assert read_files(tmp_path / "run-s1") == {"deep/left.txt": b"it came along"}
    assert not (tmp_path / "run-s2").exists()
