"""The scorer that a run starts with: untrained, with a prior, or from an earlier run."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from atwu.data.encode import EncodedRow
from atwu.methods.weightings.learned import LearnedScores
from atwu.methods.weightings.rarity import TokenCounts
from atwu.methods.weightings.scorer import TokenScorer
from atwu.modeling.reference import TokenTable, counted_tokens
from atwu.training.rows import UnlearningRows


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
