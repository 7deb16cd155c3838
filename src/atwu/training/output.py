"""A run's output folder: it exists only when the run is finished.

While a run is going everything lives in `OUTPUT.incomplete`, held by one process; the finished folder is moved into place
in one step. A folder left behind by a killed run is taken up again if it belongs to the same run. Only folders that this
module made are ever replaced.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from transformers.trainer_utils import get_last_checkpoint

from atwu._files import write_json

RECORD_NAME = "run.json"
LOG_NAME = "log.jsonl"
RECORD_SCHEMA = "atwu.run/1"
KEY_NAME = "run_key.json"
LOCK_NAME = "run.lock"


class OutputFolder:
    """Where a run works and where its result goes.

    Args:
        path: the finished folder.
        overwrite: replace a finished run and discard an unfinished one.

    Raises:
        FileExistsError: the folder exists and `overwrite` is off, or it is not a run of this package.
    """

    def __init__(self, path: str | Path, *, overwrite: bool = False) -> None:
        self.path = Path(path).expanduser().absolute()
        self.work = self.path.with_name(self.path.name + ".incomplete")
        self.log = self.work / LOG_NAME
        self.overwrite = overwrite
        self._lock: TextIO | None = None
        if self.path.exists():
            if not self._is_run():
                raise FileExistsError(f"{self.path} exists and is not a run of atwu; choose another output.")
            if not overwrite:
                raise FileExistsError(
                    f"{self.path} already holds a finished run; choose another output or pass --overwrite."
                )
        if self.work.exists() and not self._is_work():
            raise FileExistsError(f"{self.work} exists and is not a run of atwu; choose another output.")

    def _is_run(self) -> bool:
        try:
            record = json.loads((self.path / RECORD_NAME).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        return isinstance(record, dict) and record.get("schema") == RECORD_SCHEMA

    def _is_work(self) -> bool:
        """Whether the work folder is of this module; one that is just being made holds its lock before its key."""
        names = {entry.name for entry in self.work.iterdir()}
        return KEY_NAME in names or all(name == LOCK_NAME or name.startswith(f".{KEY_NAME}.") for name in names)

    def check_space(self, needed: int) -> None:
        """Refuse to start when the disk cannot hold the result.

        Raises:
            OSError: fewer than `needed` bytes are free, or the place is not writable.
        """
        parent = self.path.parent
        while not parent.exists():
            parent = parent.parent
        if not os.access(parent, os.W_OK):
            raise PermissionError(f"cannot write to {parent}; choose another output.")
        free = shutil.disk_usage(parent).free
        if free < needed:
            raise OSError(
                f"{parent} has {free / 1e9:.1f} GB free, this run needs about {needed / 1e9:.1f} GB "
                "(checkpoint with optimizer, and the result); free some space, or use --save-strategy no."
            )

    def begin(self, key: Mapping[str, Any]) -> str | None:
        """Take hold of the work folder; return the checkpoint to resume from, if an identical run left one.

        Args:
            key: everything that decides the result of the run.

        Raises:
            FileExistsError: another run was left unfinished here and `overwrite` is off, or one is going on.
        """
        digest = hashlib.sha256(json.dumps(key, sort_keys=True, default=str).encode()).hexdigest()
        self.work.mkdir(parents=True, exist_ok=True)
        self._hold()
        file = self.work / KEY_NAME
        if file.is_file():
            known = json.loads(file.read_text(encoding="utf-8"))
            if known.get("digest") == digest and not self.overwrite:
                return self.last_checkpoint()
            # Without a checkpoint there is nothing to go on with, and nothing to lose.
            if not self.overwrite and self.last_checkpoint() is not None:
                changed = differences(known.get("key", {}), json.loads(json.dumps(dict(key), default=str)))
                raise FileExistsError(
                    f"{self.work} holds an unfinished run that differs in {changed}; finish it with its own settings, "
                    "or pass --overwrite to discard it."
                )
            for entry in self.work.iterdir():
                if entry.name != LOCK_NAME:
                    shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        write_json(file, {"digest": digest, "key": dict(key)})
        return None

    def _hold(self) -> None:
        """Lock the work folder for the life of this process (where the system has file locks)."""
        try:
            import fcntl
        except ImportError:
            return
        self._lock = (self.work / LOCK_NAME).open("a+", encoding="utf-8")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.seek(0)
            owner = self._lock.read().strip() or "unknown"
            raise FileExistsError(f"{self.work} is in use by another run (process {owner}); wait for it.") from None
        self._lock.truncate(0)
        self._lock.write(str(os.getpid()))
        self._lock.flush()

    def last_checkpoint(self) -> str | None:
        """Newest checkpoint in the work folder."""
        checkpoint: str | None = get_last_checkpoint(str(self.work))
        return checkpoint

    def publish(self, result: Path) -> None:
        """Move the finished folder `result` into place and drop the work folder."""
        if self.path.exists():
            aside = Path(tempfile.mkdtemp(prefix=f".{self.path.name}.", dir=self.path.parent))
            os.replace(self.path, aside / "old")
            os.replace(result, self.path)
            shutil.rmtree(aside)
        else:
            os.replace(result, self.path)
        if self._lock is not None:
            self._lock.close()
        shutil.rmtree(self.work, ignore_errors=True)


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Names of what differs between two keys, one level deep."""
    names = []
    for name in sorted(set(old) | set(new)):
        before, after = old.get(name), new.get(name)
        if before != after:
            if isinstance(before, dict) and isinstance(after, dict):
                names += [f"{name}.{key}" for key in sorted({*before, *after}) if before.get(key) != after.get(key)]
            else:
                names.append(name)
    return ", ".join(names[:6]) or "its settings"
