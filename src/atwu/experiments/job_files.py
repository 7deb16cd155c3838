"""What decides the result in a folder, written down before the work begins, so that no result is taken for that of others."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from atwu._file_reading import read_json
from atwu._files import file_lock, write_json
from atwu.training.output_folder import unfinished


class Jobs:
    """The records of all folders below one."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def known(self, folder: Path) -> Any:
        """The job under which a folder was begun; None if it never was."""
        file = self._file(folder)
        return read_json(file) if file.is_file() else None

    def begin(self, folder: Path, job: Mapping[str, Any]) -> None:
        """Write a job down; what another one left in the folder is removed, what the same one left is kept."""
        if self.known(folder) != job:
            for old in (folder, unfinished(folder)):
                shutil.rmtree(old, ignore_errors=True)
            self._file(folder).parent.mkdir(parents=True, exist_ok=True)
            write_json(self._file(folder), job)

    def _file(self, folder: Path) -> Path:
        return self.root / "jobs" / f"{'-'.join(folder.relative_to(self.root).parts)}.json"


def only_here(folder: Path) -> AbstractContextManager[object]:
    """Keep other commands from working in a folder; the lock goes with this process.

    Raises:
        ValueError: on entering, another one is at it.
    """
    said = f"another command is at work in {folder}; wait for it, or choose another --output."
    return file_lock(folder / "lock", taken=ValueError(said))
