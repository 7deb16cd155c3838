"""Whole runs from names and paths: check everything, load, train, and write a finished output folder."""

from __future__ import annotations

import dataclasses
import datetime
import importlib.metadata
import logging
import shutil
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atwu.data.sources import LoadedRows, load_rows
from atwu.modeling.fingerprint import model_fingerprint
from atwu.modeling.load import DTYPES, check_model_name, check_vocabulary, load_model, load_tokenizer, weight_bytes
from atwu.modeling.scratch import scratch_model, scratch_shape, train_tokenizer
from atwu.training.base import TokenTrainer
from atwu.training.card import model_card
from atwu.training.config import FinetuneConfig, TokenTrainingConfig, UnlearnConfig
from atwu.training.finetune import FinetuneTrainer
from atwu.training.output import OutputFolder, write_json
from atwu.training.progress import JsonLog
from atwu.training.trainer import UnlearnTrainer

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
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, got {self.dtype!r}.")


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """What a finished run left."""

    output: Path
    seconds: float
    """Time spent training, over all resumed parts of this process."""
    steps: int
    resumed_from: int
    """Optimizer step the run was resumed from, 0 for a fresh run."""


def run_unlearn(
    source: ModelSource,
    config: UnlearnConfig,
    *,
    forget: str,
    retain: str | None,
    output: str | Path,
    overwrite: bool = False,
    say: Callable[[str], None] = logger.info,
) -> FinishedRun:
    """Unlearn `forget` from a model and write the result to `output`.

    Every check that needs no weights happens before any are loaded.

    Args:
        source: the starting model.
        config: the run's settings.
        forget: source of the rows to remove (`load_rows`).
        retain: source of the rows to keep.
        output: folder to create.
        overwrite: replace what is there.
        say: receives one line of plain text per stage.

    Raises:
        ValueError, FileNotFoundError, FileExistsError, OSError: see the message; nothing was changed.
    """
    folder = OutputFolder(output, overwrite=overwrite)
    recipe = config.recipe()
    assert source.model is not None
    check_model_name(source.model)
    if recipe.needs_retain and retain is None:
        raise ValueError(f"method {recipe.name!r} needs retain rows: pass --retain, or --retain-loss none.")
    rows = {"forget": load_rows(forget)} | ({"retain": load_rows(retain)} if retain and recipe.needs_retain else {})
    unlabelled = sum(row.forget_spans is None for row in rows["forget"].rows)
    if recipe.weighter.needs_labels and unlabelled:
        raise ValueError(
            f"method {recipe.name!r} needs the column forget_spans; {unlabelled} of {len(rows['forget'].rows)} rows of "
            f"{forget} have none."
        )
    tokenizer, model = _load(source, folder, config)

    def trainer(model: Any, callbacks: list[Any]) -> TokenTrainer:
        return UnlearnTrainer(
            model,
            config,
            forget_dataset=rows["forget"].rows,
            retain_dataset=rows["retain"].rows if "retain" in rows else None,
            processing_class=tokenizer,
            callbacks=callbacks,
        )

    extra = {"method": recipe.name, "recipe": dataclasses.asdict(recipe)}
    return _run("unlearn", source, config, folder, rows, model, trainer, extra, say)


def run_finetune(
    source: ModelSource,
    config: FinetuneConfig,
    *,
    data: str,
    output: str | Path,
    overwrite: bool = False,
    corpus: Callable[[], list[str]] | None = None,
    say: Callable[[str], None] = logger.info,
) -> FinishedRun:
    """Train a model on the answers of `data` and write the result to `output`.

    Args:
        source: a model to continue from, or a shape to build.
        config: the run's settings.
        data: source of the training rows (`load_rows`).
        output: folder to create.
        overwrite: replace what is there.
        corpus: texts for a new tokenizer; by default the questions and answers of `data`.
        say: receives one line of plain text per stage.
    """
    folder = OutputFolder(output, overwrite=overwrite)
    if source.model is not None:
        check_model_name(source.model)
    elif source.scratch is not None:
        scratch_shape(source.scratch)
    rows = {"training": load_rows(data)}
    if source.model is not None:
        tokenizer, model = _load(source, folder, config)
    else:
        texts = corpus() if corpus else [text for row in rows["training"].rows for text in (row.question, row.answer)]
        tokenizer, model = _build(source, texts, seed=config.seed)

    def trainer(model: Any, callbacks: list[Any]) -> TokenTrainer:
        return FinetuneTrainer(
            model, config, train_dataset=rows["training"].rows, processing_class=tokenizer, callbacks=callbacks
        )

    return _run("finetune", source, config, folder, rows, model, trainer, {}, say)


