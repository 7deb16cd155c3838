"""Open the executor of runs and trials: in this process, in several local ones, or on a Ray cluster.

A cluster needs no shared file system: tasks run on any node, and their files are copied back to this machine. The inputs
of a task (a folder to resume, a scorer, local models and rows) are sent with it; models named on the Hub are loaded by
each node. If a worker or node is lost, its task starts again from the beginning on another one.
"""

from __future__ import annotations

import dataclasses
import os
import platform
import socket
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from atwu._extras import require
from atwu._files import atomic_sibling, file_lock, move, versions
from atwu.errors import WorkerError
from atwu.experiments.executors import (
    Executor,
    InProcessExecutor,
    LostWorkerError,
    ProcessExecutor,
    Task,
    run_in_worker,
)
from atwu.training.progress import Say

Files = Mapping[str, bytes]
"""Contents by relative path; a single file has an empty path."""

CARRIED = 1 << 30
"""Size limit in bytes for models and files that are sent; larger ones must exist at the same path on every node."""


def open_executor(
    processes: int | None,
    *,
    folder: Path,
    threads: int | None = None,
    devices: str | None = None,
    cluster: str | None = None,
    gpus_per_run: float | None = None,
    say: Say,
) -> Executor:
    """Open the executor of tasks.

    Args:
        processes: number of parallel runs; None for one per GPU, or on CPUs one per core and at most four, since each
            holds a model.
        threads: CPU threads of each run; None for the default of one process, or its share of the cores.
        devices: CUDA devices, such as `0,1`; None for all, unless one process is requested.
        cluster: HOST:PORT of the head node of a Ray cluster, or auto for that of this machine; the number of parallel
            runs is by default its capacity, which may change.
        gpus_per_run: GPUs of the cluster for each run; None for one if it has any.
    """
    import torch

    if devices and cluster is not None:
        raise ValueError(
            "--devices selects GPUs of this machine, but --cluster runs on other machines; give one of them."
        )
    if gpus_per_run is not None and cluster is None:
        raise ValueError("--gpus-per-run is for runs on a cluster; give --cluster, too, or leave it out.")
    available = tuple(str(index) for index in range(torch.cuda.device_count()))
    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    if named and available:  # as named there, since torch counts the visible ones from 0
        available = tuple(named)
    chosen: tuple[str, ...] = ()
    if devices:
        chosen = tuple(name.strip() for name in devices.split(",") if name.strip())
        if not chosen or not set(chosen) <= set(available):
            have = "there is no CUDA device"
            if available:
                have = f"available CUDA devices are {', '.join(available)}"
            raise ValueError(f"--devices {devices}: {have}; leave the option out to use all.")
    elif devices is None and processes != 1:
        chosen = available
    if cluster is not None:
        return RayExecutor(cluster, slots=processes, gpus_per_run=gpus_per_run, say=say)
    count = processes or len(chosen) or min(4, os.cpu_count() or 1)
    if count == 1 and not chosen:
        return InProcessExecutor(threads=threads)
    share = threads or max(1, (os.cpu_count() or 1) // count)
    return ProcessExecutor(count, folder=folder, threads=share, devices=chosen, say=say)


class RayExecutor(Executor):
    """Runs tasks on the nodes of a cluster; the arguments are those of `open_executor`."""

    def __init__(self, address: str, *, slots: int | None = None, gpus_per_run: float | None = None, say: Say) -> None:
        self._ray = require("ray", extra="cluster")
        host, colon, port = address.rpartition("://")[2].rpartition(":")
        try:
            if colon and port.isdecimal():  # if nothing listens there, Ray would wait minutes
                socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
            self._ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        except OSError as error:
            raise ConnectionError(f"no Ray cluster at {address}; start one with `ray start --head`.") from error
        super().__init__(say)
        self._slots = slots
        if gpus_per_run is None:
            gpus_per_run = float("GPU" in self._ray.cluster_resources())
        self._gpus = gpus_per_run
        # Ray would repeat a lost task silently; `Executor.run` repeats it, counts the attempts and says so.
        self._remote_run = self._ray.remote(num_cpus=1, num_gpus=self._gpus, max_retries=0)(run_remotely)
        self._carried: dict[Path, Any] = {}
        self._running: dict[Future[Any], Any] = {}

    @property
    def slots(self) -> int:
        # Asked each time, since nodes join and leave a cluster.
        resources = self._ray.cluster_resources()
        room = resources.get("CPU", 0)
        if self._gpus:
            room = resources.get("GPU", 0) // self._gpus
        return self._slots or max(1, int(room))

    @property
    def device(self) -> str:
        if self._gpus:
            return "cuda"
        return "cpu"

    def __exit__(self, *error: object) -> None:
        for reference in self._running.values():
            self._ray.cancel(reference, force=True)
        self._ray.shutdown()

    def submit(self, task: Task) -> Future[Any]:
        carried = {}
        for path in task.needs:
            # Put into Ray's store once, since many tasks read the same model and rows.
            if path not in self._carried and sum(file.stat().st_size for file in _files(path.expanduser())) <= CARRIED:
                self._carried[path] = self._ray.put(read_files(path.expanduser()))
            if path in self._carried:
                carried[path] = self._carried[path]
        folders = [None if folder is None else read_files(folder) for folder in (task.folder, task.source)]
        # References that are arguments themselves (not in a list) arrive as what they refer to.
        reference = self._remote_run.remote(task, *folders, list(carried), versions(), *carried.values())
        future: Future[Any] = reference.future()
        self._running[future] = reference
        return future

    def collect(self, future: Future[Any], task: Task) -> Any:
        del self._running[future]
        try:
            value, error, files = future.result()
        except self._ray.exceptions.RayError as lost:
            raise LostWorkerError(f"a worker was lost ({type(lost).__name__})", str(lost)) from None
        if error is not None:
            raise error
        if files and task.folder is not None:
            replace_files(files, task.folder)
        return value


def run_remotely(
    task: Task,
    own: Files | None,
    source: Files | None,
    paths: Sequence[Path],
    wanted: Mapping[str, str],
    *carried: Files,
) -> tuple[Any, Exception | None, Files]:
    """Run a task on a node, in a temporary folder.

    Args:
        wanted: package versions of the driver.

    Returns:
        The value or the error (Ray would wrap one that is raised), and the files written unless the task failed.
    """
    try:
        # Other versions may compute other numbers, or fail to unpickle a task.
        here = versions()
        if here != wanted:
            differ = (f"{name} {here[name]} instead of {wanted[name]}" for name in wanted if here[name] != wanted[name])
            raise WorkerError(f"{platform.node()} has {', '.join(differ)}; install the same versions on every node.")
        for needed, files in zip(paths, carried, strict=True):
            receive_input(needed.expanduser(), files)
        with tempfile.TemporaryDirectory(prefix="atwu-") as scratch:
            local: dict[str, Any] = {}
            for name, path, contents in (("folder", task.folder, own), ("source", task.source, source)):
                if path is not None:
                    local[name] = Path(scratch, name, path.name)
                    local[name].parent.mkdir()
                    write_files(contents or {}, local[name])
            value = run_in_worker(dataclasses.replace(task, **local), 1)
            written: Files = {}
            if "folder" in local:
                written = read_files(local["folder"])
            return value, None, written
    except Exception as error:
        return None, error, {}


def receive_input(path: Path, files: Files) -> None:
    """Write a model or a file of rows to its path on the driver, unless the same already exists there."""
    if not path.exists():
        # Several tasks of one node may receive it at once.
        with file_lock(path.with_name(f"{path.name}.lock")):
            if not path.exists():
                replace_files(files, path)
    elif read_files(path) != files:
        raise WorkerError(f"{path} on {platform.node()} differs from the same path on the driver.")


def read_files(path: Path) -> Files:
    """Read the contents of a file or a folder; empty if it does not exist."""
    if path.is_file():
        return {"": path.read_bytes()}
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in _files(path)}


def replace_files(files: Files, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_sibling(path) as staging:
        write_files(files, staging / "new")
        if path.is_dir():  # a folder with files cannot be replaced
            os.replace(path, staging / "old")
        move(staging / "new", path)


def write_files(files: Files, path: Path) -> None:
    for name, content in files.items():
        file = path / name  # of a single file the name is empty, which leaves its path as it is
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return sorted(file for file in path.rglob("*") if file.is_file())
