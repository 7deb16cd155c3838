"""Output folder of a run: it exists only once the run is finished.

During a run all files are in `OUTPUT.incomplete`, locked by one process; the finished folder is moved into place
atomically. A folder left by a killed run is resumed if it belongs to the same run. Only folders created by this module
are replaced.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from atwu._disk_errors import format_bytes
from atwu._file_reading import printable, read_upgraded_json
from atwu._files import atomic_sibling, clear_atomic_siblings, file_lock, move, write_json
from atwu._manifest import MANIFEST_NAME, RECORD_NAME, write_manifest
from atwu.training.checkpoints import last_checkpoint
from atwu.training.run_key import KEY_NAME, key_differences

LOG_NAME = "log.jsonl"
RECORD_SCHEMA = "atwu.run/2"
LOCK_NAME = "run.lock"
_WORK = ".incomplete"
_LONGEST_NAME, _LONGEST_PATH = 255 - len(_WORK), 1000
"""Limits in bytes of common file systems, minus room for the files of a run."""


def output_path(path: str | Path) -> Path:
    """Resolve an output path, following symbolic links.

    Raises:
        OSError: the folder cannot be created.
    """
    given = Path(path).expanduser().absolute()
    if printable(str(given)) != str(given):
        raise OSError(f"output {path} contains control characters or is not valid UTF-8; choose another output.")
    for part, longest in ((str(given), _LONGEST_PATH), (given.name, _LONGEST_NAME)):
        if (size := len(os.fsencode(part))) > longest:
            raise OSError(f"output {part[:60]}... is too long: {size} bytes, at most {longest}.")
    found = Path(os.path.realpath(given))
    there = next((each for each in found.parents if each.exists()), None)
    if found.is_symlink() or there is None or not there.is_dir():
        raise OSError(f"output {path} leads to {found}, where no folder can be created; choose another output.")
    if not os.access(there, os.W_OK):
        raise OSError(f"output {path} cannot be created: {there} is read-only; choose another output.")
    return found


def unfinished(folder: Path) -> Path:
    """Return the work folder of an output folder."""
    return folder.with_name(folder.name + _WORK)


def drop_unfinished(folder: Path) -> None:
    """Remove the work folder atomically, so that a kill leaves no partial folder."""
    with atomic_sibling(folder) as doomed, contextlib.suppress(FileNotFoundError):
        os.replace(unfinished(folder), doomed / "work")


logger = logging.getLogger(__name__)


class OutputFolder:
    """Work folder and output folder of a run.

    Args:
        path: the output folder.
        overwrite: replace a finished run and discard an unfinished one.

    Raises:
        FileExistsError: the folder exists and `overwrite` is off, or it is not a run of this package.
        OSError: the folder cannot be created.
    """

    def __init__(self, path: str | Path, *, overwrite: bool = False) -> None:
        self.path = output_path(path)
        self.work = unfinished(self.path)
        self.log = self.work / LOG_NAME
        self.overwrite = overwrite
        self._lock = contextlib.ExitStack()
        if self.path.exists():
            if not self._is_run():
                raise FileExistsError(f"{self.path} exists and is not a run of atwu; choose another output.")
            if not overwrite:
                self._drop_what_a_kill_left()
                raise FileExistsError(
                    f"{self.path} already holds a finished run; choose another output or pass --overwrite."
                )
        if self.work.exists() and not self._is_work():
            raise FileExistsError(f"{self.work} exists and is not a run of atwu; choose another output.")

    def _drop_what_a_kill_left(self) -> None:
        """Remove the work folder of a run whose result is already in place."""
        clear_atomic_siblings(self.path)
        there, worked = (folder / MANIFEST_NAME for folder in (self.path, self.work))
        if there.is_file() and worked.is_file() and there.read_bytes() == worked.read_bytes():
            drop_unfinished(self.path)

    def _is_run(self) -> bool:
        try:
            record = read_upgraded_json(self.path / RECORD_NAME)
        except (OSError, ValueError):
            return False
        return isinstance(record, dict) and record.get("schema") == RECORD_SCHEMA

    def _is_work(self) -> bool:
        """Whether the work folder was created by this module; a new one has its lock before its key."""
        if not self.work.is_dir():
            return False
        names = {entry.name for entry in self.work.iterdir()}
        return not names.isdisjoint((KEY_NAME, LOCK_NAME)) or all(name.startswith(f".{KEY_NAME}.") for name in names)

    def check_space(self, needed: int) -> None:
        """Check that the disk has room for the result, not counting files that already exist in the work folder.

        Raises:
            OSError: less than `needed` bytes are free, or the folder is not writable.
        """
        parent = self.path.parent
        while not parent.exists():
            parent = parent.parent
        if not os.access(parent, os.W_OK):
            raise PermissionError(f"cannot write to {parent}; choose another output.")
        free = shutil.disk_usage(parent).free
        there = sum(file.stat().st_size for file in self.work.rglob("*") if file.is_file())
        if free + there < needed:
            raise OSError(
                f"{parent} has {format_bytes(free)} free, but this run needs about {format_bytes(needed - there)} "
                "(checkpoints with optimizer state, and the result); free some space, or use --save-total-limit 1 "
                "or --save-strategy no."
            )

    def begin(self, key: Mapping[str, Any]) -> None:
        """Create or reopen the work folder; existing files in it belong to a run with the same key.

        Raises:
            FileExistsError: the folder contains another unfinished run and `overwrite` is off, or a run in progress.
        """
        key = json.loads(json.dumps(dict(key), default=str))
        self.work.mkdir(parents=True, exist_ok=True)
        self._hold()
        if not self.overwrite and (known := self._known()) is not None:
            if known == key:
                return
            # Without a checkpoint there is nothing to resume from, and nothing to lose.
            if last_checkpoint(self.work) is not None:
                raise FileExistsError(
                    f"{self.work} contains an unfinished run that differs in {key_differences(known, key)}; finish "
                    "it with its own settings, or pass --overwrite to discard it."
                )
        for entry in self.work.iterdir():
            if entry.name != LOCK_NAME:
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        write_json(self.work / KEY_NAME, {"digest": _digest(key), "key": key})

    def _known(self) -> dict[str, Any] | None:
        """Return the key of the unfinished run; None if there is none, or if it is damaged (with a warning)."""
        file = self.work / KEY_NAME
        try:
            read = json.loads(file.read_text(encoding="utf-8"))
            key: dict[str, Any] = read["key"]
            if read["digest"] == _digest(key):
                return key
        except FileNotFoundError:
            if last_checkpoint(self.work) is None:
                return None
        except (ValueError, LookupError, TypeError):
            pass
        logger.warning(
            (
                "warning: %s is damaged or missing, so the unfinished run cannot be identified; starting from the "
                "beginning"
            ),
            file,
        )
        return None

    def _hold(self) -> None:
        """Lock the work folder for the life of this process."""
        lock = self.work / LOCK_NAME
        owner = lock.read_text(encoding="utf-8", errors="replace").strip() if lock.exists() else ""
        said = f"{self.work} is in use by another run (process {owner or 'unknown'}); wait for it."
        file = self._lock.enter_context(file_lock(lock, taken=FileExistsError(said)))
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()

    def publish(self, result: Path) -> None:
        """Move the finished folder `result` into place and remove the work folder."""
        write_manifest(result)
        shutil.copyfile(result / MANIFEST_NAME, self.work / MANIFEST_NAME)
        if self.path.exists():
            os.replace(self.path, self.work / "old")
        move(result, self.path)
        self._lock.close()
        drop_unfinished(self.path)


def _digest(key: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
