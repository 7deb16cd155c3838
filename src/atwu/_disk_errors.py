"""Detect full and read-only disks in errors of any library, and report them in one line."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

from atwu.errors import DiskFullError

_FULL = (errno.ENOSPC, errno.EDQUOT)
_CLOSED = (
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.ENOTDIR,
    errno.EEXIST,
)  # the last two: a file in place of a folder
_IN_RUST = re.compile(r"\(os error (\d+)\)")
_WITHOUT_REASON = re.compile(r"inline_container\.cc|^\d+ requested and \d+ written")
"""Messages of PyTorch and NumPy for a write that failed on a full disk."""
_UNITS = ("B", "KB", "MB", "GB", "TB")


def format_bytes(count: float) -> str:
    """Format a size with three significant digits: `512 B`, `4.1 MB`."""
    power = 0
    while count >= 999.5 and power < len(_UNITS) - 1:
        count, power = count / 1000, power + 1
    return f"{count:.{1 if power and count < 99.95 else 0}f} {_UNITS[power]}"


def cannot_write(error: BaseException) -> str | None:
    """Return the system's message if an error means a full disk or a folder that cannot be written to, otherwise None."""
    number = error.errno if isinstance(error, OSError) else None
    if number is None and (found := _IN_RUST.search(str(error))):
        number = int(found[1])
    if number is None and isinstance(error, RuntimeError | OSError) and _WITHOUT_REASON.search(str(error)):
        number = errno.ENOSPC
    return os.strerror(number) if number in (*_FULL, *_CLOSED) else None


@contextlib.contextmanager
def explain_full_disk(where: Path) -> Iterator[None]:
    """Turn an error caused by a full disk into one that names the path and the next step."""
    try:
        yield
    except Exception as error:
        if cannot_write(error) not in {os.strerror(number) for number in _FULL}:
            raise
        raise DiskFullError(
            f"the disk is full: cannot write {where}. Free some space there and run the same command again; it "
            "continues from what is already written."
        ) from error
