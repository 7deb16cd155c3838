"""Second half of a run: train, write model, log, model card and record, and move the finished folder into place."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atwu._disk_errors import explain_full_disk
from atwu.training.checkpoints import last_checkpoint
from atwu.training.config import TokenTrainingConfig
from atwu.training.run_folder import RunFolder
from atwu.training.run_record import push, write_result
from atwu.training.token_trainer import TokenTrainer


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """Result of a finished run."""

    output: Path
    seconds: float
    """Training time of this process; for a resumed run, the last part."""
    steps: int
    resumed_from: int
    """Optimizer step the run was resumed from, 0 for a fresh run."""


def work_in(folder: RunFolder, config: TokenTrainingConfig) -> dict[str, Any]:
    """Redirect the trainer's output to the work folder; returns the configuration as given."""
    settings = config.as_plain()
    config.output_dir = str(folder.work)
    # Only the finished folder is pushed, once; the Trainer would push checkpoints.
    config.push_to_hub = False
    return settings


def train_into(folder: RunFolder, trainer: TokenTrainer, settings: Mapping[str, Any]) -> FinishedRun:
    """Train from the start or from the last checkpoint of the same run, and write the result into `folder.final`.

    Args:
        trainer: before its first step; created from a `ModelSource`, with `folder.log` as its log.

    Raises:
        FileExistsError: the folder contains another unfinished run, or a run in progress.
        DiskFullError: the disk is full; the checkpoints are intact.
        ValueError: no training step was taken.
        NonFiniteLossError: the loss is not finite; the last checkpoint is kept.
    """
    config = trainer.args
    first = config.process_index == 0
    with explain_full_disk(folder.work):
        if first:
            folder.begin(trainer.key)
        config.distributed_state.wait_for_everyone()
        trainer.train(resume_from_checkpoint=last_checkpoint(folder.work) is not None)
        if trainer.state.global_step == 0:
            raise ValueError("no training step was taken, so the model is unchanged; no result was written.")
        trainer.check_finite()
        if first:
            shutil.rmtree(folder.final, ignore_errors=True)
        trainer.accelerator.wait_for_everyone()
        write_result(trainer, folder.final, settings=settings, use_up=True)
        if first:
            folder.finish_training()
    return FinishedRun(
        folder.path, trainer.timing.seconds, trainer.state.global_step, resumed_from=trainer.timing.resumed_from
    )


def publish_run(folder: RunFolder, config: TokenTrainingConfig) -> None:
    """Move a trained result into place and upload it if configured; called in every process."""
    if config.process_index == 0:
        with explain_full_disk(folder.work):
            folder.publish()
        if config.push_to_hub:
            push(folder.path, config)
    config.distributed_state.wait_for_everyone()
