"""Which device to run on, what it is, and how much memory was used there."""

from __future__ import annotations

import functools
import platform
import resource
import time
from pathlib import Path

import torch


def pick_device(name: str | None = None) -> torch.device:
    """The named device, or the best one there is.

    Raises:
        ValueError: not a device, or not available here.
    """
    if name is None:
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"unknown device {name!r}; use cpu, cuda, cuda:N or mps.") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"device {name!r} asked for, but {torch.cuda.device_count()} CUDA devices are visible; use cpu."
        )
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise ValueError("device 'mps' asked for, but Metal is not available here; use cpu.")
    return device


def emulates_bfloat16(device: torch.device) -> bool:
    """Whether products in bfloat16 are made of other operations there: some 50 times slower than in float32."""
    if device.type != "cpu" or platform.machine() not in ("x86_64", "AMD64"):
        return False
    return not multiplies_bfloat16(device)


def multiplies_bfloat16(device: torch.device) -> bool:
    """Whether products in bfloat16 have instructions there (on x86 AMX or AVX-512 BF16): at least twice as fast as float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type == "cpu" and (torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported())


def free_memory(device: torch.device) -> int:
    """Bytes that can be had on a device, those that torch keeps for itself included."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + kept
    import psutil

    return int(psutil.virtual_memory().available)


def peak_memory(device: torch.device) -> int:
    """Most memory in bytes that this process has held at once: allocated on a CUDA device, else resident.

    A process that was forked from a large one keeps that one's peak in `getrusage`, so Linux's own count goes first.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    status = Path("/proc/self/status")
    if status.is_file():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if platform.system() == "Darwin" else peak * 1024


@functools.cache
def product_speed() -> float:
    """GFLOP/s of float32 matrix products on a core here; takes a fifth of a second."""
    one, other = torch.rand(2, 1024, 1024)
    seconds, threads = [], torch.get_num_threads()
    torch.set_num_threads(1)
    for _ in range(6):
        start = time.perf_counter()
        one @ other
        seconds.append(time.perf_counter() - start)
    torch.set_num_threads(threads)
    return 2 * 1024**3 / min(seconds) / 1e9


def machine(device: torch.device) -> str:
    """What computes there, as far as digits depend on it: the GPU's name, or the processor's and its vector instructions."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text(encoding="utf-8").splitlines() if facts.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return f"{next(names, platform.machine())}, {torch.backends.cpu.get_cpu_capability()}"
