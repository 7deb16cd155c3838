"""Disks that are full or cannot be written to: told apart from other errors, whichever library met them, and said in a line."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

from atwu.errors import DiskFullError

_FULL = (errno.ENOSPC, errno.EDQUOT)
_CLOSED = (errno.EROFS, errno.EACCES, errno.EPERM)
_IN_RUST = re.compile(r"\(os error (\d+)\)")
_WITHOUT_REASON = re.compile(r"inline_container\.cc|^\d+ requested and \d+ written")
"""What PyTorch and NumPy say of a file that has stopped to grow."""
_UNITS = ("B", "KB", "MB", "GB", "TB")


def format_bytes(count: float) -> str:
    """A size for people, to three digits: `512 B`, `4.1 MB`."""
    power = 0
    while count >= 999.5 and power < len(_UNITS) - 1:
        count, power = count / 1000, power + 1
    return f"{count:.{1 if power and count < 99.95 else 0}f} {_UNITS[power]}"


def cannot_write(error: BaseException) -> str | None:
    """Why nothing can be written any more: what the system says of a full disk or a closed folder; None for other errors."""
    number = error.errno if isinstance(error, OSError) else None
    if number is None and (found := _IN_RUST.search(str(error))):
        number = int(found[1])
    if number is None and isinstance(error, RuntimeError | OSError) and _WITHOUT_REASON.search(str(error)):
        number = errno.ENOSPC
    return os.strerror(number) if number in (*_FULL, *_CLOSED) else None


@contextlib.contextmanager
def room(where: Path) -> Iterator[None]:
    """Name what is written, and what to do, when the disk is full.

    Raises:
        DiskFullError: instead of what a library says then.
    """
    try:
        yield
    except Exception as error:
        if cannot_write(error) not in {os.strerror(number) for number in _FULL}:
            raise
        raise DiskFullError(
            f"the disk is full: {where} could not be written; free some space there and give the same command again, "
            "which goes on from what is whole."
        ) from error
