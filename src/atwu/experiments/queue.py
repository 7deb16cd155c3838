"""Task queues: execute submitted tasks with workers, and return them in the order they finish.

Tasks run in this process (`InProcessExecutor`), in local processes (`ProcessPool`), or on the nodes of a Ray cluster
(`atwu.experiments.cluster`); `atwu.experiments.open_queue` opens one of them. If a worker dies, its task starts again
from the beginning.
"""

from __future__ import annotations

import collections
import contextlib
import gc
import logging
import multiprocessing
import os
import pickle
import platform
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atwu._interrupts import install_worker_handlers
from atwu.errors import WorkerError

if TYPE_CHECKING:  # a worker starts within a second if it does not import the progress bar
    from atwu.training.progress import Say


logger = logging.getLogger(__name__)

ATTEMPTS = 3
"""Maximum number of attempts of a task whose workers die."""
_LAST_LINES = 15
_LAST_SECONDS = 10
"""Seconds that an idle worker may take to end."""


@dataclass(frozen=True, slots=True)
class Task:
    """A picklable function of the package with its arguments."""

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    folder: Path | None = None
    """Folder for its files, passed as `folder=`; on another machine a folder there, whose files are copied back."""
    source: Path | None = None
    """Finished folder that it reads, passed as `source=`."""
    needs: tuple[Path, ...] = ()
    """Local models and files that it reads."""

    def __call__(self) -> Any:
        if self.folder is None:
            return self.function(*self.args)
        return self.function(*self.args, folder=self.folder, source=self.source)


@dataclass(frozen=True, slots=True)
class TaskResult:
    """Outcome of a task."""

    value: Any = None
    error: Exception | None = None

    def get(self) -> Any:
        """Return the value.

        Raises:
            Exception: the error of the task.
        """
        if self.error is not None:
            raise self.error
        return self.value


