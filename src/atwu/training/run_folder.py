"""Folder of a run: `OUTPUT.incomplete` while it is under way, `OUTPUT` once it is finished, never both.

    OUTPUT.incomplete/run.lock        held by the process of the run
    OUTPUT.incomplete/run.process     its number, for messages
    OUTPUT.incomplete/checkpoint-N/   to resume from, with the key that identifies the run
    OUTPUT.incomplete/request/        files of an unlearning request (`atwu.request.request_folder`)
    OUTPUT.incomplete/final/          the result, whole once it has a manifest, moved to `OUTPUT` in one step

A folder left by a killed run is resumed if it belongs to the same run. Only folders created by this module are replaced.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from rich.filesize import decimal

from atwu._cache import key_differences
from atwu._file_reading import printable, read_object
from atwu._files import atomic_sibling, clear_atomic_siblings, move
from atwu._manifest import LOG_NAME, MANIFEST_NAME, RECORD_NAME
from atwu.training.checkpoints import checkpoint_key, last_checkpoint

RECORD_SCHEMA = "atwu.run/2"
LOCK_NAME, PROCESS_NAME = "run.lock", "run.process"
REQUEST_FOLDER, VERDICT_NAME = "request", "verdict.json"
"""What an unlearning request adds to its run."""
_WORK = ".incomplete"
_LONGEST_NAME = 255 - len(_WORK)
"""Limit in bytes of common file systems."""


def output_path(path: str | Path) -> Path:
    """Resolve an output path, following symbolic links."""
    if not str(path).strip():
        raise OSError("the output is empty; name a folder.")
    absolute = Path(path).expanduser().absolute()
    if printable(str(absolute)) != str(absolute):
        raise OSError(f"output {path} contains control characters or is not valid UTF-8; choose another output.")
    size = len(os.fsencode(absolute.name))
    if size > _LONGEST_NAME:
        raise OSError(f"output {absolute.name[:60]}... is too long: {size} bytes, at most {_LONGEST_NAME}.")
    resolved = Path(os.path.realpath(absolute))
    there = next((parent for parent in resolved.parents if parent.exists()), None)
    if resolved.is_symlink() or there is None or not there.is_dir():
        why = f"no folder can be created at {resolved}"
        if there is not None and not there.is_dir():
            why = f"{there} is not a folder"
        raise OSError(f"output {path}: {why}; choose another output.")
    if not os.access(there, os.W_OK):
        raise OSError(f"output {path} cannot be created: {there} is read-only; choose another output.")
    return resolved


def check_inputs_kept(output: Path, inputs: Mapping[str, str | Path | None]) -> None:
    """Check that nothing that a run reads lies in the folder that its result replaces, also behind links.

    Args:
        inputs: what it is -> its path; other names, such as those of models on the Hub, are in no folder.

    Raises:
        ValueError: an input is the folder or in it.
    """
    replaced = [folder for folder in (output, unfinished(output)) if folder.exists()]
    for what, name in inputs.items():
        if name is None:
            continue
        path = Path(name).expanduser()
        if not path.exists():  # a name on the Hub
            continue
        # The files of a folder may themselves be links, as in the cache of the Hub.
        links: list[Path] = []
        if path.is_dir():
            links = [entry for entry in path.iterdir() if entry.is_symlink()]
        for place in {Path(os.path.realpath(part)) for part in (path, *links)}:
            for folder in replaced:
                if any(parent.exists() and parent.samefile(folder) for parent in (place, *place.parents)):
                    raise ValueError(
                        f"the {what} {name} is in {folder}, which the output replaces; choose another output folder."
                    )


def unfinished(folder: Path) -> Path:
    return folder.with_name(folder.name + _WORK)


def drop_unfinished(folder: Path) -> None:
    """Remove the work folder atomically, so that a kill leaves no partial folder."""
    with atomic_sibling(folder) as doomed, contextlib.suppress(FileNotFoundError):
        os.replace(unfinished(folder), doomed / "work")


class RunFolder:
    """Folder of a run, under way or finished.

    Args:
        overwrite: replace a finished run and discard an unfinished one.
        inputs: what the run reads, as for `check_inputs_kept`.

    Raises:
        ValueError: an input would be replaced.
        FileExistsError: the folder exists and `overwrite` is off, or it is not a run of this package.
        OSError: the folder cannot be created.
    """

    def __init__(
        self, path: str | Path, *, overwrite: bool = False, inputs: Mapping[str, str | Path | None] | None = None
    ) -> None:
        self.path = output_path(path)
        check_inputs_kept(self.path, inputs or {})
        self.work = unfinished(self.path)
        self.final, self.request, self.log = (self.work / name for name in ("final", REQUEST_FOLDER, LOG_NAME))
        self.overwrite = overwrite
        # No timeout: a run that is under way may take days, so a second one ends with an error instead of waiting.
        self._lock = FileLock(self.work / LOCK_NAME, timeout=0)
        self._kept = {LOCK_NAME, PROCESS_NAME}
        """What `clear` leaves."""
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
            record = read_object(self.path / RECORD_NAME)
        except (OSError, ValueError):
            return False
        return record.get("schema") == RECORD_SCHEMA

    def _is_work(self) -> bool:
        """Whether the work folder was created by this module; a new one is empty before it has its lock."""
        if not self.work.is_dir():
            return False
        names = {entry.name for entry in self.work.iterdir()}
        return not names or not names.isdisjoint((LOCK_NAME, PROCESS_NAME))

    def check_space(self, needed: int) -> None:
        """Check that the disk has room for the result, not counting files that already exist in the work folder."""
        parent = next(folder for folder in self.path.parents if folder.exists())
        free = shutil.disk_usage(parent).free
        there = sum(file.stat().st_size for file in self.work.rglob("*") if file.is_file())
        if free + there < needed:
            raise OSError(
                f"{parent} has {decimal(int(free))} free, but this run needs about {decimal(int(needed - there))} "
                "(checkpoints with optimizer state, and the result); free some space, or use --save-total-limit 1 "
                "or --save-strategy no."
            )

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Lock the folder for an unlearning request; on leaving, remove it unless there is something to resume."""
        self._hold()
        self._kept.add(REQUEST_FOLDER)
        try:
            yield
        finally:
            empty = self.work.exists() and not self.has_results() and not self.request.exists()
            self._lock.release(force=True)  # before: Windows moves no folder with an open file
            if empty:
                drop_unfinished(self.path)

    def has_results(self) -> bool:
        return self.trained() or last_checkpoint(self.work) is not None

    def trained(self) -> bool:
        """Whether the result is whole: its manifest is written last."""
        return (self.final / MANIFEST_NAME).is_file()

    def begin(self, key: Mapping[str, Any]) -> None:
        """Create or reopen the work folder; checkpoints in it belong to a run with the same key, plain JSON."""
        self._hold()
        last = last_checkpoint(self.work)
        # Without a checkpoint there is nothing to resume from, and nothing to lose.
        if last is None or self.overwrite:
            self.clear()
            return
        known = checkpoint_key(last)
        # A damaged checkpoint has no key that could be read; the trainer removes it, with a warning, for the one before it.
        if known is not None and known != key:
            raise FileExistsError(
                f"{self.work} contains an unfinished run that differs in {', '.join(key_differences(known, key))}; finish "
                "it with its own settings, or pass --overwrite to discard it."
            )

    def clear(self) -> None:
        """Remove the files of an unfinished run, except those of the request that it belongs to."""
        for entry in self.work.iterdir():
            if entry.name in self._kept:
                continue
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()

    def _hold(self) -> None:
        """Lock the work folder for the life of this process."""
        self.work.mkdir(parents=True, exist_ok=True)
        process = self.work / PROCESS_NAME
        try:
            self._lock.acquire()
        except Timeout:
            owner = "unknown"
            if process.is_file():
                owner = process.read_text(encoding="utf-8")
            raise FileExistsError(f"{self.work} is in use by another run (process {owner}); wait for it.") from None
        process.write_text(str(os.getpid()), encoding="utf-8")

    def publish(self) -> None:
        # If a kill follows the move, the next command sees by the equal manifests that this work is done.
        shutil.copyfile(self.final / MANIFEST_NAME, self.work / MANIFEST_NAME)
        if self.path.exists():
            # Moved, not removed: between the two moves a kill leaves both results whole.
            os.replace(self.path, self.work / "old")
        move(self.final, self.path)
        self._lock.release(force=True)
        drop_unfinished(self.path)
