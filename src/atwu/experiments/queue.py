"""The queue of runs: handed in, done somewhere, and given back as they are finished; only the driver decides what is next.

Three places do the work: this process (`InProcessExecutor`), processes of this machine (`ProcessPool`), and the
nodes of a Ray cluster
(`atwu.experiments.cluster`); `atwu.experiments.open_queue` opens one. A worker that dies is reported, and what it was doing is
done again from the start.
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

if TYPE_CHECKING:  # a worker starts in a second without what a progress bar imports
    from atwu.training.progress import Say


logger = logging.getLogger(__name__)

ATTEMPTS = 3
"""Times a task is begun whose workers die."""
_LAST_LINES = 15
_LAST_SECONDS = 10
"""How long an idle worker may take to end."""


@dataclass(frozen=True, slots=True)
class Task:
    """A function of the package with its arguments, which another process can import and receive."""

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    folder: Path | None = None
    """Where it leaves its files, given as `folder=`: on another machine a folder there, whose files are brought here."""
    source: Path | None = None
    """A finished folder that it reads from, given as `source=`."""
    needs: tuple[Path, ...] = ()
    """Models and files that it reads and that lie on this machine."""

    def __call__(self) -> Any:
        if self.folder is None:
            return self.function(*self.args)
        return self.function(*self.args, folder=self.folder, source=self.source)


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What came of a task."""

    value: Any = None
    error: Exception | None = None

    def get(self) -> Any:
        """The value.

        Raises:
            Exception: what the task failed with.
        """
        if self.error is not None:
            raise self.error
        return self.value


class Queue(ABC):
    """A context; what is still being done when it is left is given up."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._attempts: collections.Counter[Hashable] = collections.Counter()

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, *error: object) -> None:  # noqa: B027
        """Give up what is still being done."""

    @property
    @abstractmethod
    def slots(self) -> int:
        """How many tasks are done at once."""

    @property
    def device(self) -> str:
        """Kind of device that tasks are done on."""
        from atwu.modeling.device import pick_device

        return pick_device().type

    @abstractmethod
    def submit(self, key: Hashable, task: Task) -> None:
        """Hand in a task, under a key of its own."""

    @abstractmethod
    def result(self) -> tuple[Hashable, TaskResult]:
        """Wait for the next task that is done, and return its key with what came of it.

        Raises:
            WorkerError: its workers died again and again.
        """

    def _lost(self, key: Hashable, how: str, more: Callable[[], str]) -> None:
        """Report a worker that died at a task, which can be done again.

        Raises:
            WorkerError: workers died of it again and again.
        """
        self._attempts[key] += 1
        if self._attempts[key] == ATTEMPTS:
            raise WorkerError(f"{how} at {key}, as {ATTEMPTS - 1} before it (out of memory?); {more()}")
        self._say(f"{how}; {key} is done again")


def run_tasks(
    queue: Queue, begin: Callable[[], tuple[Hashable, Task] | None], finish: Callable[[Any, TaskResult], None]
) -> None:
    """Keep a queue busy until nothing is left.

    Args:
        begin: the next task with its key; None while there is none, and it is asked again after every task that is done.
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
    """Do a task; an error is returned, as itself or, where it cannot travel between processes, as text."""
    try:
        return TaskResult(task())
    except Exception as error:
        return TaskResult(error=_portable(error))


def _portable(error: Exception) -> Exception:
    try:
        copied = pickle.loads(pickle.dumps(error))
    except Exception:  # exceptions of any package may fail in any way here
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error if isinstance(copied, type(error)) else RuntimeError(str(error))


@contextlib.contextmanager
def cpu_threads(count: int | None) -> Iterator[None]:
    """Compute with so many CPU threads inside; None, and a GPU, change nothing.

    Sums in another order are other sums: with one thread results do not depend on how many cores there are.
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
    """Does a task in this process, when its result is asked for."""

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
    """Processes of this machine, each with its share of the CPU threads and one of the GPUs.

    They are forked from a process that has imported what runs need, where the system can do that, and end with this one.
    With GPUs each imports for itself: what looks at a GPU while it is imported (bitsandbytes) leaves CUDA unusable to forks.
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
                worker.connection.close()  # it then ends by itself, and leaves nothing to clean up
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
            log.unlink(missing_ok=True)  # of an earlier command
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
    """What a worker does: task after task, until the process that started it ends."""
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
    gc.freeze()  # half a million objects of imported libraries, which every collection would look at again
    with cpu_threads(threads):
        while True:
            try:
                task = tasks.recv()
            except EOFError:
                return
            tasks.send(attempt(task))


def _tail(path: Path) -> str:
    return "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:])