class Queue(ABC):
    """Context that executes tasks; unfinished tasks are cancelled on leaving it."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._attempts: collections.Counter[Hashable] = collections.Counter()

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, *error: object) -> None:  # noqa: B027
        """Cancel unfinished tasks."""

    @property
    @abstractmethod
    def slots(self) -> int:
        """Number of parallel tasks."""

    @property
    def device(self) -> str:
        """Kind of device that tasks use."""
        from atwu.modeling.device import pick_device

        return pick_device().type

    @abstractmethod
    def submit(self, key: Hashable, task: Task) -> None:
        """Submit a task under a unique key."""

    @abstractmethod
    def result(self) -> tuple[Hashable, TaskResult]:
        """Wait for the next finished task, and return its key and outcome.

        Raises:
            WorkerError: the task's workers died repeatedly.
        """

    def _lost(self, key: Hashable, how: str, more: Callable[[], str]) -> None:
        """Report that the worker of a task died, so that the task is repeated.

        Raises:
            WorkerError: its workers died repeatedly.
        """
        self._attempts[key] += 1
        if self._attempts[key] == ATTEMPTS:
            raise WorkerError(f"{how} during {key}, as in {ATTEMPTS - 1} attempts before (out of memory?); {more()}")
        self._say(f"{how}; {key} starts again")


def run_tasks(
    queue: Queue, begin: Callable[[], tuple[Hashable, Task] | None], finish: Callable[[Any, TaskResult], None]
) -> None:
    """Keep a queue busy until there are no more tasks.

    Args:
        begin: returns the next task with its key, or None if there is none at present; called again after each finished
            task.
    """
    running = 0
    while True:
        while running < queue.slots and (found := begin()) is not None:
            queue.submit(*found)
            running += 1
        if not running:
            return
        key, done = queue.result()
        running -= 1
        finish(key, done)


def attempt(task: Task) -> TaskResult:
    """Run a task; an error is returned, or its text if it cannot be pickled."""
    try:
        return TaskResult(task())
    except Exception as error:
        return TaskResult(error=_portable(error))


def _portable(error: Exception) -> Exception:
    try:
        copied = pickle.loads(pickle.dumps(error))
    except Exception:  # exceptions of any package may fail to pickle in any way
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error if isinstance(copied, type(error)) else RuntimeError(str(error))


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


class InProcessExecutor(Queue):
    """Runs each task in this process when its result is requested."""

    slots = 1

    def __init__(self, *, threads: int | None = None) -> None:
        super().__init__(logger.info)
        self._threads = threads
        self._waiting: collections.deque[tuple[Hashable, Task]] = collections.deque()

    def submit(self, key: Hashable, task: Task) -> None:
        self._waiting.append((key, task))

    def result(self) -> tuple[Hashable, TaskResult]:
        key, task = self._waiting.popleft()
        with cpu_threads(self._threads):
            try:
                return key, TaskResult(task())
            except Exception as error:
                return key, TaskResult(error=error)


@dataclass(slots=True)
class _Worker:
    process: Any
    connection: Connection
    log: Path
    key: Hashable = None
    task: Task | None = None


class ProcessPool(Queue):
    """Local processes, each with its share of CPU threads and one GPU if there are any.

    They are forked, where supported, from a process that has already imported everything, and end with this process.
    With GPUs each process imports separately: libraries that query the GPU on import (bitsandbytes) make CUDA unusable
    in forks.
    """

    def __init__(self, count: int, *, folder: Path, threads: int, devices: Sequence[str] = (), say: Say) -> None:
        super().__init__(say)
        self._count, self._folder, self._threads, self._devices = count, folder, threads, devices
        self._workers: dict[int, _Worker] = {}
        can_fork = "forkserver" in multiprocessing.get_all_start_methods() and not devices
        self._context: Any = multiprocessing.get_context("forkserver" if can_fork else "spawn")
        if can_fork:
            self._context.set_forkserver_preload(["atwu.experiments.experiment_run"])

    @property
    def slots(self) -> int:
        return self._count

    def __exit__(self, *error: object) -> None:
        for worker in self._workers.values():
            if worker.task is None:
                worker.connection.close()  # the worker then ends by itself, without leftovers
            else:
                worker.process.terminate()
        for worker in self._workers.values():
            worker.process.join(timeout=_LAST_SECONDS)
            worker.process.kill()
            worker.process.join()
        self._workers.clear()

    def submit(self, key: Hashable, task: Task) -> None:
        there = {index: self._workers.get(index) for index in range(self._count)}
        index = next(index for index, worker in there.items() if worker is None or worker.task is None)
        self._give(index, key, task)

    def _give(self, index: int, key: Hashable, task: Task) -> None:
        worker = self._workers.get(index)
        if worker is None or not worker.process.is_alive():
            worker = self._workers[index] = self._start(index)
        worker.key, worker.task = key, task
        worker.connection.send(task)

    def _start(self, index: int) -> _Worker:
        self._folder.mkdir(parents=True, exist_ok=True)
        log = self._folder / f"worker-{platform.node()}-{index}.log"
        if index not in self._workers:
            log.unlink(missing_ok=True)  # log of an earlier command
        environment = {**os.environ, "OMP_NUM_THREADS": str(self._threads), "TOKENIZERS_PARALLELISM": "false"}
        if self._devices:
            environment["CUDA_VISIBLE_DEVICES"] = self._devices[index % len(self._devices)]
        mine, theirs = self._context.Pipe()
        given = (theirs, Path.cwd(), environment, self._threads, log.absolute())
        process = self._context.Process(target=_serve, args=given)
        process.start()
        theirs.close()
        return _Worker(process, mine, log)

    def result(self) -> tuple[Hashable, TaskResult]:
        while True:
            busy = {worker.connection: index for index, worker in self._workers.items() if worker.task is not None}
            for connection in wait(list(busy)):
                index = busy[connection]  # type: ignore[index]
                worker = self._workers[index]
                key, task = worker.key, worker.task
                assert task is not None
                try:
                    done = worker.connection.recv()
                except (EOFError, ConnectionResetError):
                    worker.process.join()
                    how = f"worker {worker.process.pid} died (exit code {worker.process.exitcode})"
                    self._lost(key, how, lambda log=worker.log: f"{log} ends with:\n{_tail(log)}")  # type: ignore[misc]
                    self._give(index, key, task)
                    continue
                worker.key, worker.task = None, None
                del self._attempts[key]
                return key, done


def _serve(tasks: Connection, cwd: Path, environment: dict[str, str], threads: int, log: Path) -> None:
    """Main loop of a worker: run tasks until its parent process ends."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=lambda: (wait([parent.sentinel]), os._exit(1)), daemon=True).start()
    install_worker_handlers()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    with log.open("a", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    gc.freeze()  # excludes half a million objects of imported libraries from each garbage collection
    with cpu_threads(threads):
        while True:
            try:
                task = tasks.recv()
            except EOFError:
                return
            tasks.send(attempt(task))


def _tail(path: Path) -> str:
    return "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:])
