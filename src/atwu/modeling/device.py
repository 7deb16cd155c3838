"""Choose a device, describe it and read its memory use."""

from __future__ import annotations

import ctypes
import functools
import platform
import time
from pathlib import Path
from typing import Any

import torch

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Names of `mallopt` in glibc's malloc.h."""
_LARGEST = 2**31 - 1


def pick_device(name: str | None = None) -> torch.device:
    """Return the named device, or the best available one."""
    if name is None:
        if torch.cuda.is_available():
            return torch.device("cuda")
        if torch.backends.mps.is_available():
            return torch.device("mps")
        return torch.device("cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"unknown device {name!r}; use cpu, cuda, cuda:N or mps.") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"device {name!r} is not available: {torch.cuda.device_count()} CUDA devices are visible; use cpu."
        )
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise ValueError("device 'mps' is not available on this machine; use cpu.")
    return device


def emulates_bfloat16(device: torch.device) -> bool:
    """Return whether bfloat16 products are emulated on the device, about 50 times slower than float32."""
    if device.type != "cpu" or platform.machine() not in ("x86_64", "AMD64"):
        return False
    return not (torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported())


@functools.cache
def multiplies_bfloat16(device: torch.device) -> bool:
    """Return whether matrix products in bfloat16 take at most two thirds of the time of those in float32.

    On a CPU this is measured, once per process, in some milliseconds: with AMX, bfloat16 is three times as fast, but Intel
    processors with AVX-512 BF16 alone take twice as long as in float32, although they have instructions for it.
    """
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type != "cpu" or emulates_bfloat16(device):
        return False
    return _product_seconds(torch.bfloat16) < 2 / 3 * _product_seconds(torch.float32)


def _product_seconds(dtype: torch.dtype) -> float:
    """Return the shortest processor time of a matrix product with a layer's shape, with one thread.

    Other processes lengthen the processor time of several threads, which wait for each other.
    """
    rows, weight = torch.ones(256, 1024, dtype=dtype), torch.ones(1024, 1024, dtype=dtype)
    threads, seconds = torch.get_num_threads(), []
    torch.set_num_threads(1)
    try:
        for _ in range(5):
            start = time.process_time()
            torch.nn.functional.linear(rows, weight)
            seconds.append(time.process_time() - start)
    finally:
        torch.set_num_threads(threads)
    # The shortest: other work can only lengthen a measurement.
    return min(seconds)


def free_memory(device: torch.device) -> int:
    """Return the available bytes on a device, including memory reserved by torch."""
    if device.type == "cuda":
        reserved = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + reserved
    import psutil

    return int(psutil.virtual_memory().available)


def peak_memory(device: torch.device) -> int:
    """Return the peak memory of this process in bytes: allocated on a CUDA device, otherwise resident.

    A forked process inherits the peak of its parent in `getrusage`, so `/proc` is preferred on Linux.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    status = Path("/proc/self/status")
    if status.is_file():
        for line in status.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    import psutil

    memory: Any = psutil.Process().memory_info()
    if hasattr(memory, "peak_wset"):  # Windows
        return int(memory.peak_wset)
    try:
        import resource
    except ImportError:
        return int(memory.rss)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if platform.system() == "Darwin":
        return peak
    return peak * 1024


def keep_freed_memory(device: torch.device) -> None:
    """Let the C library keep freed memory for the next tensor, where it is glibc and tensors are in main memory.

    By default it returns every large block to the system, which clears the memory again, page by page, for the next tensor:
    a fifth of a training step. The process then holds its peak memory until it ends.
    """
    mallopt = _malloc_function("mallopt")
    if device.type == "cpu" and mallopt is not None:
        # Blocks above the first threshold have pages of their own; above the second, the end of the heap is given back.
        mallopt(_M_MMAP_THRESHOLD, _LARGEST)
        mallopt(_M_TRIM_THRESHOLD, _LARGEST)


def release_freed_memory(device: torch.device) -> None:
    """Return what `keep_freed_memory` kept: answers have other sizes than steps and leave holes that no step fits."""
    trim = _malloc_function("malloc_trim")
    if device.type == "cpu" and trim is not None:
        trim(0)


def _malloc_function(name: str) -> Any:
    """Return a function of glibc that the process is linked with; None with another C library, as on Windows and macOS."""
    if platform.system() == "Windows":
        return None
    return getattr(ctypes.CDLL(None), name, None)


def machine(device: torch.device) -> str:
    """Describe the hardware that affects numerical results: name of the GPU, or of the CPU with its vector instructions."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    name = platform.machine()
    facts = Path("/proc/cpuinfo")  # of Linux; Python has no function for the name of a processor
    if facts.is_file():
        lines = facts.read_text(encoding="utf-8").splitlines()
        names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
        name = next(names, name)
    return f"{name}, {torch.backends.cpu.get_cpu_capability()}"
