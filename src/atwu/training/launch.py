"""What every whole run shares: a checked plan, then load, train, and write a finished output folder."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import logging
import shutil
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from atwu._files import versions, write_json
from atwu.data.sources import LoadedRows
from atwu.modeling.fingerprint import model_fingerprint
from atwu.modeling.load import DTYPES, check_model_name, check_vocabulary, load_model, load_tokenizer, weight_bytes
from atwu.modeling.scratch import scratch_config, scratch_model, scratch_shape
from atwu.training.base import TokenTrainer
from atwu.training.card import model_card
from atwu.training.config import TokenTrainingConfig
from atwu.training.output import RECORD_NAME, RECORD_SCHEMA, OutputFolder
from atwu.training.progress import JsonLog
from atwu.training.rows import RowSet, encode_dataset

logger = logging.getLogger(__name__)

Say = Callable[[str], None]

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
        "local_rank",
    ]
)
"""Fields that cannot change the result, so a run may be resumed with other values."""
_SECRET = frozenset({"hub_token"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """Where a model comes from: a folder or Hub name, or a shape to build from nothing."""

    model: str | None = None
    scratch: str | None = None
    """Shape name for a new, randomly initialised model."""
    tokenizer: str | None = None
    """Folder of a tokenizer for a scratch model; without it one is trained on the data."""
    dtype: str = "auto"
    trust_remote_code: bool = False
    revision: str | None = None

    def __post_init__(self) -> None:
        if (self.model is None) == (self.scratch is None):
            raise ValueError("name either a model to start from or a shape to build, not both and not neither.")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, got {self.dtype!r}.")
        if self.dtype == "float16":
            raise ValueError("float16 weights cannot be trained; use --dtype float32 --fp16, or bfloat16.")
        if self.model is not None:
            check_model_name(self.model)
        else:
            scratch_shape(str(self.scratch))


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


def checked_tokenizer(source: ModelSource, folder: OutputFolder, config: TokenTrainingConfig) -> Any:
    """The tokenizer, checked against the model's vocabulary; also checks disk space where the size is known."""
    from transformers import AutoConfig

    remote: dict[str, Any] = {"trust_remote_code": source.trust_remote_code, "revision": source.revision}
    if source.model is None:
        tokenizer = load_tokenizer(str(source.tokenizer))
        check_vocabulary(tokenizer, scratch_config(str(source.scratch)), name=str(source.tokenizer))
        return tokenizer
    tokenizer = load_tokenizer(source.model, **remote)
    check_vocabulary(tokenizer, AutoConfig.from_pretrained(source.model, **remote), name=source.model)
    if size := weight_bytes(source.model):
        # The result, and a checkpoint of weights and two optimizer moments with its successor being written.
        folder.check_space(size if config.save_strategy == "no" else size * 7)
    return tokenizer


def encode_sets(
    rows: Mapping[str, LoadedRows], tokenizer: Any, config: TokenTrainingConfig, say: Say
) -> dict[str, RowSet]:
    encoded = {}
    for name, loaded in rows.items():
        say(f"{name} rows: {len(loaded.rows)} from {loaded.source}")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            encoded[name] = encode_dataset(loaded.rows, tokenizer, what=name, max_length=config.max_length)
        for warning in (*loaded.warnings, *(str(entry.message) for entry in caught)):
            say(f"warning: {warning}")
    return encoded


def _load(source: ModelSource, config: TokenTrainingConfig, say: Say) -> Any:
    if source.model is None:
        return scratch_model(str(source.scratch), seed=config.seed)
    model = load_model(
        source.model, dtype=source.dtype, trust_remote_code=source.trust_remote_code, revision=source.revision
    )
    if next(model.parameters()).dtype == torch.float16:
        raise ValueError(f"{source.model} has float16 weights, which cannot be trained; add --dtype float32.")
    if next(model.parameters()).dtype == torch.bfloat16 and config.learning_rate < 1e-4:
        say(
            f"warning: bfloat16 weights round away many updates at learning rate {config.learning_rate:g}; "
            "--dtype float32 --bf16 keeps them"
        )
    return model


def launch(plan: Plan) -> FinishedRun:
    config, folder, say = plan.config, plan.folder, plan.say
    model = _load(plan.source, config, say)
    settings = _settings(config)
    model_hash = model_fingerprint(model)
    key = {
        "command": plan.command,
        "model": model_hash,
        "tokenizer": hashlib.sha256(plan.tokenizer.backend_tokenizer.to_str().encode()).hexdigest(),
        "data": {name: loaded.fingerprint for name, loaded in plan.rows.items()},
        "config": {name: value for name, value in settings.items() if name not in _NOT_RESULT},
        "processes": config.world_size,
        "device": config.device.type,
        "versions": versions(),
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
    trainer.save_model(str(final), _internal_call=True)
    trainer.accelerator.wait_for_everyone()
    if first:
        record = {
            "schema": RECORD_SCHEMA,
            "command": plan.command,
            "starting_model": {**dataclasses.asdict(plan.source), "fingerprint": model_hash},
            "result_fingerprint": _result_fingerprint(trainer, final),
            "data": {
                name: {"source": loaded.source, "rows": len(loaded.rows), "fingerprint": loaded.fingerprint}
                for name, loaded in plan.rows.items()
            },
            **plan.extra,
            "seed": config.seed,
            "config": settings,
            "versions": versions(),
            "started": begun.isoformat(timespec="seconds"),
            "train_seconds": round(finished.seconds, 3),
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


def _result_fingerprint(trainer: TokenTrainer, saved: Path) -> str:
    """Fingerprint of the result; sharded weights are read back from where they were gathered."""
    sharded = trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled
    return model_fingerprint(load_model(str(saved)) if sharded else trainer.accelerator.unwrap_model(trainer.model))


def _push(folder: Path, config: TokenTrainingConfig) -> None:
    from huggingface_hub import HfApi

    hub = HfApi(token=config.hub_token)
    name = hub.create_repo(config.hub_model_id or folder.name, private=config.hub_private_repo, exist_ok=True).repo_id
    hub.upload_folder(repo_id=name, folder_path=folder, commit_message="Result of atwu", revision=config.hub_revision)


def silent(line: str) -> None:
    """For all processes but the first."""


def _settings(config: TokenTrainingConfig) -> dict[str, Any]:
    """Every field of the config that has a value, as plain JSON, without secrets."""
    known = config.to_dict()
    return {
        field.name: known[field.name]
        for field in dataclasses.fields(config)
        if field.init and field.name not in _SECRET and known.get(field.name) is not None
    }
