"""Open the executor of runs and trials: in this process, in several local processes, or on a cluster."""

from __future__ import annotations

import os
from pathlib import Path

from atwu.experiments.cluster import RayExecutor
from atwu.experiments.executors import Executor, InProcessExecutor, ProcessExecutor
from atwu.training.progress import Say


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
        gpus_per_run: GPUs of the cluster for each run; None for one if it has any.
    """
    if devices and cluster is not None:
        raise ValueError(
            "--devices selects GPUs of this machine, but --cluster runs on other machines; give one of them."
        )
    taken = _chosen_devices(devices) if devices else () if processes == 1 else visible_devices()
    if cluster is not None:
        return RayExecutor(cluster, slots=processes, gpus_per_run=gpus_per_run, say=say)
    count = processes or len(taken) or min(4, os.cpu_count() or 1)
    if count == 1 and not taken:
        return InProcessExecutor(threads=threads)
    share = threads or max(1, (os.cpu_count() or 1) // count)
    return ProcessExecutor(count, folder=folder, threads=share, devices=taken, say=say)


def visible_devices() -> tuple[str, ...]:
    """Return CUDA devices as in `CUDA_VISIBLE_DEVICES`, or numbered."""
    import torch

    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    if named and torch.cuda.is_available():
        return tuple(named)
    return tuple(str(index) for index in range(torch.cuda.device_count()))


def _chosen_devices(text: str) -> tuple[str, ...]:
    """Parse a list of CUDA devices such as `0,1`."""
    wanted = tuple(name.strip() for name in text.split(",") if name.strip())
    there = visible_devices()
    missing = [name for name in wanted if name not in there]
    if missing or not wanted:
        have = f"available CUDA devices are {', '.join(there)}" if there else "there is no CUDA device"
        raise ValueError(f"--devices {text}: {have}; leave the option out to use all.")
    return wanted
