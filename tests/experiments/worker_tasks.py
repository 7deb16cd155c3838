"""Tasks of workers, in a module that a worker imports at once."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path


def where(number: int) -> tuple[int, int, str | None]:
    return number, os.getpid(), os.environ.get("OMP_NUM_THREADS")


def how_it_began() -> tuple[str, str | None]:
    return os.environ["CUDA_VISIBLE_DEVICES"], multiprocessing.get_start_method()


def die_once(mark: Path) -> str:
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


def die_twice(folder: Path) -> str:
    for name in ("first", "second"):
        die_once(folder / name)
    return "done"


def die() -> None:
    print("what it said last", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def fail() -> None:
    raise FileNotFoundError(2, "gone", "rows.jsonl")
