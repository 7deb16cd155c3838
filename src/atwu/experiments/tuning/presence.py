"""Who runs a trial, and whether that process still lives: a lock file that the system lets go of when its holder dies.

Seen by every process that works in the same folder; processes that work elsewhere are judged by heartbeats (`storage.py`).
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

FOLDER_NAME = "workers"


class Presence:
    """Held by a worker for as long as it lives.

    Args:
        folder: of the search.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / FOLDER_NAME
        self.name = uuid.uuid4().hex
        self.folder.mkdir(parents=True, exist_ok=True)
        self._file: TextIO | None = self._path(self.name).open("w", encoding="utf-8")
        if not _lock(self._file):
            # Without locks an open file says nothing about its owner.
            self.leave()

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.lock"

    def owner(self) -> dict[str, Any]:
        """What is written beside a trial that this process runs."""
        return {"worker": self.name, "host": socket.gethostname(), "process": os.getpid()}

    def has_left(self, owner: Mapping[str, Any]) -> bool:
        """Whether that process is known to have ended."""
        return self._held(owner) is False

    def is_alive(self, owner: Mapping[str, Any]) -> bool:
        """Whether that is another process of this machine which is known to live, be it asleep."""
        # On network folders the lock of a machine that is gone may stay.
        return owner.get("host") == socket.gethostname() and self._held(owner) is True

    def _held(self, owner: Mapping[str, Any]) -> bool | None:
        """Whether that process holds its lock; None for this one, and for those without a record here."""
        if owner.get("worker") == self.name:
            return None
        try:
            with self._path(str(owner.get("worker"))).open("r+", encoding="utf-8") as file:
                return not _lock(file)
        except FileNotFoundError:
            return None

    def forget(self, owner: Mapping[str, Any]) -> None:
        """Drop the record of a process that has left, once its trial is given up."""
        self._path(str(owner["worker"])).unlink(missing_ok=True)

    def leave(self) -> None:
        """Nothing of this process is unfinished; a worker that fails stays on record instead."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._path(self.name).unlink(missing_ok=True)


def _lock(file: TextIO) -> bool:
    """Lock an open file; False where another process holds it, or where the system has no such locks."""
    try:
        import fcntl
    except ImportError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
