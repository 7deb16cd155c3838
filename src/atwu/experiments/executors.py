"""Executors run tasks in parallel and hand back their outcomes as they finish; all use one loop, `Executor.run`.

Tasks run in this process (`InProcessExecutor`), in local processes (`ProcessExecutor`), or on the nodes of a Ray cluster
(`RayExecutor`), which share a disk; `open_executor` opens one of them. If a worker or node is lost, its task starts again.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import multiprocessing
import os
import pickle
import platform
import socket
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for_connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atwu._command import install_worker_handlers
from atwu._extras import require
from atwu._files import versions
from atwu.errors import WorkerError

if TYPE_CHECKING:  # a worker starts within a second if it does not import the progress bar
    from atwu.training.progress import Say

logger = logging.getLogger(__name__)

ATTEMPTS = 3
"""Maximum number of attempts of a task whose workers die: a task that itself kills them, for want of memory, must end."""
PRELOADED = ["atwu.experiments.experiment_run"]
"""Modules imported by the process from which workers are forked."""


Task = Callable[[], Any]
"""A picklable function of the package with its arguments (`functools.partial`)."""


class LostWorkerError(Exception):
    """The worker of a task died; the second argument describes it in more detail."""


class Executor(contextlib.AbstractContextManager["Executor"]):
    """Context that runs tasks; unfinished tasks are cancelled on leaving it."""

    def __init__(self, say: Say) -> None:
        self._say = say

    def __exit__(self, *error: object) -> None:
        """Cancel unfinished tasks, if there can be any."""

    @property
    @abstractmethod
    def slots(self) -> int:
        """Number of parallel tasks."""

    @property
    def device(self) -> str:
        from atwu.modeling.device import pick_device

        return pick_device().type

    @abstractmethod
    def submit(self, task: Task) -> Future[Any]:
        """Start a task in a free slot."""

    def collect(self, future: Future[Any]) -> Any:
        """Return the value of a finished task; raises its error, or LostWorkerError if its worker died."""
        return future.result()

    def run(self, begin: Callable[[], tuple[str, Task] | None]) -> Iterator[tuple[str, Any, Exception | None]]:
        """Run tasks until there are no more; yields name, value and error of each as it finishes.

        Args:
            begin: returns the next task with its name, or None if there is none at present; called again after each
                finished task.

        Raises:
            WorkerError: the workers of a task died repeatedly.
        """
        running: dict[Future[Any], tuple[str, Task, int]] = {}
        while True:
            # Asked again after every task, since another one may have waited for it.
            while len(running) < self.slots and (begun := begin()) is not None:
                running[self.submit(begun[1])] = *begun, 1
            if not running:
                return
            finished = wait(running, return_when=FIRST_COMPLETED).done
            # Of several the one that began first: the order of a set differs between processes.
            future = next(future for future in running if future in finished)
            name, task, attempt = running.pop(future)
            value: Any = None
            error: Exception | None = None
            try:
                value = self.collect(future)
            except LostWorkerError as lost:
                how, more = lost.args
                if attempt == ATTEMPTS:
                    raise WorkerError(
                        f"{how} during {name}, as in {ATTEMPTS - 1} attempts before (out of memory?); {more}"
                    ) from None
                self._say(f"{how}; {name} starts again")
                running[self.submit(task)] = name, task, attempt + 1
                continue
            except Exception as raised:
                error = raised
            yield name, value, error

    def run_one(self, name: str, task: Task) -> Any:
        """Run a single task, and return its value or raise its error."""
        tasks = iter([(name, task)])
        ((_, value, error),) = self.run(lambda: next(tasks, None))
        if error is not None:
            raise error
        return value


@contextlib.contextmanager
def cpu_threads(count: int | None) -> Iterator[None]:
    """Use `count` CPU threads inside the block; None, or a GPU, changes nothing.

    The order of floating-point sums changes results: with one thread they do not depend on the number of cores.
    """
    import torch

    before = torch.get_num_threads()
    if count is not None and not torch.cuda.is_available():
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class InProcessExecutor(Executor):
    slots = 1

    def __init__(self, *, threads: int | None = None) -> None:
        super().__init__(logger.info)
        self._threads = threads

    def submit(self, task: Task) -> Future[Any]:
        future: Future[Any] = Future()
        with cpu_threads(self._threads):
            try:
                future.set_result(task())
            except Exception as error:
                future.set_exception(error)
        return future


def run_in_worker(task: Task, threads: int) -> Any:
    """Run a task in a worker; an error that cannot be sent to the driver is replaced by its text."""
    try:
        with cpu_threads(threads):
            return task()
    except Exception as error:
        try:
            sent = type(pickle.loads(pickle.dumps(error))) is type(error)
        except Exception:  # exceptions of any package may fail to pickle in any way
            sent = False
        if sent:
            raise
        raise RuntimeError(f"{type(error).__name__}: {error}") from None


@dataclass(frozen=True, slots=True)
class _Worker:
    process: Any
    tasks: Connection
    log: Path

    def run(self, task: Task) -> Any:
        """Run a task in the process; raises its error, or LostWorkerError if the process died."""
        try:
            self.tasks.send(task)
            value, error = self.tasks.recv()
        except (EOFError, ConnectionError):
            self.process.join()
            # The end of the log names the cause: the signal of a killed process says little.
            last = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:]
            raise LostWorkerError(
                f"worker {self.process.pid} died (exit code {self.process.exitcode})",
                "\n".join([f"{self.log} ends with:", *last]),
            ) from None
        if error is not None:
            raise error
        return value


class ProcessExecutor(Executor):
    """Local processes, each with its share of CPU threads and one GPU if there are any; a thread waits for each.

    (A `ProcessPoolExecutor` gives up all tasks when one process dies, and leaves semaphores behind on Ctrl-C.) They are
    forked, where supported, from a process that has already imported everything, and end with this process. With GPUs
    each process imports separately: libraries that query the GPU on import (bitsandbytes) make CUDA unusable in forks.
    """

    def __init__(self, count: int, *, folder: Path, threads: int, devices: Sequence[str] = (), say: Say) -> None:
        super().__init__(say)
        self._count, self._folder, self._threads, self._devices = count, folder, threads, devices
        # A worker does several runs: its judge is loaded once and counts its share of the allowed calls (`shared_judge`).
        # A process for each run would load it again, and begin to count anew.
        self._workers: dict[int, _Worker] = {}
        self._waiting, self._running = ThreadPoolExecutor(count), dict[int, Future[Any]]()
        # A plain fork would copy the threads' locks of torch as they are at that moment, held or not.
        self._context: Any = multiprocessing.get_context("spawn")
        if "forkserver" in multiprocessing.get_all_start_methods() and not devices:
            self._context = multiprocessing.get_context("forkserver")
            self._context.set_forkserver_preload(PRELOADED)

    @property
    def slots(self) -> int:
        return self._count

    def __exit__(self, *error: object) -> None:
        # First tell all of them, then wait: they end at the same time.
        for index, worker in self._workers.items():
            if self._running[index].done():
                worker.tasks.close()  # the worker then ends by itself, without leftovers
            else:
                worker.process.terminate()
        for worker in self._workers.values():
            # Python handles a signal between its own instructions: a long call into C goes on.
            worker.process.join(timeout=10)
            worker.process.kill()
            worker.process.join()
        self._workers.clear()
        self._waiting.shutdown()

    def submit(self, task: Task) -> Future[Any]:
        index = next(place for place in range(self._count) if place not in self._running or self._running[place].done())
        worker = self._workers.get(index)
        if worker is None or not worker.process.is_alive():
            worker = self._workers[index] = self._start(index)
        future = self._running[index] = self._waiting.submit(worker.run, task)
        return future

    def _start(self, index: int) -> _Worker:
        self._folder.mkdir(parents=True, exist_ok=True)
        log = self._folder / f"worker-{platform.node()}-{index}.log"
        if index not in self._workers:
            log.unlink(missing_ok=True)  # log of an earlier command
        environment = {**os.environ, "OMP_NUM_THREADS": str(self._threads), "TOKENIZERS_PARALLELISM": "false"}
        if self._devices:
            environment["CUDA_VISIBLE_DEVICES"] = self._devices[index % len(self._devices)]
        mine, theirs = self._context.Pipe()
        arguments = (theirs, Path.cwd(), environment, self._threads, log.absolute())
        process = self._context.Process(target=_serve, args=arguments)
        process.start()
        theirs.close()  # or the end of the worker would not be seen: this process would hold its side open
        return _Worker(process, mine, log)


def _serve(tasks: Connection, cwd: Path, environment: dict[str, str], threads: int, log: Path) -> None:
    """Main loop of a worker: run tasks until its parent process ends."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    # A worker whose parent was killed would otherwise train on, unseen.
    threading.Thread(target=lambda: (wait_for_connection([parent.sentinel]), os._exit(1)), daemon=True).start()
    install_worker_handlers()
    os.chdir(cwd)
    # A forked worker has the environment of the process that it was forked from.
    os.environ.clear()
    os.environ.update(environment)
    with log.open("a", encoding="utf-8") as file:
        # Also what libraries in C write goes to the log.
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    gc.freeze()  # excludes half a million objects of imported libraries from each garbage collection
    while True:
        try:
            task = tasks.recv()
        except EOFError:
            return
        try:
            tasks.send((run_in_worker(task, threads), None))
        except Exception as error:
            tasks.send((None, error))


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
        reference = self._remote_run.remote(task, Path.cwd(), versions())
        future: Future[Any] = reference.future()
        self._running[future] = reference
        return future

    def collect(self, future: Future[Any]) -> Any:
        del self._running[future]
        try:
            value, error = future.result()
        except self._ray.exceptions.RayError as lost:
            raise LostWorkerError(f"a worker was lost ({type(lost).__name__})", str(lost)) from None
        if error is not None:
            raise error
        return value


