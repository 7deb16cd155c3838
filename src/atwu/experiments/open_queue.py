"""Where runs are done: in this process, in several of this machine, each with its share of cores and GPUs, or on a cluster."""

from __future__ import annotations

import os
from pathlib import Path

from atwu.experiments.cluster import RayExecutor
from atwu.experiments.queue import InProcessExecutor, ProcessPool, Queue
from atwu.training.progress import Say


def open_queue(
    processes: int | None,
    *,
    folder: Path,
    threads: int | None = None,
    devices: str | None = None,
    cluster: str | None = None,
    gpus_per_run: float | None = None,
    say: Say,
) -> Queue:
    """The queue that does the work.

    Args:
        processes: runs at once; None for one per device, on CPUs one per core and four at most, since each holds a model.
        threads: CPU threads of each; None for all that one process takes by itself, or its share of the cores.
        devices: CUDA devices, such as `0,1`; None for all there are, unless one process is asked for.
        gpus_per_run: GPUs that the cluster gives to each run; None for one where it has any.

    Raises:
        ConnectionError, ImportError: no such cluster, or Ray is not installed.
        ValueError: no such device, or devices for a cluster, which has its own.
    """
    if devices and cluster is not None:
        raise ValueError(
            "--devices is about the GPUs of this machine, and --cluster does the work on others; give one."
        )
    taken = _chosen_devices(devices) if devices else () if processes == 1 else visible_devices()
    if cluster is not None:
        return RayExecutor(cluster, slots=processes, gpus_per_run=gpus_per_run, say=say)
    count = processes or len(taken) or min(4, os.cpu_count() or 1)
    if count == 1 and not taken:
        return InProcessExecutor(threads=threads)
    share = threads or max(1, (os.cpu_count() or 1) // count)
    return ProcessPool(count, folder=folder, threads=share, devices=taken, say=say)


def visible_devices() -> tuple[str, ...]:
    """CUDA devices as `CUDA_VISIBLE_DEVICES` calls them, or by number."""
    import torch

    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    if named and torch.cuda.is_available():
        return tuple(named)
    return tuple(str(index) for index in range(torch.cuda.device_count()))


def _chosen_devices(text: str) -> tuple[str, ...]:
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
