"""What every whole run shares: a checked plan, then load, train, and write a finished output folder."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import importlib.metadata
import json
import logging
import shutil
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atwu._files import versions, write_json
from atwu.benchmarks.sources import LoadedRows
from atwu.modeling.device import peak_memory
from atwu.modeling.fingerprint import model_fingerprint
from atwu.training.base import TokenTrainer
from atwu.training.card import model_card, public_record
from atwu.training.config import TokenTrainingConfig
from atwu.training.model import ModelSource, Say, check_mergeable, load_source, lora_of, save_result, with_adapters
from atwu.training.output import RECORD_NAME, RECORD_SCHEMA, OutputFolder
from atwu.training.progress import JsonLog
from atwu.training.rows import RowSet, encode_dataset

__all__ = ["FinishedRun", "ModelSource", "Plan", "Say", "encode_sets", "launch", "silent"]

logger = logging.getLogger(__name__)

_NOT_RESULT = frozenset(
    [
        "output_dir",
        "run_name",
        "disable_tqdm",
        "report_to",
        "logging_steps",
        "logging_strategy",
        "logging_first_step",
        "log_level",
        "save_strategy",
        "save_steps",
        "save_total_limit",
        "push_to_hub",
        "hub_model_id",
        "hub_strategy",
        "hub_private_repo",
        "hub_always_push",
        "hub_revision",
        "dataloader_num_workers",
        "dataloader_pin_memory",
        "dataloader_persistent_workers",
        "dataloader_prefetch_factor",
        "resume_from_checkpoint",
        # What lies there counts, by its digest.
        "cache_dir",
        "forget_words",
        "scorer_from",
        "auxiliary_forget",
        "auxiliary_retain",
        "local_rank",
    ]
)
"""Fields that cannot change the result, so a run may be resumed with other values."""


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """What a finished run left."""

    output: Path
    seconds: float
    """Training time of this process, which is the last part of a resumed run."""
    steps: int
    resumed_from: int
    """Optimizer step the run was resumed from, 0 for a fresh run."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A checked run, before any weights are loaded."""

    command: str
    source: ModelSource
    config: TokenTrainingConfig
    folder: OutputFolder
    rows: Mapping[str, LoadedRows]
    tokenizer: Any
    trainer: Callable[[Any, list[Any], str], TokenTrainer]
    extra: Mapping[str, Any]
    say: Say
    inputs: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Digests of what the run reads besides model and rows."""


def encode_sets(
    rows: Mapping[str, LoadedRows], tokenizer: Any, config: TokenTrainingConfig, say: Say
) -> dict[str, RowSet]:
    encoded = {}
    for name, loaded in rows.items():
        say(f"{name} rows: {len(loaded.rows)} from {loaded.source}")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            encoded[name] = encode_dataset(
                loaded.rows, tokenizer, what=name, max_length=config.max_length, system=config.system
            )
        for warning in (*loaded.warnings, *(str(entry.message) for entry in caught)):
            say(f"warning: {warning}")
    return encoded


def launch(plan: Plan) -> FinishedRun:
    config, folder, say = plan.config, plan.folder, plan.say
    model = load_source(plan.source, config, say)
    settings = config.as_plain()
    model_hash = model_fingerprint(model)
    lora = lora_of(config, model)
    packages = versions() | _versions_of(*(["peft"] if lora else []), *(["bitsandbytes"] if config.quantize else []))
    if lora is not None:
        model = with_adapters(model, config)
        trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
        say(f"training adapters of rank {lora.r}: {trained:,} parameters")
        if not config.save_adapter:
            check_mergeable(model)
    key = {
        "command": plan.command,
        "model": model_hash,
        "tokenizer": hashlib.sha256(plan.tokenizer.backend_tokenizer.to_str().encode()).hexdigest(),
        "data": {name: loaded.fingerprint for name, loaded in plan.rows.items()},
        "inputs": plan.inputs,
        "config": {name: value for name, value in settings.items() if name not in _NOT_RESULT},
        "processes": config.world_size,
        "device": config.device.type,
        "versions": packages,
    }
    first = config.process_index == 0
    checkpoint = folder.begin(key) if first else None
    config.distributed_state.wait_for_everyone()
    if not first:
        checkpoint = folder.last_checkpoint()
    config.output_dir = str(folder.work)
    # What is pushed is the finished folder, once; the Trainer would push checkpoints.
    push, config.push_to_hub = config.push_to_hub, False
    trainer = plan.trainer(model, [JsonLog(folder.work / "log.jsonl")], model_hash)
    resumed = int(checkpoint.rsplit("-", 1)[1]) if checkpoint else 0
    if checkpoint:
        say(f"resuming the unfinished run at step {resumed}")
    begun = datetime.datetime.now(datetime.UTC)
    start = time.perf_counter()
    trainer.train(resume_from_checkpoint=checkpoint)
    finished = FinishedRun(folder.path, time.perf_counter() - start, trainer.state.global_step, resumed)
    trainer.check_finite()
    final = folder.work / "final"
    if first:
        shutil.rmtree(final, ignore_errors=True)
    trainer.accelerator.wait_for_everyone()
    result_hash = save_result(trainer, plan.source, final)
    if first:
        record = {
            "schema": RECORD_SCHEMA,
            "command": plan.command,
            "starting_model": {**dataclasses.asdict(plan.source), "fingerprint": model_hash},
            "result": {
                "kind": "model" if lora is None else "adapter" if config.save_adapter else "merged",
                "lora": None if lora is None else dataclasses.asdict(lora),
                "base_model": None if lora is None else plan.source.model or plan.source.scratch,
                "base_fingerprint": None if lora is None else model_hash,
            },
            "result_fingerprint": result_hash,
            "data": {
                name: {"source": loaded.source, "rows": len(loaded.rows), "fingerprint": loaded.fingerprint}
                for name, loaded in plan.rows.items()
            },
            **plan.extra,
            "seed": config.seed,
            "config": settings,
            "versions": packages,
            "started": begun.isoformat(timespec="seconds"),
            "train_seconds": round(finished.seconds, 3),
            "peak_memory_bytes": peak_memory(config.device),
            "steps": finished.steps,
            "resumed_from_step": resumed,
            "processes": config.world_size,
        }
        shutil.copyfile(folder.work / "log.jsonl", final / "log.jsonl")
        (final / "README.md").write_text(model_card(record), encoding="utf-8")
        write_json(final / RECORD_NAME, record)
        folder.publish(final)
        if push:
            _push(folder.path, config)
    config.distributed_state.wait_for_everyone()
    return finished


def _versions_of(*names: str) -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in names}


def _push(folder: Path, config: TokenTrainingConfig) -> None:
    from huggingface_hub import HfApi

    hub = HfApi(token=config.hub_token)
    name = hub.create_repo(config.hub_model_id or folder.name, private=config.hub_private_repo, exist_ok=True).repo_id
    message, revision = "Result of atwu", config.hub_revision
    hub.upload_folder(
        repo_id=name, folder_path=folder, ignore_patterns=[RECORD_NAME], commit_message=message, revision=revision
    )
    record = public_record(json.loads((folder / RECORD_NAME).read_text(encoding="utf-8")))
    content = (json.dumps(record, indent=2, ensure_ascii=False) + "\n").encode()
    hub.upload_file(
        repo_id=name, path_or_fileobj=content, path_in_repo=RECORD_NAME, commit_message=message, revision=revision
    )


def silent(line: str) -> None:
    """For all processes but the first."""
