"""Queue on a Ray cluster: tasks run on any node, and their files are copied back to this machine.

No shared file system is needed. The inputs of a task (a folder to resume, a scorer, local models and rows) are sent
with it; models named on the Hub are loaded by each node. If a worker or node is lost, its task starts again from the
beginning on another one.
"""

from __future__ import annotations

import dataclasses
import os
import platform
import tempfile
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

from atwu._extras import require
from atwu._files import atomic_sibling, file_lock, move, versions
from atwu.errors import WorkerError
from atwu.experiments.queue import Queue, Task, TaskResult, attempt, cpu_threads
from atwu.training.progress import Say

Files = Mapping[str, bytes]
"""Contents by relative path; a single file has an empty path."""

CARRIED = 1 << 30
"""Size limit in bytes for models and files that are sent; larger ones must exist at the same path on every node."""


class RayExecutor(Queue):
    """Runs tasks on the nodes of a cluster.

    Args:
        address: HOST:PORT of the head node, or auto for the cluster of this machine.
        slots: number of parallel tasks; None for the cluster's capacity, which may change.
        gpus_per_run: GPUs of each task; None for one if the cluster has any.
    """

    def __init__(self, address: str, *, slots: int | None = None, gpus_per_run: float | None = None, say: Say) -> None:
        self._ray = require("ray", extra="cluster")
        try:
            self._ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        except ConnectionError as error:
            raise ConnectionError(f"no Ray cluster at {address}; start one with `ray start --head`.") from error
        super().__init__(say)
        self._slots = slots
        self._gpus = float("GPU" in self._ray.cluster_resources()) if gpus_per_run is None else gpus_per_run
        self._there = self._ray.remote(num_cpus=1, num_gpus=self._gpus, max_retries=0)(run_remotely)
        self._carried: dict[Path, Any] = {}
        self._running: dict[Any, tuple[Hashable, Task]] = {}

    @property
    def slots(self) -> int:
        there = self._ray.cluster_resources()
        room = there.get("GPU", 0) // self._gpus if self._gpus else there.get("CPU", 0)
        return self._slots or max(1, int(room))

    @property
    def device(self) -> str:
        return "cuda" if self._gpus else "cpu"

    def __exit__(self, *error: object) -> None:
        for reference in self._running:
            self._ray.cancel(reference, force=True)
        self._ray.shutdown()

    def submit(self, key: Hashable, task: Task) -> None:
        carried = {}
        for path in task.needs:
            if path not in self._carried and size(path.expanduser()) <= CARRIED:
                self._carried[path] = self._ray.put(read_files(path.expanduser()))
            if path in self._carried:
                carried[path] = self._carried[path]
        folders = [None if folder is None else read_files(folder) for folder in (task.folder, task.source)]
        reference = self._there.remote(task, *folders, list(carried), versions(), *carried.values())
        self._running[reference] = key, task

    def result(self) -> tuple[Hashable, TaskResult]:
        while True:
            (reference,), _ = self._ray.wait(list(self._running), num_returns=1)
            key, task = self._running.pop(reference)
            try:
                done, files = self._ray.get(reference)
            except self._ray.exceptions.RayError as error:
                self._lost(key, f"a worker was lost ({type(error).__name__})", error.__str__)
                self.submit(key, task)
                continue
            if files and task.folder is not None:
                replace_files(files, task.folder)
            del self._attempts[key]
            return key, done


def run_remotely(
    task: Task,
    own: Files | None,
    source: Files | None,
    paths: Sequence[Path],
    wanted: Mapping[str, str],
    *carried: Files,
) -> tuple[TaskResult, Files]:
    """Run a task on a node, in a temporary folder.

    Args:
        wanted: package versions of the driver.

    Returns:
        The result, and the files written; no files if the task failed.
    """
    if (here := versions()) != wanted:
        differ = ", ".join(
            f"{name} {here[name]} instead of {wanted[name]}" for name in wanted if here[name] != wanted[name]
        )
        return TaskResult(
            error=WorkerError(f"{platform.node()} has {differ}; install the same versions on every node.")
        ), {}
    with tempfile.TemporaryDirectory(prefix="atwu-") as scratch:
        folders = []
        for kind, folder, files in (("own", task.folder, own), ("source", task.source, source)):
            folders.append(None if folder is None else Path(scratch) / kind / folder.name)
            if folders[-1] is not None:
                folders[-1].parent.mkdir()
                write_files(files or {}, folders[-1])
        try:
            for path, files in zip(paths, carried, strict=True):
                receive_input(path.expanduser(), files)
        except (OSError, WorkerError) as error:
            return TaskResult(error=error), {}
        with cpu_threads(1):
            done = attempt(dataclasses.replace(task, folder=folders[0], source=folders[1]))
        left = {} if folders[0] is None or done.error is not None else read_files(folders[0])
    return done, left


def receive_input(path: Path, files: Files) -> None:
    """Write a model or a file of rows to its path on the driver, unless it already exists there.

    Raises:
        WorkerError: other contents exist there.
        OSError: the path is not writable.
    """
    if not path.exists():
        with file_lock(path.with_name(f"{path.name}.lock")):
            if not path.exists():
                replace_files(files, path)
    elif read_files(path) != files:
        raise WorkerError(f"{path} on {platform.node()} differs from the same path on the driver.")


def size(path: Path) -> int:
    """Return the size of a file, or of all files in a folder."""
    return sum(file.stat().st_size for file in _files(path))


def read_files(path: Path) -> Files:
    """Read the contents of a file or a folder; empty if it does not exist."""
    return {file.relative_to(path).as_posix() if file != path else "": file.read_bytes() for file in _files(path)}


def replace_files(files: Files, path: Path) -> None:
    """Replace a file or a folder as a whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_sibling(path) as staging:
        write_files(files, staging / "new")
        if path.is_dir():
            os.replace(path, staging / "old")
        move(staging / "new", path)


def write_files(files: Files, path: Path) -> None:
    """Write contents file by file."""
    for name, content in files.items():
        file = path / name if name else path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
