"""A run's output folder: it exists only when the run is finished.

While a run is going everything lives in `OUTPUT.incomplete`; the finished folder is moved into place in one step. A folder
left behind by a killed run is taken up again if it belongs to the same run.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers.trainer_utils import get_last_checkpoint

KEY_NAME = "run_key.json"


class OutputFolder:
    """Where a run works and where its result goes.

    Args:
        path: the finished folder.
        overwrite: replace a finished folder and discard an unfinished one.

    Raises:
        FileExistsError: the folder exists and `overwrite` is off.
    """

    def __init__(self, path: str | Path, *, overwrite: bool = False) -> None:
        self.path = Path(path)
        self.work = self.path.with_name(self.path.name + ".incomplete")
        self.overwrite = overwrite
        if self.path.exists() and not overwrite:
            what = "a finished run" if (self.path / "run.json").is_file() else "other files"
            raise FileExistsError(f"{self.path} already holds {what}; choose another output or pass --overwrite.")

    def check_space(self, needed: int) -> None:
        """Refuse to start when the disk cannot hold the result.

        Raises:
            OSError: fewer than `needed` bytes are free.
        """
        parent = self.path.absolute().parent
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
        """Create the work folder; return the checkpoint to resume from, if an identical run left one.

        Args:
            key: everything that decides the result of the run.

        Raises:
            FileExistsError: another run was left unfinished here and `overwrite` is off.
        """
        digest = hashlib.sha256(json.dumps(key, sort_keys=True, default=str).encode()).hexdigest()
        file = self.work / KEY_NAME
        if self.work.exists():
            known = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
            if known.get("digest") == digest and not self.overwrite:
                return self.last_checkpoint()
            if not self.overwrite and known:
                changed = _differences(known.get("key", {}), json.loads(json.dumps(dict(key), default=str)))
                raise FileExistsError(
                    f"{self.work} holds an unfinished run that differs in {changed}; finish it with its own settings, or pass "
                    "--overwrite to discard it."
                )
            shutil.rmtree(self.work)
        self.work.mkdir(parents=True)
        write_json(file, {"digest": digest, "key": dict(key)})
        return None

    def last_checkpoint(self) -> str | None:
        """Newest checkpoint in the work folder."""
        checkpoint: str | None = get_last_checkpoint(str(self.work))
        return checkpoint

    def publish(self, result: Path) -> None:
        """Move the finished folder `result` into place and drop the work folder."""
        if self.path.exists():
            old = self.path.with_name(self.path.name + ".old")
            shutil.rmtree(old, ignore_errors=True)
            os.replace(self.path, old)
            os.replace(result, self.path)
            shutil.rmtree(old)
        else:
            os.replace(result, self.path)
        shutil.rmtree(self.work, ignore_errors=True)


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    names = []
    for name in sorted(set(old) | set(new)):
        before, after = old.get(name), new.get(name)
        if before != after:
            if isinstance(before, dict) and isinstance(after, dict):
                names += [
                    f"{name}.{key}" for key in sorted(set(before) | set(after)) if before.get(key) != after.get(key)
                ]
            else:
                names.append(name)
    return ", ".join(names[:6]) or "its settings"


def write_json(path: Path, value: Any) -> None:
    """Write JSON so that a reader sees the old file or the new one, never half of it."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n", encoding="utf-8")
    os.replace(temporary, path)
