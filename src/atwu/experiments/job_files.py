"""Job files: what determines the result in a folder.

They are written before the work starts, so that results of different settings are never mixed up.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from atwu._file_reading import read_json
from atwu._files import file_lock, write_json
from atwu._renamed import rename_keys
from atwu.training.run_folder import unfinished


class JobFiles:
    """Job files of all folders below one root."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def known(self, folder: Path) -> Any:
        """Return the job for which a folder was started; None if there is none."""
        file = self._file(folder)
        return rename_keys(read_json(file)) if file.is_file() else None

    def begin(self, folder: Path, job: Mapping[str, Any]) -> None:
        """Store the job of a folder; files of another job are removed, files of the same job are kept."""
        if self.known(folder) != job:
            for old in (folder, unfinished(folder)):
                shutil.rmtree(old, ignore_errors=True)
            self._file(folder).parent.mkdir(parents=True, exist_ok=True)
            write_json(self._file(folder), job)

    def _file(self, folder: Path) -> Path:
        return self.root / "jobs" / f"{'-'.join(folder.relative_to(self.root).parts)}.json"


def lock_folder(folder: Path) -> AbstractContextManager[object]:
    """Lock a folder against other commands; the lock ends with this process."""
    said = f"another command is using {folder}; wait for it, or choose another --output."
    return file_lock(folder / "lock", taken=ValueError(said))