def run_remotely(task: Task, folder: Path, wanted: Mapping[str, str]) -> tuple[Any, Exception | None]:
    """Run a task on a node.

    Args:
        folder: working folder of the driver, in which relative paths are meant.
        wanted: package versions of the driver.

    Returns:
        The value, or the error, which Ray would wrap if it were raised.
    """
    try:
        # Other versions may compute other numbers, or fail to unpickle a task.
        here = versions()
        if here != wanted:
            differ = (f"{name} {here[name]} instead of {wanted[name]}" for name in wanted if here[name] != wanted[name])
            raise WorkerError(f"{platform.node()} has {', '.join(differ)}; install the same versions on every node.")
        if not folder.is_dir():
            raise WorkerError(f"{platform.node()} has no folder {folder}; mount the same disk there on every node.")
        # Paths of a plan are relative to the folder of the command.
        os.chdir(folder)
        return run_in_worker(task, 1), None
    except Exception as error:
        return None, error


def open_executor(
    processes: int | None,
    *,
    folder: Path,
    threads: int | None = None,
    cluster: str | None = None,
    gpus_per_run: float | None = None,
    say: Say,
) -> Executor:
    """Open the executor of tasks.

    Args:
        processes: number of parallel runs; None for one per visible GPU, or on CPUs one per core and at most four, since
            each holds a model.
        threads: CPU threads of each run; None for the default of one process, or its share of the cores.
        cluster: HOST:PORT of the head node of a Ray cluster, or auto for that of this machine; the number of parallel
            runs is by default its capacity, which may change.
        gpus_per_run: GPUs of the cluster for each run; None for one if it has any.
    """
    import torch

    if gpus_per_run is not None and cluster is None:
        raise ValueError("--gpus-per-run is for runs on a cluster; give --cluster, too, or leave it out.")
    if cluster is not None:
        return RayExecutor(cluster, slots=processes, gpus_per_run=gpus_per_run, say=say)
    devices: list[str] = []
    if processes != 1:
        devices = [str(index) for index in range(torch.cuda.device_count())]
        named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
        if named and devices:  # as named there, since torch counts the visible ones from 0
            devices = named
    count = processes or len(devices) or min(4, os.cpu_count() or 1)
    if count == 1 and not devices:
        return InProcessExecutor(threads=threads)
    share = threads or max(1, (os.cpu_count() or 1) // count)
    return ProcessExecutor(count, folder=folder, threads=share, devices=devices, say=say)
