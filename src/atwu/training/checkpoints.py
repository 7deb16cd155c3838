"""Checkpoints: written atomically, and never resumed from if damaged."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from atwu._file_reading import read_object
from atwu._files import move, plain_modes, write_json
from atwu._manifest import MANIFEST_NAME, damage, write_manifest
from atwu.training.run_key import KEY_NAME, key_differences

STAGING = ".incomplete"
"""Sub-folders of a run: for the checkpoint being written, and for old ones being removed."""

logger = logging.getLogger(__name__)


class Stateful(Protocol):
    """State saved and loaded together with the model."""

    def save(self, folder: str) -> None:
        """Write the state into a checkpoint; called in the main process."""

    def load(self, folder: str) -> None:
        """Load the state from a checkpoint."""


def last_checkpoint(run: str | Path) -> str | None:
    """Return the newest checkpoint in a run's folder, intact or not."""
    found = _by_age(Path(run))
    return str(found[-1]) if found else None


def step_of(checkpoint: str | Path) -> int:
    """Return the optimizer step after which a checkpoint was written."""
    return int(Path(checkpoint).name.rsplit("-", 1)[1])


def publish(staged: Path, run: Path, key: Mapping[str, Any], *, keep: int | None) -> None:
    """Move a complete checkpoint into its run's folder, keeping only the newest `keep` (None: all)."""
    plain_modes(*staged.rglob("*.safetensors"))
    write_json(staged / KEY_NAME, key)
    write_manifest(staged)
    shutil.rmtree(run / staged.name, ignore_errors=True)
    move(staged, run / staged.name)
    for old in _by_age(run)[:-keep] if keep else ():
        _drop(old)
    shutil.rmtree(run / STAGING, ignore_errors=True)


def checkpoint_to_resume(
    asked: str | os.PathLike[str] | bool | None,
    *,
    run: str,
    key: Callable[[], Mapping[str, Any]],
    main_process: bool,
    wait: Callable[[], object],
) -> str | None:
    """Return the checkpoint to resume from, or None to start from the beginning; called in every process.

    Args:
        asked: a checkpoint; or True for the newest intact one of the run, or None if all are damaged.
    """
    if not asked:
        return None
    if isinstance(asked, str | os.PathLike):
        if (wrong := damage(Path(asked))) is not None:
            raise ValueError(f"{asked} is damaged ({wrong}); resume from another checkpoint.")
        return os.fspath(asked)
    if last_checkpoint(run) is None:
        raise ValueError(f"{run} contains no checkpoint to resume from.")
    wait()
    if main_process:
        drop_damaged(run)
    wait()
    if (last := last_checkpoint(run)) is None:
        return None
    named = Path(last) / KEY_NAME
    written, own = read_object(named) if named.exists() else {}, key()
    if written != own:
        raise ValueError(
            f"{last} belongs to another run, which differs in {key_differences(written, own)}; set another "
            f"output_dir, or continue from it anyway: train(resume_from_checkpoint={last!r})."
        )
    return last


def drop_damaged(run: str | Path) -> None:
    """Remove damaged checkpoints newer than the newest intact one, with a warning for each."""
    while (newest := last_checkpoint(run)) is not None and (wrong := damage(Path(newest))) is not None:
        _drop(Path(newest))
        before = last_checkpoint(run)
        then = "the run starts from the beginning" if before is None else f"trying {Path(before).name}"
        logger.warning("warning: %s is damaged (%s); %s", newest, wrong, then)


def _by_age(run: Path) -> list[Path]:
    """Return checkpoints in the order written, which can differ from step order if runs share a folder."""

    def written(checkpoint: Path) -> tuple[int, int]:
        manifest = checkpoint / MANIFEST_NAME
        return (manifest if manifest.exists() else checkpoint).stat().st_mtime_ns, step_of(checkpoint)

    return sorted((path for path in run.glob("checkpoint-*") if path.name[11:].isdecimal()), key=written)


def _drop(checkpoint: Path) -> None:
    """Remove a checkpoint atomically, so that a kill leaves no partial checkpoint."""
    doomed = checkpoint.with_name(STAGING)
    shutil.rmtree(doomed, ignore_errors=True)
    checkpoint.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)
