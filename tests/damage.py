"""Damage files as faulty disks and power failures do."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

DAMAGES = ("truncated", "zeroed", "missing", "flipped")


def damage(file: Path, how: str) -> None:
    """Damage a file in one of the ways of `DAMAGES`; of an empty one, only missing is possible."""
    content = file.read_bytes()
    if how == "truncated":
        file.write_bytes(content[: len(content) // 2])
    elif how == "zeroed":
        file.write_bytes(bytes(len(content)))
    elif how == "missing":
        file.unlink()
    elif content:
        middle = len(content) // 2
        file.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])


@contextlib.contextmanager
def disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of its own at a new folder."""
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("mounting takes root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
