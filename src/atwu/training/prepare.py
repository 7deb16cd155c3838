"""What a run has before its first step: token weights that never change, and the scorer it starts with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from atwu.data.encode import EncodedRow
from atwu.methods.part import FixedWeighting
from atwu.methods.recipe import Recipe
from atwu.methods.seen import BeforeTraining, FloatArray
from atwu.methods.weightings.combine import Combination, combined
from atwu.methods.weightings.learned import LearnedScores
from atwu.methods.weightings.rarity import TokenCounts
from atwu.methods.weightings.scorer import TokenScorer
from atwu.modeling.reference import TokenTable, Wanted, counted_tokens
from atwu.training.references import StartingModel, logps_of_model, per_row
from atwu.training.rows import UnlearningRows


def fixed_tables(recipe: Recipe, rows: UnlearningRows, start: StartingModel, *, cache: Path) -> dict[str, TokenTable]:
    """One table per fixed weighting of the recipe, by its name; two that are combined give one, by the name of both."""
    device = next(start.model.parameters()).device

    def logps_of(folder: str) -> list[FloatArray]:
        size = int(start.model.config.get_text_config().vocab_size)  # type: ignore[union-attr, operator]
        return logps_of_model(folder, rows.forget.rows, device, vocabulary=size, cache=cache, progress=start.progress)

    given = BeforeTraining(
        forget=rows.forget.rows,
        retain=None if rows.retain is None else rows.retain.rows,
        answers=None if rows.forget.examples is None else [example.answer for example in rows.forget.examples],
        ref_logps=lambda: per_row(start.read(rows.forget.rows, Wanted(logps=True), what="forget")["logps"]),
        logps_of=logps_of,
    )
    found = {
        name: weighter.once(given)
        for name, weighter in zip(recipe.weighting_names, recipe.weighters, strict=True)
        if isinstance(weighter, FixedWeighting)
    }
    if recipe.combination is not None and len(found) == 2:
        return {recipe.weighting: _table(_row_by_row(*found.values(), how=recipe.combination))}
    return {name: _table(rows) for name, rows in found.items()}


def _row_by_row(first: list[FloatArray], second: list[FloatArray], *, how: Combination) -> list[FloatArray]:
    """Two fixed weightings as one."""
    pairs = [
        (torch.as_tensor(one)[None], torch.as_tensor(other)[None]) for one, other in zip(first, second, strict=True)
    ]
    return [combined(one, other, torch.ones_like(one, dtype=torch.bool), how=how)[0].numpy() for one, other in pairs]


def _table(rows: list[FloatArray]) -> TokenTable:
    flat = torch.cat([torch.as_tensor(row, dtype=torch.float32) for row in rows])
    return TokenTable(flat, [len(row) for row in rows])


def starting_scorer(how: LearnedScores, width: int, rows: UnlearningRows) -> TokenScorer:
    """The scorer before its first update.

    Args:
        how: numbers of the learned weighting.
        width: hidden size of the model.
        rows: the run's rows, for the prior.

    Raises:
        FileNotFoundError: `scorer_from` holds no scorer.
        ValueError: it belongs to a model of another width.
    """
    if how.scorer_from is not None:
        scorer = TokenScorer.from_pretrained(how.scorer_from)
        check_width(how.scorer_from, scorer, width)
        return scorer
    prior = None
    if how.scorer_prior == "rarity":
        assert rows.retain is not None
        prior = TokenCounts.of(rows.retain.rows)
    return TokenScorer(
        width,
        bias=how.scorer_bias,
        hidden_position=how.hidden_position,  # type: ignore[arg-type]
        prior=prior,
        prior_strength=how.scorer_prior_strength,
    )


def check_width(folder: str, scorer: TokenScorer, width: int) -> None:
    """Refuse a scorer that reads hidden states of another width than the model's.

    Raises:
        ValueError: naming both.
    """
    if scorer.linear.in_features != width:
        raise ValueError(
            f"the scorer in {folder} reads hidden states of width {scorer.linear.in_features}, "
            f"this model's have {width}; it belongs to another base model."
        )


def prior_offsets(scorer: TokenScorer, rows: Sequence[EncodedRow]) -> TokenTable | None:
    """What the scorer's prior adds to the logit of each counted token, or None without a prior."""
    offsets = [scorer.offset(row) for row in rows]
    known = [offset for offset in offsets if offset is not None]
    return TokenTable(torch.cat(known), [counted_tokens(row) for row in rows]) if known else None
