"""A whole unlearning run from names and paths: check everything, load, train, and write a finished output folder."""

from __future__ import annotations

import copy
import dataclasses
import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from transformers.trainer_callback import TrainerCallback

from atwu._cache import short_hash
from atwu._files import file_digest
from atwu.benchmarks.sources import LoadedRows, load_rows
from atwu.data.alternates import check_alternates
from atwu.data.rows import fingerprint as rows_fingerprint
from atwu.methods.recipe import Recipe
from atwu.methods.weightings.scorer import CONFIG_NAME, WEIGHTS_NAME, TokenScorer
from atwu.modeling.load import check_model_name, load_tokenizer
from atwu.training.auxiliary import train_auxiliary
from atwu.training.base import TokenTrainer
from atwu.training.config import UnlearnConfig
from atwu.training.launch import FinishedRun, Plan, encode_sets, launch, silent
from atwu.training.model import ModelSource, Say, check_training, checked_tokenizer
from atwu.training.output import RECORD_NAME, OutputFolder
from atwu.training.prepare import check_width
from atwu.training.rows import add_labels
from atwu.training.supervised import run_finetune
from atwu.training.trainer import UnlearnTrainer

__all__ = ["FinishedRun", "ModelSource", "run_finetune", "run_unlearn"]

logger = logging.getLogger(__name__)

_AUXILIARY = ("auxiliary_forget", "auxiliary_retain")


def run_unlearn(
    source: ModelSource,
    config: UnlearnConfig,
    *,
    forget: str,
    retain: str | None,
    output: str | Path,
    overwrite: bool = False,
    watch: Callable[[UnlearnTrainer], Sequence[TrainerCallback]] | None = None,
    say: Say = logger.info,
) -> FinishedRun:
    """Unlearn `forget` from a model and write the result to `output`.

    Everything that needs no weights, encoding included, is checked before any are loaded and before anything is written.

    Args:
        source: the starting model.
        config: the run's settings.
        forget: source of the rows to remove (`load_rows`).
        retain: source of the rows to keep.
        output: folder to create.
        overwrite: replace a finished run that is there.
        watch: callbacks for the run's trainer.
        say: receives one line of plain text per stage, in the first process.

    Raises:
        ValueError, FileNotFoundError, FileExistsError, OSError: see the message; nothing was changed.
    """
    config, say = _own_copy(config), say if config.process_index == 0 else silent
    folder = OutputFolder(output, overwrite=overwrite)
    recipe = config.recipe()
    if source.model is None:
        raise ValueError("unlearning starts from a model; a new shape has nothing to forget.")
    adapter_bytes = check_training(source, config)
    if "retain" in recipe.needs and retain is None:
        raise ValueError(
            f"method {recipe.name!r} needs retain rows: pass --retain"
            + (", or --retain-loss none." if recipe.retainer is not None else ".")
        )
    rows = {"forget": load_rows(forget)}
    if retain is not None and "retain" in recipe.needs:
        rows["retain"] = load_rows(retain)
    if config.forget_words is not None:
        labelled = tuple(add_labels(rows["forget"].rows, config))
        rows["forget"] = dataclasses.replace(rows["forget"], rows=labelled, fingerprint=rows_fingerprint(labelled))
    unlabelled = sum(row.forget_spans is None for row in rows["forget"].rows)
    if "labels" in recipe.needs and unlabelled:
        raise ValueError(
            f"method {recipe.name!r} needs the column forget_spans; {unlabelled} of {len(rows['forget'].rows)} rows of "
            f"{forget} have none. A list of secret words does as well: --forget-words FILE."
        )
    tokenizer = checked_tokenizer(source, folder, config, adapter_bytes=adapter_bytes)
    encoded = encode_sets(rows, tokenizer, config, say)
    _check_given(source, recipe, rows["forget"], tokenizer)
    if "auxiliary_models" in recipe.needs:
        train_auxiliary(source, config, {"forget": forget, "retain": retain}, rows, say=say)
        recipe = config.recipe()
    for part in recipe.parts:
        part.check()
    inputs = _inputs(recipe)

    def make_trainer(model: Any, callbacks: list[Any], fingerprint: str) -> TokenTrainer:
        if "scorer_from" in inputs:
            _compare_base(str(recipe.settings["scorer_from"]), fingerprint, say)
        trainer = UnlearnTrainer(
            model,
            config,
            forget_dataset=encoded["forget"],
            retain_dataset=encoded.get("retain"),
            processing_class=tokenizer,
            fingerprint=fingerprint,
            say=say,
            callbacks=callbacks,
        )
        for callback in watch(trainer) if watch else ():
            trainer.add_callback(callback)
        return trainer

    extra = {"method": recipe.name, "recipe": recipe.as_plain()}
    return launch(Plan("unlearn", source, config, folder, rows, tokenizer, make_trainer, extra, say, inputs))


def _check_given(source: ModelSource, recipe: Recipe, forget: LoadedRows, tokenizer: Any) -> None:
    """What a run would otherwise trip over after loading weights or training auxiliary models.

    Raises:
        ValueError, FileNotFoundError, ImportError: see the message.
    """
    for part in recipe.parts:
        if "auxiliary_models" not in part.needs:  # these are there only after they were trained
            part.check()
    shape = source.architecture().get_text_config()
    recipe.forgetter.aim(tokenizer)
    if recipe.layered:
        recipe.layer(int(shape.num_hidden_layers))
    if "alternates" in recipe.needs:
        check_alternates(forget.rows)
    if "scorer_from" in recipe.settings:
        folder = recipe.settings["scorer_from"]
        check_width(folder, TokenScorer.from_pretrained(folder), int(shape.hidden_size))
    if "auxiliary_models" in recipe.needs:
        for name in (recipe.settings[each] for each in _AUXILIARY if each in recipe.settings):
            check_model_name(name)
            other = load_tokenizer(name)
            if other.backend_tokenizer.to_str() != tokenizer.backend_tokenizer.to_str():
                raise ValueError(f"{name} has another tokenizer than {source.model}; auxiliary models share it.")


def _inputs(recipe: Recipe) -> dict[str, str]:
    """Digests of what a run reads besides its model and rows, and of what its method is."""
    plain, folders = recipe.as_plain(), {"scorer_from", *_AUXILIARY}
    # What lies in a folder counts, not where it is.
    plain["settings"] = {name: value for name, value in recipe.settings.items() if name not in folders}
    found = {"recipe": short_hash(plain)}
    if "scorer_from" in recipe.settings:
        folder = Path(recipe.settings["scorer_from"])
        found["scorer_from"] = file_digest(*(folder / name for name in (WEIGHTS_NAME, CONFIG_NAME)))
    for name in _AUXILIARY:
        if name in recipe.settings:
            found[name] = file_digest(*sorted(Path(recipe.settings[name]).glob("*.safetensors")))
    return found


def _own_copy(config: UnlearnConfig) -> UnlearnConfig:
    """A copy to change. Not dataclasses.replace, which would set up devices and processes once more."""
    copied = copy.copy(config)
    copied.part_options = dict(config.part_options)
    return copied


def _compare_base(folder: str, fingerprint: str, say: Say) -> None:
    """Say so when a scorer comes from a run on another model."""
    record = Path(folder) / RECORD_NAME
    if not record.is_file():
        return
    earlier = json.loads(record.read_text(encoding="utf-8")).get("starting_model", {}).get("fingerprint")
    if earlier != fingerprint:
        say(f"warning: the scorer in {folder} was trained on another starting model; its scores may mean nothing here")
