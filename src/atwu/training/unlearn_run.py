"""Complete runs of unlearning and of fine-tuning: checks, rows, model, trainer, training, and the output folder."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers.trainer_callback import TrainerCallback

from atwu._cache import cache_folder, run_key, short_hash, writable_folder
from atwu._file_reading import read_object
from atwu._files import explain_full_disk, versions
from atwu._manifest import MANIFEST_NAME, RECORD_NAME, is_intact, write_manifest
from atwu.benchmarks.base import LoadedRows
from atwu.benchmarks.sources import files_of, load_rows
from atwu.methods.component import RowsName
from atwu.modeling.load import (
    check_model_name,
    is_adapter,
    load_model,
    load_tokenizer,
    model_fingerprint,
    stored_weights_fingerprint,
)
from atwu.modeling.scratch import scratch_shape, train_tokenizer
from atwu.modeling.tokenizer_file import template_text
from atwu.training.checkpoints import last_checkpoint
from atwu.training.config import FinetuneConfig, TokenTrainingConfig, UnlearnConfig
from atwu.training.load_to_train import ModelSource, check_training, load_checked_tokenizer, load_to_train, space_needed
from atwu.training.method_trainer import MethodTrainer
from atwu.training.progress import JsonLog, Say, logged, silent
from atwu.training.row_sets import RowSet, encode_dataset, report_rows
from atwu.training.run_folder import RunFolder
from atwu.training.saving_trainer import push
from atwu.training.scorer_training import scorer_of
from atwu.training.token_trainer import FinetuneTrainer, TokenTrainer
from atwu.training.training_rows import unlearning_rows

__all__ = ["FinishedRun", "ModelSource", "run_finetune", "run_unlearn"]

AUXILIARY_EPOCHS = 5
"""Epochs of an auxiliary model: those of fine-tuning by default."""


@dataclass(frozen=True, slots=True)
class FinishedRun:
    output: Path
    seconds: float
    """Training time of this process; for a resumed run, the last part."""
    steps: int
    resumed_from: int
    """Optimizer step the run was resumed from, 0 for a fresh run."""


def run_finetune(
    source: ModelSource,
    config: FinetuneConfig,
    *,
    data: str | LoadedRows,
    output: str | Path,
    overwrite: bool = False,
    corpus: Callable[[], list[str]] | None = None,
    say: Say = logged,
) -> FinishedRun:
    """Fine-tune a model on the answers of `data` and write the result to `output`.

    Args:
        source: a model to continue from, or an architecture to train from scratch.
        data: the training rows, or their source (`load_rows`).
        corpus: texts for training a new tokenizer; by default the questions and answers of `data`.
    """
    # The trainer gets an output folder of its own and pushes nothing (`redirect_output`).
    as_given, config = config, copy.copy(config)
    if config.process_index != 0:
        say = silent
    folder = RunFolder(output, overwrite=overwrite, inputs=source.inputs() | rows_read({"data": data}))
    adapter_bytes = check_training(source, config)
    rows = load_rows(data) if isinstance(data, str) else data
    if source.model is None and source.tokenizer is None:
        if corpus is None:
            texts = [text for row in rows.rows for text in (row.question, row.answer)]
        else:
            texts = corpus()
        tokenizer = train_tokenizer(texts, vocab_size=scratch_shape(str(source.scratch)).vocab_size)
    else:
        tokenizer = load_checked_tokenizer(source)
    folder.check_space(space_needed(source.weight_bytes(), config, adapter_bytes))
    encoded = encode_dataset(rows, tokenizer, what="training", max_length=config.max_length, system=config.system)
    report_rows({"training": encoded}, say)
    settings = redirect_output(folder, config)
    trainer = FinetuneTrainer(
        load_to_train(source, config, say),
        config,
        train_dataset=encoded,
        processing_class=tokenizer,
        callbacks=[JsonLog(folder.log)],
        say=say,
    )
    finished = train_into(folder, trainer, settings)
    publish_run(folder, as_given)
    return finished


def run_unlearn(
    source: ModelSource,
    config: UnlearnConfig,
    *,
    forget: str | LoadedRows,
    retain: str | LoadedRows | None,
    output: str | Path,
    overwrite: bool = False,
    watch: Callable[[MethodTrainer], Sequence[TrainerCallback]] | None = None,
    say: Say = logged,
) -> FinishedRun:
    """Unlearn `forget` from a model and write the result to `output`; the arguments are those of `train_run`."""
    inputs = inputs_of_unlearning(source, config, {"forget rows": forget, "retain rows": retain})
    folder = RunFolder(output, overwrite=overwrite, inputs=inputs)
    finished = train_run(source, config, folder, forget=forget, retain=retain, watch=watch, say=say)
    publish_run(folder, config)
    return finished


def inputs_of_unlearning(
    source: ModelSource, config: UnlearnConfig, rows: Mapping[str, str | LoadedRows | None]
) -> dict[str, str | Path | None]:
    """Return what an unlearning run reads, as for `check_inputs_kept`."""
    options = config.component_options
    named = {name: options.get(name) for name in ("scorer_from", "auxiliary_forget", "auxiliary_retain")}
    more = {name: getattr(config, name) for name in ("further_forget", "further_retain")}
    return source.inputs() | named | {"forget_words": config.forget_words} | rows_read({**rows, **more})


def rows_read(sources: Mapping[str, str | LoadedRows | None]) -> dict[str, str | Path | None]:
    """Return the files that sets of rows are in, by what they are."""
    files: dict[str, str | Path | None] = {}
    for what, source in sources.items():
        name = source.source if isinstance(source, LoadedRows) else source
        if not name:
            continue
        for number, path in enumerate(files_of(name), start=1):
            name_of_file = what
            if number > 1:
                name_of_file = f"{what} ({number})"
            files[name_of_file] = path
    return files


def train_run(
    source: ModelSource,
    config: UnlearnConfig,
    folder: RunFolder,
    *,
    forget: str | LoadedRows,
    retain: str | LoadedRows | None,
    model: Any = None,
    watch: Callable[[MethodTrainer], Sequence[TrainerCallback]] | None = None,
    say: Say = logged,
) -> FinishedRun:
    """Unlearn `forget` from a model and write the result into `folder.final`, to be published.

    Everything that needs no weights, including encoding, is checked before weights are loaded and files are written.

    Args:
        model: the original model, if it is in memory; its weights are trained in place.
        watch: callbacks of the run's trainer.
    """
    # Below it gets another output folder, and perhaps auxiliary models; the one that was given stays as it is.
    config = copy.copy(config)
    if config.process_index != 0:
        say = silent
    recipe = config.recipe()
    if config.forget_leaks and watch is None:
        raise ValueError("forget_leaks needs the checks of a request (atwu unlearn); leave it out.")
    if source.model is None:
        raise ValueError(
            "unlearning needs a pretrained model, not a shape to train from scratch; give a model folder or Hub name."
        )
    tokenizer = load_checked_tokenizer(source)
    check_run(source, config, folder, tokenizer=tokenizer)
    rows = unlearning_rows(forget, retain, config, tokenizer=tokenizer)
    report_rows(rows.sets, say)
    # Before the model is loaded, so that one model at a time is in memory.
    if recipe.auxiliary:
        folders = auxiliary_models(source, config, recipe.auxiliary, rows.sets, say=say)
        config.component_options = {**config.component_options, **folders}  # the given configuration stays as it is
    settings = redirect_output(folder, config)
    loaded = load_to_train(source, config, say, model=model)
    earlier = recipe.settings.get("scorer_from")
    # A scorer reads hidden states, which mean nothing to it in another model of the same width.
    if earlier is not None and _original_model(Path(earlier)) not in (None, loaded.fingerprint):
        say(
            f"warning: the scorer in {earlier} was trained on another original model; its scores may not be "
            "meaningful here"
        )
    log: list[TrainerCallback] = [JsonLog(folder.log)]
    trainer = MethodTrainer(loaded, config, forget_dataset=rows, processing_class=tokenizer, say=say, callbacks=log)
    if watch is not None:
        for callback in watch(trainer):
            trainer.add_callback(callback)
    return train_into(folder, trainer, settings)


def _original_model(run: Path) -> str | None:
    """Return the fingerprint of the model that a run started from; None if the folder holds only its scorer."""
    if not (run / RECORD_NAME).is_file():
        return None
    fingerprint: str | None = read_object(run / RECORD_NAME).get("original_model", {}).get("fingerprint")
    return fingerprint


def check_run(source: ModelSource, config: UnlearnConfig, folder: RunFolder, *, tokenizer: Any) -> None:
    """Check what needs neither weights nor rows: model, adapters, disk space, and components of the method."""
    if config.eval_strategy != "no":
        raise ValueError(
            "eval_strategy is for UnlearnTrainer in Python; leave it out, and use atwu evaluate afterwards."
        )
    adapter_bytes = check_training(source, config)
    folder.check_space(space_needed(source.weight_bytes(), config, adapter_bytes))
    recipe = config.recipe()
    for part in recipe.components:
        if not getattr(part, "auxiliary", None):  # auxiliary models exist only after training
            part.check()
    shape = source.architecture().get_text_config()
    recipe.forget_component.target_token_ids(tokenizer)
    if recipe.layered:
        recipe.layer(int(shape.num_hidden_layers))
    if "scorer_from" in recipe.settings:
        scorer_of(recipe.settings["scorer_from"], int(shape.hidden_size))
    for name in (recipe.settings[option] for option in recipe.auxiliary if option in recipe.settings):
        check_model_name(name)
        if load_tokenizer(name).backend_tokenizer.to_str() != tokenizer.backend_tokenizer.to_str():
            raise ValueError(
                f"{name} has another tokenizer than {source.model}; auxiliary models must use the same one."
            )


def auxiliary_models(
    source: ModelSource,
    config: UnlearnConfig,
    auxiliary: Mapping[str, RowsName],
    rows: Mapping[str, RowSet],
    *,
    say: Say,
) -> dict[str, str]:
    """Return folders for those of the options in `auxiliary` that are not given.

    SU-LLM (Wan et al. 2025) compares a model fine-tuned on the forget set with one fine-tuned on the retain set. Both are
    trained here from the model to unlearn, once, and cached by model, rows and configuration.
    """
    options = config.component_options
    missing = {option: name for option, name in auxiliary.items() if options.get(option) is None}
    if not missing:
        return {}
    if config.quantize is not None:
        raise ValueError(
            f"quantize={config.quantize!r} does not work with auxiliary models, whose full weights are trained; "
            "leave it out, or train them with atwu finetune and set "
            f"{' and '.join(auxiliary)}."
        )
    shared = ["learning_rate", "per_device_train_batch_size", "seed", "max_length", "system"]
    if config.lora_r:
        shared += ["lora_r", "lora_alpha", "lora_targets", "lora_dropout"]
    settings = {name: getattr(config, name) for name in shared} | {"num_train_epochs": AUXILIARY_EPOCHS}
    # These change no number, or are in the key in another form, so runs that differ in them share the models.
    hardware = ("disable_tqdm", "use_cpu", "bf16", "fp16", "fsdp", "fsdp_config")
    unkeyed = {name: getattr(config, name) for name in hardware} | {"save_strategy": "no"}
    start, folders = str(source.model), dict[str, str]()
    if is_adapter(start):  # its folder does not contain the base model
        fingerprint = model_fingerprint(load_model(start, **source.load_kwargs))
    else:
        fingerprint = stored_weights_fingerprint(start, source.revision)
    inputs = {
        "precision": [source.dtype, config.bf16, config.fp16],
        "device": config.device.type,
        "versions": versions(),
        "processes": config.world_size,  # changes the batches
        "chat_template": template_text(source.chat_template) if source.chat_template else None,
        "chat_template_kwargs": source.chat_template_kwargs,
    }
    for option, name in missing.items():
        trained_on: dict[str, str] = {name: rows[name].fingerprint}
        key = run_key("auxiliary model", options=settings, model=fingerprint, rows=trained_on, inputs=inputs)
        folder = cache_folder(config.cache_dir) / "auxiliary" / f"{name}-{short_hash(key)[:16]}"
        if is_intact(folder):
            say(f"auxiliary model of the {name} set: found in {folder}")
        else:
            folder = writable_folder(folder)
            say(f"auxiliary model of the {name} set: training once in {folder}")
            folder.parent.mkdir(parents=True, exist_ok=True)
            training_rows = LoadedRows(rows[name].examples, str(rows[name].source), ())
            run_finetune(source, FinetuneConfig(**settings, **unkeyed), data=training_rows, output=folder, say=say)
        folders[option] = str(folder)
    return folders


def redirect_output(folder: RunFolder, config: TokenTrainingConfig) -> dict[str, Any]:
    """Redirect the trainer's output to the work folder; return the configuration as given."""
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
        trainer.check_finite()  # the last step may have been the one that broke them, and no checkpoint follows it
        if first:
            # First the manifest, without which a folder that a kill leaves half removed is not taken for a result.
            (folder.final / MANIFEST_NAME).unlink(missing_ok=True)
            shutil.rmtree(folder.final, ignore_errors=True)
        trainer.accelerator.wait_for_everyone()
        trainer.write_result(folder.final, settings=settings, use_up=True)
        if first:
            write_manifest(folder.final)  # last, since a result with a manifest is taken for whole
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
