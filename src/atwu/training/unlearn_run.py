"""A complete unlearning run from names and paths: checks, rows, model, trainer, training, and the output folder."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from transformers.trainer_callback import TrainerCallback

from atwu._file_reading import read_upgraded_json
from atwu._manifest import RECORD_NAME
from atwu.benchmarks.sources import LoadedRows
from atwu.methods.recipe import Recipe
from atwu.modeling.load import check_model_name, load_tokenizer
from atwu.training.auxiliary_models import auxiliary_models
from atwu.training.config import UnlearnConfig
from atwu.training.finetune import run_finetune
from atwu.training.finish_run import FinishedRun, publish_run, train_into, work_in
from atwu.training.load_to_train import ModelSource, check_training, load_checked_tokenizer, load_to_train, space_needed
from atwu.training.method_trainer import MethodTrainer
from atwu.training.precompute import AUXILIARY
from atwu.training.progress import JsonLog, Say, logged, silent
from atwu.training.run_folder import RunFolder
from atwu.training.scorer_steps import scorer_of
from atwu.training.training_rows import report_rows, unlearning_rows

__all__ = ["FinishedRun", "ModelSource", "run_finetune", "run_unlearn"]


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
    """Unlearn `forget` from a model and write the result to `output`; the arguments are those of `train_run`.

    Args:
        output: folder to create.
        overwrite: replace an existing finished run.
    """
    folder = RunFolder(output, overwrite=overwrite)
    finished = train_run(source, config, folder, forget=forget, retain=retain, watch=watch, say=say)
    publish_run(folder, config)
    return finished


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
        source: the original model.
        config: the configuration.
        folder: folder of the run.
        forget: the forget rows, or their source (`load_rows`).
        retain: the retain rows, or their source.
        model: the original model, if it is in memory; its weights are trained in place.
        watch: callbacks of the run's trainer.
        say: receives status messages, one line each, in the main process.
    """
    config, say = copy.copy(config), say if config.process_index == 0 else silent
    recipe = config.recipe()
    if source.model is None:
        raise ValueError(
            "unlearning needs a pretrained model, not a shape to train from scratch; give a model folder or Hub name."
        )
    tokenizer = load_checked_tokenizer(source)
    check_run(source, config, folder, tokenizer=tokenizer)
    rows = unlearning_rows(forget, retain, config, tokenizer=tokenizer)
    report_rows(rows.sets, say)
    if "auxiliary_models" in recipe.needs:
        config.component_options = config.component_options | auxiliary_models(source, config, rows.sets, say=say)
    settings = work_in(folder, config)
    loaded = load_to_train(source, config, say, model=model)
    if "scorer_from" in recipe.settings:
        _compare_base(recipe.settings["scorer_from"], loaded.fingerprint, say)
    log: list[TrainerCallback] = [JsonLog(folder.log)]
    trainer = MethodTrainer(loaded, config, forget_dataset=rows, processing_class=tokenizer, say=say, callbacks=log)
    for callback in watch(trainer) if watch else ():
        trainer.add_callback(callback)
    return train_into(folder, trainer, settings)


def check_run(source: ModelSource, config: UnlearnConfig, folder: RunFolder, *, tokenizer: Any) -> None:
    """Check what needs neither weights nor rows: model, adapters, disk space, and components of the method."""
    adapter_bytes = check_training(source, config)
    folder.check_space(space_needed(source.weight_bytes(), config, adapter_bytes))
    _check_parts(source, config.recipe(), tokenizer)


def _check_parts(source: ModelSource, recipe: Recipe, tokenizer: Any) -> None:
    """Check what would otherwise fail after loading weights or training auxiliary models."""
    for part in recipe.components:
        if "auxiliary_models" not in part.needs:  # auxiliary models exist only after training
            part.check()
    shape = source.architecture().get_text_config()
    recipe.forget_component.target_token_ids(tokenizer)
    if recipe.layered:
        recipe.layer(int(shape.num_hidden_layers))
    if "scorer_from" in recipe.settings:
        scorer_of(recipe.settings["scorer_from"], int(shape.hidden_size))
    if "auxiliary_models" in recipe.needs:
        for name in (recipe.settings[each] for each in AUXILIARY if each in recipe.settings):
            check_model_name(name)
            other = load_tokenizer(name)
            if other.backend_tokenizer.to_str() != tokenizer.backend_tokenizer.to_str():
                raise ValueError(
                    f"{name} has another tokenizer than {source.model}; auxiliary models must use the same one."
                )


def _compare_base(folder: str, fingerprint: str | None, say: Say) -> None:
    """Warn if a scorer was trained on another model."""
    record = Path(folder) / RECORD_NAME
    if not record.is_file():
        return
    earlier = read_upgraded_json(record).get("original_model", {}).get("fingerprint")
    if earlier != fingerprint:
        say(
            f"warning: the scorer in {folder} was trained on another original model; its scores may not be "
            "meaningful here"
        )
