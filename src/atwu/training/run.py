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
from atwu.training.fixed import check_fixed, check_noun_finder
from atwu.training.launch import FinishedRun, Plan, encode_sets, launch, silent
from atwu.training.output import RECORD_NAME, OutputFolder
from atwu.training.rows import add_labels, looks_at_retain, refusal_tokens
from atwu.training.scorers import check_width
from atwu.training.source import ModelSource, Say, check_training, checked_tokenizer
from atwu.training.supervised import run_finetune
from atwu.training.trainer import UnlearnTrainer

__all__ = ["FinishedRun", "ModelSource", "run_finetune", "run_unlearn"]

logger = logging.getLogger(__name__)


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
    config, say = copy.copy(config), say if config.process_index == 0 else silent
    folder = OutputFolder(output, overwrite=overwrite)
    recipe = config.recipe()
    if source.model is None:
        raise ValueError("unlearning starts from a model; a new shape has nothing to forget.")
    adapter_bytes = check_training(source, config)
    if looks_at_retain(config, recipe) and retain is None:
        raise ValueError(
            f"method {recipe.name!r} needs retain rows: pass --retain"
            + (", or --retain-loss none." if recipe.needs_retain else ".")
        )
    rows = {"forget": load_rows(forget)}
    if retain is not None and looks_at_retain(config, recipe):
        rows["retain"] = load_rows(retain)
    if config.forget_words is not None:
        labelled = tuple(add_labels(rows["forget"].rows, config))
        rows["forget"] = dataclasses.replace(rows["forget"], rows=labelled, fingerprint=rows_fingerprint(labelled))
    unlabelled = sum(row.forget_spans is None for row in rows["forget"].rows)
    if recipe.needs_labels and unlabelled:
        raise ValueError(
            f"method {recipe.name!r} needs the column forget_spans; {unlabelled} of {len(rows['forget'].rows)} rows of "
            f"{forget} have none. A list of secret words does as well: --forget-words FILE."
        )
    tokenizer = checked_tokenizer(source, folder, config, adapter_bytes=adapter_bytes)
    encoded = encode_sets(rows, tokenizer, config, say)
    _check_given(source, config, recipe, rows["forget"], tokenizer)
    if any(weighter.needs_auxiliary for weighter in recipe.weighters):
        train_auxiliary(source, config, {"forget": forget, "retain": retain}, rows, say=say)
    check_fixed(config, recipe)
    inputs = _inputs(config, recipe)

    def make_trainer(model: Any, callbacks: list[Any], fingerprint: str) -> TokenTrainer:
        if "scorer_from" in inputs:
            _compare_base(str(config.scorer_from), fingerprint, say)
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

    extra = {"method": recipe.name, "recipe": dataclasses.asdict(recipe) | {"given": sorted(recipe.given)}}
    return launch(Plan("unlearn", source, config, folder, rows, tokenizer, make_trainer, extra, say, inputs))


def _check_given(
    source: ModelSource, config: UnlearnConfig, recipe: Recipe, forget: LoadedRows, tokenizer: Any
) -> None:
    """What a run would otherwise trip over after loading weights or training auxiliary models.

    Raises:
        ValueError, FileNotFoundError, ImportError: see the message.
    """
    check_noun_finder(config, recipe)
    shape = source.architecture().get_text_config()
    if recipe.forgetter.ids == "refusal":
        refusal_tokens(config.refusal, tokenizer)
    if recipe.layered:
        recipe.layer(int(shape.num_hidden_layers))
    if recipe.needs_alternate:
        check_alternates(forget.rows)
    if recipe.needs_scorer and config.scorer_from is not None:
        check_width(config.scorer_from, TokenScorer.from_pretrained(config.scorer_from), int(shape.hidden_size))
    if any(weighter.needs_auxiliary for weighter in recipe.weighters):
        for name in (config.auxiliary_forget, config.auxiliary_retain):
            if name is None:
                continue
            check_model_name(name)
            other = load_tokenizer(name)
            if other.backend_tokenizer.to_str() != tokenizer.backend_tokenizer.to_str():
                raise ValueError(f"{name} has another tokenizer than {source.model}; auxiliary models share it.")


def _inputs(config: UnlearnConfig, recipe: Recipe) -> dict[str, str]:
    """Digests of what a run reads besides its model and rows, and of what its method is."""
    found: dict[str, str] = {}
    found["recipe"] = short_hash(dataclasses.asdict(recipe) | {"given": sorted(recipe.given)})
    if recipe.needs_scorer and config.scorer_from is not None:
        found["scorer_from"] = file_digest(*(Path(config.scorer_from) / name for name in (WEIGHTS_NAME, CONFIG_NAME)))
    if any(weighter.needs_auxiliary for weighter in recipe.weighters):
        for name in ("auxiliary_forget", "auxiliary_retain"):
            found[name] = file_digest(*sorted(Path(getattr(config, name)).glob("*.safetensors")))
    return found


def _compare_base(folder: str, fingerprint: str, say: Say) -> None:
    """Say so when a scorer comes from a run on another model."""
    record = Path(folder) / RECORD_NAME
    if not record.is_file():
        return
    earlier = json.loads(record.read_text(encoding="utf-8")).get("starting_model", {}).get("fingerprint")
    if earlier != fingerprint:
        say(f"warning: the scorer in {folder} was trained on another starting model; its scores may mean nothing here")
