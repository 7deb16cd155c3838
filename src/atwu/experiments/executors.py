"""Executors run tasks in parallel and hand back their outcomes as they finish; all use one loop, `Executor.run`.

Tasks run in this process (`InProcessExecutor`), in local processes (`ProcessExecutor`), or on the nodes of a Ray
cluster (`atwu.experiments.cluster`, whose `open_executor` opens one of them). If a worker dies, its task starts again.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import multiprocessing
import os
import pickle
import platform
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for_connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atwu._command import install_worker_handlers
from atwu.errors import WorkerError

if TYPE_CHECKING:  # a worker starts within a second if it does not import the progress bar
    from atwu.training.progress import Say

logger = logging.getLogger(__name__)

ATTEMPTS = 3
"""Maximum number of attempts of a task whose workers die: a task that itself kills them, for want of memory, must end."""
PRELOADED = ["atwu.experiments.experiment_run"]
"""Modules imported by the process from which workers are forked."""


@dataclass(frozen=True, slots=True)
class Task:
    """A picklable function of the package with its arguments."""

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    folder: Path | None = None
    """Folder for its files, passed as `folder=` if there is one; on another machine a folder there, whose files are copied
    back."""
    source: Path | None = None
    """Finished folder that it reads, passed as `source=` if there is one."""
    needs: tuple[Path, ...] = ()
    """Local models and files that it reads."""

    def __call__(self) -> Any:
        folders = {"folder": self.folder, "source": self.source}
        return self.function(*self.args, **{name: folder for name, folder in folders.items() if folder is not None})


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

    def wait(self, futures: Iterable[Future[Any]]) -> Future[Any]:
        finished = wait(futures, return_when=FIRST_COMPLETED).done
        return next(future for future in futures if future in finished)

    def collect(self, future: Future[Any], task: Task) -> Any:
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
            while len(running) < self.slots and (begun := begin()) is not None:
                running[self.submit(begun[1])] = *begun, 1
            if not running:
                return
            future = self.wait(running)
            name, task, attempt = running.pop(future)
            value: Any = None
            error: Exception | None = None
            try:
                value = self.collect(future, task)
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
        self._workers: dict[int, _Worker] = {}
        self._waiting, self._running = ThreadPoolExecutor(count), dict[int, Future[Any]]()
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
