"""Several processes on one plan: they are started, watched through what they finish, and reported when one dies."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tqdm.auto import tqdm

from atwu.errors import WorkerError
from atwu.experiments.study.engine import FAILED_NAME
from atwu.experiments.study.plan import Plan


def default_processes(devices: Sequence[str]) -> int:
    """One per device; on CPUs one per core, four at most, since every one holds a model."""
    return len(devices) or max(1, min(4, os.cpu_count() or 1))


def visible_devices() -> tuple[str, ...]:
    """CUDA devices as `CUDA_VISIBLE_DEVICES` calls them, or by number."""
    import torch

    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    if named and torch.cuda.is_available():
        return tuple(named)
    return tuple(str(index) for index in range(torch.cuda.device_count()))


def chosen_devices(text: str) -> tuple[str, ...]:
    """CUDA devices from a list such as `0,1`.

    Raises:
        ValueError: there is no such device; a worker would silently train on the CPU.
    """
    wanted = tuple(name.strip() for name in text.split(",") if name.strip())
    there = visible_devices()
    missing = [name for name in wanted if name not in there]
    if missing or not wanted:
        have = f"the CUDA devices here are {', '.join(there)}" if there else "there is no CUDA device here"
        raise ValueError(f"--devices {text}: {have}; leave the option out for all there are.")
    return wanted


def run_workers(command: Sequence[str], plan: Plan, *, processes: int, devices: Sequence[str] = ()) -> None:
    """Start workers and wait for them, with one bar over the plan's runs.

    Args:
        command: arguments of `python -m atwu` for a worker.
        plan: what they work on.
        processes: how many.
        devices: CUDA devices, dealt to workers in turn.

    Raises:
        WorkerError: a worker failed; its last lines are in the message, its whole output in a file.
    """
    plan.folder.mkdir(parents=True, exist_ok=True)
    logs = [plan.folder / f"worker-{platform.node()}-{index}.log" for index in range(processes)]
    workers = []
    for index, log in enumerate(logs):
        environment = dict(os.environ, OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")
        if devices:
            environment["CUDA_VISIBLE_DEVICES"] = devices[index % len(devices)]
        with log.open("w", encoding="utf-8") as file:
            workers.append(
                subprocess.Popen(
                    [sys.executable, "-m", "atwu", *command, "--worker", str(processes)],
                    stdin=subprocess.PIPE,  # never written to: it closes when this process ends, however it ends
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    env=environment,
                )
            )
    try:
        interval = 0.2 if sys.stderr.isatty() else 15  # a log file wants few lines
        begun = len(plan.runs) - len(plan.remaining)
        with tqdm(total=len(plan.runs), initial=begun, desc="runs", unit="run", mininterval=interval) as bar:
            while any(worker.poll() is None for worker in workers):
                bar.update(_settled(plan) - bar.n)
                time.sleep(0.3)
            bar.update(_settled(plan) - bar.n)
    except BaseException:
        for worker in workers:
            worker.terminate()
        raise
    failed = [log for worker, log in zip(workers, logs, strict=True) if worker.returncode]
    if failed:
        raise WorkerError(f"{len(failed)} of {processes} workers failed; {failed[0]} ends with:\n{_tail(failed[0])}")


def end_with_parent() -> None:
    """Stop this worker when the process that started it is gone."""

    def wait() -> None:
        while os.read(0, 1):  # not sys.stdin, whose lock would be held when this process ends by itself
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _settled(plan: Plan) -> int:
    return sum(run.finished or (run.folder / FAILED_NAME).is_file() for run in plan.runs)


def _tail(path: Path, lines: int = 15) -> str:
    return "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
