"""Checkpoints on disk: they appear whole or not at all, and one that was damaged since is never resumed from."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from atwu._files import move, plain_modes, write_json
from atwu._manifest import MANIFEST_NAME, damage, write_manifest
from atwu.training.run_key import KEY_NAME, key_differences

if TYPE_CHECKING:
    from atwu.training.token_trainer import TokenTrainer

STAGING = ".incomplete"
"""In a run's folder: where a checkpoint is written, and where old ones go."""

logger = logging.getLogger(__name__)


class Stateful(Protocol):
    """State beside the model's, saved and loaded with it."""

    def save(self, folder: str) -> None:
        """Write it into a checkpoint, in the first process."""

    def load(self, folder: str) -> None:
        """Read it from one."""


def last_checkpoint(run: str | Path) -> str | None:
    """The checkpoint in a run's folder that was written last, whole or not."""
    found = _by_age(Path(run))
    return str(found[-1]) if found else None


def step_of(checkpoint: str | Path) -> int:
    """Optimizer step that a checkpoint was written after."""
    return int(Path(checkpoint).name.rsplit("-", 1)[1])


def publish(staged: Path, run: Path, key: Mapping[str, Any], *, keep: int | None) -> None:
    """Move a written checkpoint into its run's folder, of which only the newest `keep` stay (None: all)."""
    plain_modes(*staged.rglob("*.safetensors"))
    write_json(staged / KEY_NAME, key)
    write_manifest(staged)
    shutil.rmtree(run / staged.name, ignore_errors=True)
    move(staged, run / staged.name)
    for old in _by_age(run)[:-keep] if keep else ():
        _drop(old)
    shutil.rmtree(run / STAGING, ignore_errors=True)


def to_resume_from(trainer: TokenTrainer, asked: str | os.PathLike[str] | bool | None) -> str | None:
    """The checkpoint that a run goes on from; None to begin anew.

    Args:
        trainer: of the run, before its first step; every process calls this.
        asked: a checkpoint; or True for the newest of the run that is whole, and None if all there are damaged.

    Raises:
        ValueError: the checkpoint is damaged, there is none, or the newest one is another run's.
    """
    if not asked:
        return None
    if isinstance(asked, str | os.PathLike):
        if (wrong := damage(Path(asked))) is not None:
            raise ValueError(f"{asked} is damaged ({wrong}); resume from another checkpoint.")
        return os.fspath(asked)
    run = str(trainer.args.output_dir)
    if last_checkpoint(run) is None:
        raise ValueError(f"{run} holds no checkpoint to resume from.")
    trainer.accelerator.wait_for_everyone()
    if trainer.args.should_save:
        drop_damaged(run)
    trainer.accelerator.wait_for_everyone()
    if (last := last_checkpoint(run)) is None:
        return None
    named = Path(last) / KEY_NAME
    key: dict[str, Any] = json.loads(named.read_text(encoding="utf-8")) if named.exists() else {}
    if key != trainer.key:
        raise ValueError(
            f"{last} is of another run, which differs in {key_differences(key, trainer.key)}; give this one an output_dir of "
            "its own, or resume from a checkpoint by its name."
        )
    return last


def drop_damaged(run: str | Path) -> None:
    """Remove damaged checkpoints that are newer than the newest whole one, naming each in a warning."""
    while (newest := last_checkpoint(run)) is not None and (wrong := damage(Path(newest))) is not None:
        _drop(Path(newest))
        before = last_checkpoint(run)
        then = "the run begins anew" if before is None else f"trying {Path(before).name}"
        logger.warning("warning: %s is damaged (%s); %s", newest, wrong, then)


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
