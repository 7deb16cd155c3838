"""Several workers on one machine: processes that fill the same budget, each with its share of the cores and a GPU if any."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import threading
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from atwu.experiments.tuning.board import result_of
from atwu.experiments.tuning.run import POLL, Watch, open_study, quiet_optuna, work
from atwu.experiments.tuning.search import Evaluate, Say, Search


def environment(index: int, processes: int, *, cores: int, devices: Sequence[str] = ()) -> dict[str, str]:
    """Environment variables of one worker.

    Args:
        index: of the worker.
        processes: how many there are.
        cores: of the machine.
        devices: GPUs that may be used, as in CUDA_VISIBLE_DEVICES.
    """
    threads = {"OMP_NUM_THREADS": str(max(1, cores // processes))}
    return threads | ({"CUDA_VISIBLE_DEVICES": devices[index % len(devices)]} if devices else {})


def run_workers(
    search: Search,
    evaluate: Evaluate,
    folder: Path,
    what: Mapping[str, Any],
    study: Any,
    *,
    processes: int,
    watch: Watch,
    say: Say,
) -> None:
    """Start workers, follow what they find, and stop when the budget is filled.

    Raises:
        Exception: what a worker failed with.
        ChildProcessError: all of them were killed.
    """
    context = multiprocessing.get_context("spawn")
    running: dict[Any, tuple[Any, Connection]] = {}
    try:
        for index in range(min(processes, search.trials)):
            receive, send = context.Pipe(duplex=False)
            process = context.Process(target=_worker, args=(search, evaluate, folder, what, send), daemon=True)
            given = environment(index, processes, cores=os.cpu_count() or 1, devices=_devices())
            with _set(given):
                process.start()
            send.close()
            running[process.sentinel] = (process, receive)
        while running:
            for sentinel in wait(list(running), timeout=POLL):
                process, receive = running.pop(sentinel)
                process.join()
                with contextlib.suppress(EOFError):  # a worker without an error just hangs up
                    raise receive.recv()
                if process.exitcode:
                    say(
                        f"worker {process.pid} was killed (exit code {process.exitcode}); the others take its trial over"
                    )
            watch(result_of(search, study))
    finally:
        for process, _ in running.values():
            process.terminate()
        for process, _ in running.values():
            process.join()
    if len(result_of(search, study).trials) < search.trials:
        raise ChildProcessError("all workers were killed (out of memory?); the same command continues the search.")


@contextlib.contextmanager
def _set(variables: Mapping[str, str]) -> Iterator[None]:
    """Environment variables for the processes that are started meanwhile."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _devices() -> list[str]:
    """GPUs that this process may use."""
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",") if named else [str(index) for index in range(torch.cuda.device_count())]


def _worker(search: Search, evaluate: Evaluate, folder: Path, what: Mapping[str, Any], errors: Connection) -> None:
    """What a worker process does; it ends with its parent."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=lambda: (wait([parent.sentinel]), os._exit(1)), daemon=True).start()
    try:
        with quiet_optuna():
            study, storage = open_study(search, folder, what)
            work(search, evaluate, study, storage, folder, lambda found: None)
    except KeyboardInterrupt:
        os._exit(130)
    except Exception as error:  # whatever it is, the parent raises it
        errors.send(_portable(error))


def _portable(error: Exception) -> Exception:
    """The error itself if it can be sent to another process, else its text."""
    try:
        copied = pickle.loads(pickle.dumps(error))
    except Exception:  # exceptions of any package may fail in any way here
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error if isinstance(copied, type(error)) else RuntimeError(str(error))
