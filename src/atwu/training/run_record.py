"""Files of a finished run: model, record, log and model card; the same from the command line and from Python."""

from __future__ import annotations

import copy
import dataclasses
import datetime
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, cast

from atwu._file_reading import read_object
from atwu._files import plain_modes, write_json, write_text
from atwu._manifest import RECORD_NAME
from atwu.modeling.adapters import adapters_of, merge_adapters
from atwu.modeling.device import machine, peak_memory
from atwu.modeling.fingerprint import model_fingerprint
from atwu.modeling.generate import set_end_ids
from atwu.modeling.load import ADAPTER_CONFIG, ADAPTER_WEIGHTS, add_adapter, load_model
from atwu.training.config import TokenTrainingConfig
from atwu.training.load_to_train import LoadedModel, ModelSource, load_source
from atwu.training.model_card import model_card, public_record
from atwu.training.progress import log_text
from atwu.training.run_folder import LOG_NAME, RECORD_SCHEMA, REQUEST_FOLDER, VERDICT_NAME
from atwu.training.run_key import packages
from atwu.training.training_rows import RowSet


@dataclass(slots=True)
class Timing:
    """Timing of the training in this process."""

    started: datetime.datetime | None = None
    """Time of the first step; None before it."""
    seconds: float = 0.0
    resumed_from: int = 0
    """Optimizer step it resumed from."""


class TrainedRun(Protocol):
    """What the files of a run are written from: its trainer (`TokenTrainer`), after training."""

    command: ClassVar[str]
    args: TokenTrainingConfig
    loaded: LoadedModel
    sets: Mapping[str, RowSet]
    timing: Timing
    processing_class: Any
    state: Any
    model: Any
    accelerator: Any

    @property
    def sharded(self) -> bool:
        """Whether the weights are sharded."""

    def recorded(self) -> dict[str, Any]:
        """Additional entries of `run.json`."""

    def write_weights(self, model: Any, folder: Path) -> None:
        """Write a model (None: skip) and its extra files; called in every process."""


def run_record(trainer: TrainedRun, *, settings: Mapping[str, Any], result_fingerprint: str) -> dict[str, Any]:
    """Return the record of a run after training, as in `run.json`, with its settings as given."""
    config, loaded, timing = trainer.args, trainer.loaded, trainer.timing
    adapted = adapters_of(loaded.model) is not None
    start = _start(loaded.source, loaded.model)
    return {
        "schema": RECORD_SCHEMA,
        "command": trainer.command,
        "original_model": start | {"fingerprint": loaded.fingerprint},
        "result": {
            "kind": "model" if not adapted else "adapter" if config.save_adapter else "merged",
            "lora": None if loaded.lora is None else dataclasses.asdict(loaded.lora),
            "base_model": start["model"] or start["scratch"] if adapted else None,
            "base_fingerprint": loaded.fingerprint if adapted else None,
        },
        "result_fingerprint": result_fingerprint,
        "data": {
            name: {"source": each.source, "rows": len(each.rows), "fingerprint": each.fingerprint}
            for name, each in trainer.sets.items()
        },
        **trainer.recorded(),
        "seed": config.seed,
        "config": dict(settings),
        "versions": packages(config, loaded),
        "machine": machine(config.device),
        "started": None if timing.started is None else timing.started.isoformat(timespec="seconds"),
        "train_seconds": round(timing.seconds, 3),
        "peak_memory_bytes": peak_memory(config.device),
        "steps": trainer.state.global_step,
        "resumed_from_step": timing.resumed_from,
        "processes": config.world_size,
    }


def write_result(trainer: TrainedRun, folder: Path, *, settings: Mapping[str, Any], use_up: bool) -> None:
    """Write the model with tokenizer and scorer, log, model card and, last, the record; called in every process.

    Adapters are merged unless the configuration keeps them separate. Sharded weights are gathered on disk, and the main
    process continues with them.

    Args:
        use_up: merge into the trainer's own model, which loses its adapters, instead of into a copy.
    """
    model = _write_weights(trainer, folder, use_up=use_up)
    if model is None:
        return
    plain_modes(*folder.glob("*.safetensors"))
    record = run_record(trainer, settings=settings, result_fingerprint=model_fingerprint(model))
    write_text(folder / LOG_NAME, log_text(trainer.state))
    write_text(folder / "README.md", model_card(record))
    write_json(folder / RECORD_NAME, record)


def _write_weights(trainer: TrainedRun, folder: Path, *, use_up: bool) -> Any:
    """Write the model files; returns the model in the main process, None in others."""
    config, sharded = trainer.args, trainer.sharded
    own = trainer.accelerator.unwrap_model(trainer.model)
    merge = adapters_of(own) is not None and not config.save_adapter
    model = merge_adapters(own if use_up else copy.deepcopy(own)) if merge and not sharded else own
    trainer.write_weights(model, folder)
    trainer.accelerator.wait_for_everyone()
    if config.process_index != 0:
        return None
    if not sharded:
        return model
    source = trainer.loaded.source
    again = source is not None and adapters_of(own) is not None
    return (
        load_base_with_adapter(cast(ModelSource, source), config, folder, trainer.processing_class, merge=merge)
        if again
        else load_model(str(folder))
    )


def load_base_with_adapter(
    source: ModelSource, config: TokenTrainingConfig, folder: Path, tokenizer: Any, *, merge: bool
) -> Any:
    """Load the base model with the adapter in a folder; if merged, the result replaces the adapter there."""
    model = add_adapter(load_source(source, config, lambda _: None), str(folder), merge=merge)
    if merge:
        set_end_ids(model, tokenizer)
        model.save_pretrained(folder)
        for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS, "README.md"):
            (folder / name).unlink(missing_ok=True)
    return model


def push(folder: Path, config: TokenTrainingConfig, message: str = "Result of atwu") -> Any:
    """Upload a finished folder as `hub_*` say, without checkpoints, its request, and local paths in its record."""
    from huggingface_hub import HfApi

    hub = HfApi(token=config.hub_token)
    name = config.hub_model_id or folder.name
    where: dict[str, Any] = {
        "repo_id": hub.create_repo(name, private=config.hub_private_repo, exist_ok=True).repo_id,
        "commit_message": message,
        "revision": config.hub_revision,
    }
    private = [RECORD_NAME, "checkpoint-*", VERDICT_NAME, f"{REQUEST_FOLDER}/*"]
    hub.upload_folder(folder_path=folder, ignore_patterns=private, **where)
    record = public_record(read_object(folder / RECORD_NAME))
    content = (json.dumps(record, indent=2, ensure_ascii=False) + "\n").encode()
    return hub.upload_file(path_or_fileobj=content, path_in_repo=RECORD_NAME, **where)


def _start(source: ModelSource | None, model: Any) -> dict[str, Any]:
    """Describe the source of the original model; for a model in memory, the name it was loaded by if known."""
    if source is not None:
        return dataclasses.asdict(source)
    unknown: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(ModelSource)}
    base = adapters_of(model)
    name = getattr(model if base is None else base.get_base_model(), "name_or_path", None)
    return unknown | {"model": name or None}
