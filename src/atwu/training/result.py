"""Saving what a run trained: the model, the model with its adapters merged in, or the adapters alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from atwu.modeling.adapters import adapters_of, merged
from atwu.modeling.fingerprint import model_fingerprint
from atwu.modeling.load import ADAPTER_CONFIG, ADAPTER_WEIGHTS, add_adapter, load_model
from atwu.training.base import TokenTrainer
from atwu.training.config import TokenTrainingConfig
from atwu.training.source import ModelSource, load_source


def save_result(trainer: TokenTrainer, source: ModelSource, folder: Path) -> str:
    """Write the result with its tokenizer and scorer; every process calls this once, after training.

    Merging uses up the trainer's model. Sharded weights are gathered on disk and go on from there in the first process.

    Args:
        trainer: after training.
        source: the model it started from.
        folder: for the result.

    Returns:
        Fingerprint of the result, in the first process.
    """
    config, sharded = trainer.args, trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled
    model = trainer.accelerator.unwrap_model(trainer.model)
    adapted = adapters_of(model) is not None
    merge = adapted and not config.save_adapter
    if merge and not sharded:
        trainer.model = model = merged(model)
    trainer.save_model(str(folder), _internal_call=True)
    trainer.accelerator.wait_for_everyone()
    if config.process_index != 0:
        return ""
    if sharded:
        model = read_back(source, config, folder, merge=merge) if adapted else load_model(str(folder))
    return model_fingerprint(model)


def read_back(source: ModelSource, config: TokenTrainingConfig, folder: Path, *, merge: bool) -> Any:
    """The base model with the adapter that lies in a folder; a merged one replaces the adapter there."""
    model = add_adapter(load_source(source, config, lambda _: None), str(folder), merge=merge)
    if merge:
        model.save_pretrained(folder)
        for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS, "README.md"):
            (folder / name).unlink(missing_ok=True)
    return model
