"""Rows of any accepted kind into encoded rows, and everything a run draws from them before it starts."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from atwu.data.alternates import Alternates, alternates
from atwu.data.encode import EncodedRow, Encoder
from atwu.data.rows import parse_row
from atwu.data.schema import IGNORE_INDEX, Example
from atwu.data.secret_words import label_words, read_words
from atwu.methods.recipe import Recipe
from atwu.modeling.reference import TokenTable
from atwu.training.config import UnlearnConfig


@dataclass(frozen=True, slots=True)
class RowSet:
    """One set of rows, encoded, with its text where it was given as text."""

    rows: tuple[EncodedRow, ...]
    examples: tuple[Example, ...] | None


Rows = Iterable[Example] | Iterable[Mapping[str, Any]] | Sequence[EncodedRow] | RowSet


@dataclass(frozen=True, slots=True)
class UnlearningRows:
    """What an unlearning run reads."""

    forget: RowSet
    retain: RowSet | None
    """Also there when only the weighting looks at it."""
    alternates: Alternates | None


def encode_dataset(rows: Rows, tokenizer: Any, *, what: str, max_length: int, system: str | None = None) -> RowSet:
    """Encode rows of any accepted kind; what had to be changed is said in a warning.

    Args:
        rows: `Example`s, mappings with the columns of the data formats (a Hub data set is one), or rows already encoded; a
            `RowSet` is given back as it is.
        tokenizer: a fast tokenizer; not needed for encoded rows.
        what: name of the set in messages.
        max_length: longest row in tokens.
        system: as for `Encoder`; rows that are encoded already stay as they are.

    Raises:
        ValueError: no rows, a malformed row, or no tokenizer.
    """
    if isinstance(rows, RowSet):
        return rows
    listed = list(rows)
    if not listed:
        raise ValueError(f"the {what} set is empty; give at least one row.")
    if all(isinstance(row, EncodedRow) for row in listed):
        return RowSet(tuple(_without_first(row) for row in listed), None)  # type: ignore[arg-type]
    if tokenizer is None:
        raise ValueError(f"the {what} set holds text; give the tokenizer as processing_class.")
    examples = [
        row if isinstance(row, Example) else parse_row(row, where=f"{what} set, row {index + 1}")  # type: ignore[arg-type]
        for index, row in enumerate(listed)
    ]
    encoded = Encoder(tokenizer, max_length=max_length, system=system).encode_rows(examples, what=what)
    for warning in encoded.warnings:
        warnings.warn(warning, stacklevel=2)
    return RowSet(encoded.rows, tuple(examples))


def _without_first(row: EncodedRow) -> EncodedRow:
    """Nothing predicts the first token of a row, so it is never counted."""
    return row if row.labels[0] == IGNORE_INDEX else dataclasses.replace(row, labels=(IGNORE_INDEX, *row.labels[1:]))


def without_labels(rows: Sequence[EncodedRow]) -> tuple[EncodedRow, ...]:
    """Rows without secret-token labels, for a set where nothing uses them or only some rows have them."""
    return tuple(dataclasses.replace(row, token_labels=None) for row in rows)


def unlearning_rows(
    config: UnlearnConfig, recipe: Recipe, *, forget: Rows, retain: Rows | None, tokenizer: Any
) -> UnlearningRows:
    """Check and encode the rows of a run, with labels, alternates and whatever else its recipe needs.

    Raises:
        ValueError: rows that the recipe needs are missing, or lack what it needs of them.
    """
    if recipe.retainer is not None and retain is None:
        raise ValueError(f"method {recipe.name!r} needs a retain_dataset; give one or set retain_loss='none'.")
    if "retain" in recipe.needs and retain is None:
        raise ValueError("rarity and n-gram counts are those of retain answers; give a retain_dataset.")
    if config.forget_words and not isinstance(forget, RowSet):
        listed = list(forget)
        if not all(isinstance(row, Example) for row in listed):
            raise ValueError("forget_words labels text; give the forget rows as Examples.")
        forget = add_labels(listed, config)  # type: ignore[arg-type]
    removed = encode_dataset(forget, tokenizer, what="forget", max_length=config.max_length, system=config.system)
    if missing := sum(row.token_labels is None for row in removed.rows):
        if "labels" in recipe.needs:
            raise ValueError(
                f"weighting {recipe.weighting!r} needs forget_spans; {missing} of {len(removed.rows)} rows have none."
            )
        removed = RowSet(without_labels(removed.rows), removed.examples)
    if removed.examples is None and "text" in recipe.needs:
        part = "forget loss" if "text" in recipe.forgetter.needs else "weighting"
        name = recipe.forget_loss if part == "forget loss" else recipe.weighting
        raise ValueError(f"{part} {name!r} reads the text of forget rows; give them as Examples, not encoded.")
    kept = None
    if retain is not None and "retain" in recipe.needs:
        kept = encode_dataset(retain, tokenizer, what="retain", max_length=config.max_length, system=config.system)
        kept = RowSet(without_labels(kept.rows), kept.examples)
    preferred = None
    if "alternates" in recipe.needs:
        preferred = alternates(
            removed.examples or (),
            tokenizer,
            seed=config.seed if config.data_seed is None else config.data_seed,
            epochs=planned_epochs(config, len(removed.rows)),
            max_length=config.max_length,
            system=config.system,
        )
    if recipe.forgetter.counts_prompts:
        removed = RowSet(_everywhere(removed.rows), removed.examples)
        kept = None if kept is None else RowSet(_everywhere(kept.rows), kept.examples)
    return UnlearningRows(removed, kept, preferred)


def add_labels(examples: Sequence[Example], config: UnlearnConfig) -> list[Example]:
    """Label the secret words of a list in rows that bring no labels of their own."""
    if config.forget_words is None:
        return list(examples)
    found = label_words(examples, read_words(config.forget_words))
    return [old if old.forget_spans is not None else new for old, new in zip(examples, found, strict=True)]


def text_table(rows: Sequence[EncodedRow]) -> TokenTable:
    """True on counted tokens of the answers' text, False on terminal tokens."""
    marks = [
        [
            offset is not None
            for offset, label in zip(row.answer_offsets, row.labels, strict=True)
            if label != IGNORE_INDEX
        ]
        for row in rows
    ]
    return TokenTable(
        torch.tensor([mark for row in marks for mark in row], dtype=torch.bool), [len(row) for row in marks]
    )


def planned_epochs(config: UnlearnConfig, rows: int) -> int:
    """Passes over the forget set that a run will begin."""
    if config.max_steps <= 0:
        return math.ceil(config.num_train_epochs)
    per_step = config.per_device_train_batch_size * config.gradient_accumulation_steps * config.world_size
    return math.ceil(config.max_steps * int(per_step) / rows)


def _everywhere(rows: Sequence[EncodedRow]) -> tuple[EncodedRow, ...]:
    """Every token but the first counted, the prompt's too."""
    return tuple(dataclasses.replace(row, labels=(IGNORE_INDEX, *row.input_ids[1:]), token_labels=None) for row in rows)
