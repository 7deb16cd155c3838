"""Token weights that a run computes before its first step, as tables looked up by forget row."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch

from atwu.methods.parts import WEIGHTINGS
from atwu.methods.recipe import Combination, Recipe
from atwu.methods.weightings import combine
from atwu.methods.weightings.fixed import FixedWeights, FloatArray
from atwu.methods.weightings.nouns import NounFinder, simple_nouns, spacy_noun_chunks
from atwu.modeling.reference import TokenTable, Wanted
from atwu.training.config import UnlearnConfig
from atwu.training.references import StartingModel, auxiliary_logps, per_row
from atwu.training.rows import UnlearningRows


def check_fixed(config: UnlearnConfig, recipe: Recipe) -> None:
    """Whether everything that the weighting needs from outside is there, before anything is loaded.

    Raises:
        ValueError: auxiliary models are missing.
        ImportError: the noun finder cannot be loaded.
    """
    if any(weighter.needs_auxiliary for weighter in recipe.weighters):
        for name in ("auxiliary_forget", "auxiliary_retain"):
            if getattr(config, name) is None:
                raise ValueError(
                    f"weighting {recipe.weighting!r} compares two auxiliary models; give {name}, the folder of one "
                    "(`atwu unlearn` trains both when they are not given)."
                )
    check_noun_finder(config, recipe)


def check_noun_finder(config: UnlearnConfig, recipe: Recipe) -> None:
    """Whether the noun finder can be loaded, if the weighting uses one.

    Raises:
        ImportError: spaCy or its model is missing.
    """
    if any(weighter.needs_answers for weighter in recipe.weighters):
        noun_finder(config.noun_finder)


def noun_finder(name: str) -> NounFinder:
    """The noun finder of a config value."""
    return simple_nouns if name == "simple" else spacy_noun_chunks(name)


def fixed_tables(
    config: UnlearnConfig, recipe: Recipe, rows: UnlearningRows, start: StartingModel, *, cache: Path
) -> dict[str, TokenTable]:
    """One table per fixed weighting of the recipe, by its name; two that are combined give one, by the name of both."""
    device = next(start.model.parameters()).device

    def auxiliary(which: Literal["forget", "retain"]) -> list[FloatArray]:
        size = int(start.model.config.get_text_config().vocab_size)  # type: ignore[union-attr, operator]
        name = str(config.auxiliary_forget if which == "forget" else config.auxiliary_retain)
        return auxiliary_logps(name, rows.forget.rows, device, vocabulary=size, folder=cache, progress=start.progress)

    given = FixedWeights(
        forget=rows.forget.rows,
        retain=None if rows.retain is None else rows.retain.rows,
        answers=None if rows.forget.examples is None else [example.answer for example in rows.forget.examples],
        ref_logps=lambda: per_row(start.read(rows.forget.rows, Wanted(logps=True), what="forget")["logps"]),
        auxiliary_logps=auxiliary,
        noun_finder=lambda: noun_finder(config.noun_finder),
    )
    found = {name: compute(given) for name in recipe.weighting_names if (compute := WEIGHTINGS[name].fixed) is not None}
    if recipe.combination is not None and len(found) == 2:
        return {
            recipe.weighting: _table(
                _combined(*(found[name] for name in recipe.weighting_names), how=recipe.combination)
            )
        }
    return {name: _table(rows) for name, rows in found.items()}


def _combined(first: list[FloatArray], second: list[FloatArray], *, how: Combination) -> list[FloatArray]:
    """Two fixed weightings as one, row by row."""
    function = combine.product if how == "product" else combine.mean_of_ranks
    pairs = [
        (torch.as_tensor(one)[None], torch.as_tensor(other)[None]) for one, other in zip(first, second, strict=True)
    ]
    return [function(one, other, torch.ones_like(one, dtype=torch.bool))[0].numpy() for one, other in pairs]


def _table(rows: list[FloatArray]) -> TokenTable:
    flat = torch.cat([torch.as_tensor(row, dtype=torch.float32) for row in rows])
    return TokenTable(flat, [len(row) for row in rows])
