"""What a trained folder holds: the result, its record, log and model card. Command and Python leave the same."""

from __future__ import annotations

import copy
import dataclasses
import datetime
import hashlib
import importlib.metadata
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from atwu._files import plain_modes, versions, write_json, write_text
from atwu._manifest import RECORD_NAME
from atwu.modeling.adapters import adapters_of, merged
from atwu.modeling.device import machine, peak_memory
from atwu.modeling.fingerprint import model_fingerprint
from atwu.modeling.load import ADAPTER_CONFIG, ADAPTER_WEIGHTS, add_adapter, load_model
from atwu.training.card import model_card, public_record
from atwu.training.model import ModelSource, load_source
from atwu.training.output import LOG_NAME, RECORD_SCHEMA

if TYPE_CHECKING:
    from atwu.training.base import TokenTrainer
    from atwu.training.config import TokenTrainingConfig


NOT_RESULT = frozenset(
    [
        *("output_dir", "run_name", "resume_from_checkpoint", "local_rank"),
        *("disable_tqdm", "report_to", "log_level", "logging_steps", "logging_strategy", "logging_first_step"),
        *("save_strategy", "save_steps", "save_total_limit"),
        *("push_to_hub", "hub_model_id", "hub_private_repo", "hub_revision"),
        *("dataloader_num_workers", "dataloader_pin_memory"),
        *("dataloader_persistent_workers", "dataloader_prefetch_factor"),
        # What lies there counts, by its digest.
        *("cache_dir", "forget_words", "scorer_from", "auxiliary_forget", "auxiliary_retain"),
    ]
)
"""Fields that cannot change the result, so a run may be resumed with other values."""
_PARTS_OF_A_STEP = frozenset(["per_device_train_batch_size", "gradient_accumulation_steps"])
"""These and the number of processes make the rows of a step, which count; how they are parted changes rounding alone."""


@dataclass(slots=True)
class Timing:
    """How the training of this process went."""

    started: datetime.datetime | None = None
    """None before the first step."""
    seconds: float = 0.0
    resumed_from: int = 0
    """Optimizer step it went on from."""


def packages(trainer: TokenTrainer) -> dict[str, str]:
    """Versions of the packages that decide a run's numbers."""
    further = ["peft"] * (trainer.loaded.lora is not None) + ["bitsandbytes"] * bool(trainer.args.quantize)
    return versions() | {name: importlib.metadata.version(name) for name in further}


def run_key(trainer: TokenTrainer) -> dict[str, Any]:
    """What tells one run from another: only a run of the same key goes on from a checkpoint by itself."""
    config, tokenizer = trainer.args, cast(Any, trainer.processing_class)
    plain = None if tokenizer is None else tokenizer.backend_tokenizer.to_str()
    key = {
        "command": trainer.command,
        "model": trainer.loaded.fingerprint,
        "tokenizer": None if plain is None else hashlib.sha256(plain.encode()).hexdigest(),
        "data": {name: each.fingerprint for name, each in trainer.sets.items()},
        "inputs": trainer.inputs(),
        "config": {
            name: value for name, value in config.as_plain().items() if name not in NOT_RESULT | _PARTS_OF_A_STEP
        },
        "rows_per_step": config.rows_per_step,
        "device": config.device.type,
        "versions": packages(trainer),
    }
    plain_key: dict[str, Any] = json.loads(json.dumps(key, default=str))
    return plain_key


def run_record(trainer: TokenTrainer, *, settings: Mapping[str, Any], result_fingerprint: str) -> dict[str, Any]:
    """Everything about a run after training, as `run.json` has it, with its settings as they were given."""
    config, loaded, timing = trainer.args, trainer.loaded, trainer.timing
    adapted = adapters_of(loaded.model) is not None
    start = _start(loaded.source, loaded.model)
    return {
        "schema": RECORD_SCHEMA,
        "command": trainer.command,
        "starting_model": start | {"fingerprint": loaded.fingerprint},
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
        "versions": packages(trainer),
        "machine": machine(config.device),
        "started": None if timing.started is None else timing.started.isoformat(timespec="seconds"),
        "train_seconds": round(timing.seconds, 3),
        "peak_memory_bytes": peak_memory(config.device),
        "steps": trainer.state.global_step,
        "resumed_from_step": timing.resumed_from,
        "processes": config.world_size,
    }


def write_about(folder: Path, record: Mapping[str, Any], log: str) -> None:
    """Write log, card and record into the folder of a result, the record last."""
    plain_modes(*folder.glob("*.safetensors"))
    write_text(folder / LOG_NAME, log)
    write_text(folder / "README.md", model_card(record))
    write_json(folder / RECORD_NAME, record)


def save_result(trainer: TokenTrainer, folder: Path, *, use_up: bool) -> str:
    """Write the result with its tokenizer and scorer; every process calls this once, after training.

    Adapters are merged unless the configuration keeps them apart. Sharded weights are gathered on disk and go on from there
    in the first process.

    Args:
        trainer: after training.
        folder: for the result.
        use_up: merge into the trainer's own model, which has no adapters afterwards, instead of into a copy.

    Returns:
        Fingerprint of the result, in the first process.

    Raises:
        ValueError: adapters that cannot be merged.
    """
    config, sharded = trainer.args, trainer.sharded
    own = trainer.accelerator.unwrap_model(trainer.model)
    merge = adapters_of(own) is not None and not config.save_adapter
    model = merged(own if use_up else copy.deepcopy(own)) if merge and not sharded else own
    trainer.write_weights(model, folder)
    trainer.accelerator.wait_for_everyone()
    if config.process_index != 0:
        return ""
    if sharded:
        source = trainer.loaded.source
        again = source is not None and adapters_of(own) is not None
        model = read_back(cast(ModelSource, source), config, folder, merge=merge) if again else load_model(str(folder))
    return model_fingerprint(model)


def read_back(source: ModelSource, config: TokenTrainingConfig, folder: Path, *, merge: bool) -> Any:
    """The base model with the adapter that lies in a folder; a merged one replaces the adapter there."""
    model = add_adapter(load_source(source, config, lambda _: None), str(folder), merge=merge)
    if merge:
        model.save_pretrained(folder)
        for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS, "README.md"):
            (folder / name).unlink(missing_ok=True)
    return model


def push(folder: Path, config: TokenTrainingConfig, message: str = "Result of atwu") -> Any:
    """Upload a finished folder to where `hub_*` say, without checkpoints; its record without what belongs to this machine."""
    from huggingface_hub import HfApi

    hub = HfApi(token=config.hub_token)
    name = config.hub_model_id or folder.name
    where: dict[str, Any] = {
        "repo_id": hub.create_repo(name, private=config.hub_private_repo, exist_ok=True).repo_id,
        "commit_message": message,
        "revision": config.hub_revision,
    }
    hub.upload_folder(folder_path=folder, ignore_patterns=[RECORD_NAME, "checkpoint-*"], **where)
    record = public_record(json.loads((folder / RECORD_NAME).read_text(encoding="utf-8")))
    content = (json.dumps(record, indent=2, ensure_ascii=False) + "\n").encode()
    return hub.upload_file(path_or_fileobj=content, path_in_repo=RECORD_NAME, **where)


def _start(source: ModelSource | None, model: Any) -> dict[str, Any]:
    """Where the starting model comes from; of a model that was given as it is, the name it was read by, if it has one."""
    if source is not None:
        return dataclasses.asdict(source)
    unknown: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(ModelSource)}
    base = adapters_of(model)
    name = getattr(model if base is None else base.get_base_model(), "name_or_path", None)
    return unknown | {"model": name or None}