def _load(source: ModelSource, folder: OutputFolder, config: TokenTrainingConfig) -> tuple[Any, Any]:
    from transformers import AutoConfig

    assert source.model is not None
    remote = {"trust_remote_code": source.trust_remote_code, "revision": source.revision}
    tokenizer = load_tokenizer(source.model, **remote)  # type: ignore[arg-type]
    check_vocabulary(tokenizer, AutoConfig.from_pretrained(source.model, **remote), name=source.model)
    if size := weight_bytes(source.model):
        # The result, and a checkpoint of weights and two optimizer moments with its successor being written.
        folder.check_space(size if config.save_strategy == "no" else size * 7)
    return tokenizer, load_model(source.model, dtype=source.dtype, **remote)  # type: ignore[arg-type]


def _build(source: ModelSource, texts: list[str], *, seed: int) -> tuple[Any, Any]:
    assert source.scratch is not None
    shape = scratch_shape(source.scratch)
    tokenizer = (
        load_tokenizer(source.tokenizer) if source.tokenizer else train_tokenizer(texts, vocab_size=shape.vocab_size)
    )
    model = scratch_model(shape, seed=seed)
    check_vocabulary(tokenizer, model.config, name=source.tokenizer or source.scratch)
    return tokenizer, model


def _run(
    command: str,
    source: ModelSource,
    config: TokenTrainingConfig,
    folder: OutputFolder,
    rows: Mapping[str, LoadedRows],
    model: Any,
    make_trainer: Callable[[Any, list[Any]], TokenTrainer],
    extra: Mapping[str, Any],
    say: Callable[[str], None],
) -> FinishedRun:
    if config.process_index != 0:
        say = _silent
    for name, loaded in rows.items():
        say(f"{name} rows: {len(loaded.rows)} from {loaded.source}")
        for warning in loaded.warnings:
            say(f"warning: {warning}")
    settings = _settings(config)
    model_hash = model_fingerprint(model)
    key = {
        "command": command,
        "model": model_hash,
        "data": {name: loaded.fingerprint for name, loaded in rows.items()},
        "config": {name: value for name, value in settings.items() if name not in _NOT_RESULT},
    }
    first = config.process_index == 0
    checkpoint = folder.begin(key) if first else None
    config.distributed_state.wait_for_everyone()
    if not first:
        checkpoint = folder.last_checkpoint()
    config.output_dir = str(folder.work)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        trainer = make_trainer(model, [JsonLog(folder.work / "log.jsonl")])
    for message in caught:
        say(f"warning: {message.message}")
    resumed = int(checkpoint.rsplit("-", 1)[1]) if checkpoint else 0
    if checkpoint:
        say(f"resuming the unfinished run at step {resumed}")
    begun = datetime.datetime.now(datetime.UTC)
    start = time.perf_counter()
    trainer.train(resume_from_checkpoint=checkpoint)
    seconds = time.perf_counter() - start
    finished = FinishedRun(folder.path, seconds, trainer.state.global_step, resumed)
    final = folder.work / "final"
    if trainer.args.should_save:
        shutil.rmtree(final, ignore_errors=True)
    trainer.accelerator.wait_for_everyone()
    trainer.save_model(str(final), _internal_call=True)
    trainer.accelerator.wait_for_everyone()
    if trainer.args.should_save:
        record = {
            "schema": "atwu.run/1",
            "command": command,
            "starting_model": {**dataclasses.asdict(source), "fingerprint": model_hash},
            "result_fingerprint": model_fingerprint(trainer.accelerator.unwrap_model(trainer.model)),
            "data": {
                name: {"source": loaded.source, "rows": len(loaded.rows), "fingerprint": loaded.fingerprint}
                for name, loaded in rows.items()
            },
            **extra,
            "seed": config.seed,
            "config": settings,
            "versions": versions(),
            "started": begun.isoformat(timespec="seconds"),
            "train_seconds": round(seconds, 3),
            "steps": finished.steps,
            "resumed_from_step": resumed,
            "processes": trainer.args.world_size,
        }
        shutil.copyfile(folder.work / "log.jsonl", final / "log.jsonl")
        (final / "README.md").write_text(model_card(record), encoding="utf-8")
        write_json(final / "run.json", record)
        folder.publish(final)
        if config.push_to_hub:
            trainer.push_to_hub()
    return finished


def _silent(line: str) -> None:
    """For all processes but the first."""


def _settings(config: TokenTrainingConfig) -> dict[str, Any]:
    """Every field of the config that has a value, as plain JSON, without secrets."""
    known = config.to_dict()
    return {
        field.name: known[field.name]
        for field in dataclasses.fields(config)
        if field.init and field.name not in _SECRET and known.get(field.name) is not None
    }


def versions() -> dict[str, str]:
    """Versions of the packages that decide the numbers."""
    return {
        name: importlib.metadata.version(name) for name in ("atwu", "torch", "transformers", "accelerate", "tokenizers")
    }
