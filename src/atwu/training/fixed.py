"""Token weights that a run computes before its first step, as tables looked up by forget row."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch

from atwu.modeling.reference import TokenTable, Wanted
from atwu.parts import WEIGHTINGS
from atwu.recipe import Recipe
from atwu.training.config import UnlearnConfig
from atwu.training.references import StartingModel, auxiliary_logps, per_row
from atwu.training.rows import UnlearningRows
from atwu.weighting.fixed import FixedWeights, FloatArray
from atwu.weighting.nouns import NounFinder, simple_nouns, spacy_noun_chunks


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
    if any(weighter.needs_answers for weighter in recipe.weighters):
        noun_finder(config.noun_finder)


def noun_finder(name: str) -> NounFinder:
    """The noun finder of a config value."""
    return simple_nouns if name == "simple" else spacy_noun_chunks(name)


def fixed_tables(
    config: UnlearnConfig, recipe: Recipe, rows: UnlearningRows, start: StartingModel, *, cache: Path
) -> dict[str, TokenTable]:
    """One table per fixed weighting of the recipe, by its name."""
    device = next(start.model.parameters()).device

    def auxiliary(which: Literal["forget", "retain"]) -> list[FloatArray]:
        name = str(config.auxiliary_forget if which == "forget" else config.auxiliary_retain)
        return auxiliary_logps(name, rows.forget.rows, device, folder=cache, progress=start.progress)

    given = FixedWeights(
        forget=rows.forget.rows,
        retain=None if rows.retain is None else rows.retain.rows,
        answers=None if rows.forget.examples is None else [example.answer for example in rows.forget.examples],
        ref_logps=lambda: per_row(start.read(rows.forget.rows, Wanted(logps=True), what="forget")["logps"]),
        auxiliary_logps=auxiliary,
        noun_finder=lambda: noun_finder(config.noun_finder),
    )
    tables = {}
    for name in recipe.weighting_names:
        compute = WEIGHTINGS[name].fixed
        if compute is None:
            continue
        weights = compute(given)
        lengths = [len(row) for row in weights]
        flat = torch.cat([torch.as_tensor(row, dtype=torch.float32) for row in weights])
        tables[name] = TokenTable(flat, lengths)
    return tables
