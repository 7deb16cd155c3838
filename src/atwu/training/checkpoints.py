"""Checkpoints on disk: they appear whole or not at all, and one that was damaged since is never resumed from."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from atwu._files import move
from atwu._manifest import MANIFEST_NAME, damage, write_manifest

STAGING = ".incomplete"
"""In a run's folder: where a checkpoint is written, and where old ones go."""

logger = logging.getLogger(__name__)


def last_checkpoint(run: str | Path) -> str | None:
    """The checkpoint in a run's folder that was written last, whole or not."""
    found = _by_age(Path(run))
    return str(found[-1]) if found else None


def step_of(checkpoint: str | Path) -> int:
    """Optimizer step that a checkpoint was written after."""
    return int(Path(checkpoint).name.rsplit("-", 1)[1])


def publish(staged: Path, run: Path, *, keep: int | None) -> None:
    """Move a written checkpoint into its run's folder, of which only the newest `keep` stay (None: all)."""
    write_manifest(staged)
    shutil.rmtree(run / staged.name, ignore_errors=True)
    move(staged, run / staged.name)
    for old in _by_age(run)[:-keep] if keep else ():
        _drop(old)
    shutil.rmtree(run / STAGING, ignore_errors=True)


def drop_damaged(run: str | Path) -> None:
    """Remove damaged checkpoints that are newer than the newest whole one, naming each in a warning."""
    while (newest := last_checkpoint(run)) is not None and (wrong := damage(Path(newest))) is not None:
        _drop(Path(newest))
        before = last_checkpoint(run)
        then = "the run begins anew" if before is None else f"trying {Path(before).name}"
        logger.warning("warning: %s is damaged (%s); %s", newest, wrong, then)


def check_whole(checkpoint: str | Path) -> None:
    """Check a checkpoint that was asked for by name.

    Raises:
        ValueError: it is damaged; says how.
    """
    if (wrong := damage(Path(checkpoint))) is not None:
        raise ValueError(f"{checkpoint} is damaged ({wrong}); resume from another checkpoint.")


def _by_age(run: Path) -> list[Path]:
    """Checkpoints in the order they were written, which is not that of their steps where runs share a folder."""

    def written(checkpoint: Path) -> tuple[int, int]:
        manifest = checkpoint / MANIFEST_NAME
        return (manifest if manifest.exists() else checkpoint).stat().st_mtime_ns, step_of(checkpoint)

    return sorted((path for path in run.glob("checkpoint-*") if path.name[11:].isdecimal()), key=written)


def _drop(checkpoint: Path) -> None:
    """Remove a checkpoint in one step, so that a kill leaves no part of it under its name."""
    doomed = checkpoint.with_name(STAGING)
    shutil.rmtree(doomed, ignore_errors=True)
    checkpoint.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)
