"""AUROC of scores: of the token scores of all weightings against labelled tokens, within each answer; one area for all of them.

`roc_area` is the only place that computes an area under a ROC curve; membership attacks use it, too (`membership.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from atwu.data.arrays import FloatArray
from atwu.evaluation.columns import FORGET, Column
from atwu.evaluation.metric import Metric, MetricSetting

if TYPE_CHECKING:  # pages read scores, and need no torch
    from torch import Tensor

    from atwu.evaluation.teacher_forced import TokenRow
    from atwu.evaluation.weighting_scores import ScoreContext

TokenValues: TypeAlias = "Sequence[float] | Sequence[int] | Sequence[bool] | Tensor | NDArray[Any]"
"""One number per token, shape (tokens,)."""


@dataclass(frozen=True, slots=True)
class SampleAuroc:
    """AUROC within each answer, averaged over answers."""

    mean: float | None
    """Mean over answers with both classes, in [0, 1], higher is better; None without any."""
    std: float | None
    """Standard deviation over those answers (divisor n); None without any."""
    n: int
    """Number of answers averaged."""
    skipped: int
    """Answers left out because all their labels are equal."""
    values: tuple[float | None, ...]
    """One value per answer in input order, None where skipped."""


def roc_area(
    negatives: FloatArray, positives: FloatArray, weights: tuple[ArrayLike, ArrayLike] | None = None
) -> FloatArray:
    """Probability that a random positive scores higher than a random negative, ties count one half (Mann-Whitney).

    Args:
        negatives: One score each, shape (negatives,); infinite values are allowed.
        positives: The same, shape (positives,).
        weights: How often each negative and each positive counts, such as bootstrap draws, shapes (..., negatives) and
            (..., positives); scores are sorted once for all draws. None: once.

    Returns:
        The area under the ROC curve, shape (...); NaN if a side has no score.
    """
    if weights is None:
        weights = np.ones(negatives.shape), np.ones(positives.shape)
    below, above = (np.asarray(side, dtype=np.float64) for side in weights)
    levels, place = np.unique(np.concatenate([negatives, positives]), return_inverse=True)
    at_negatives = _sum_per_level(below, place[: negatives.size], levels.size)
    at_positives = _sum_per_level(above, place[negatives.size :], levels.size)
    # Of the negatives with the same score, half count as lower.
    lower = at_negatives.cumsum(axis=-1) - at_negatives / 2
    with np.errstate(invalid="ignore"):
        areas: FloatArray = (lower * at_positives).sum(-1) / (at_negatives.sum(-1) * at_positives.sum(-1))
    return areas


def _sum_per_level(weights: FloatArray, place: NDArray[np.int64], levels: int) -> FloatArray:
    """Sum the weights at each distinct score, shape (..., levels)."""
    # `add.reduceat` sums ranges, so equal scores are brought together first.
    order = np.argsort(place, kind="stable")
    present, starts = np.unique(place[order], return_index=True)
    totals = np.zeros((*weights.shape[:-1], levels))
    totals[..., present] = np.add.reduceat(weights[..., order], starts, axis=-1)
    return totals


def auroc(scores: TokenValues, labels: TokenValues) -> float | None:
    """Probability that a random labelled token scores higher than a random unlabelled one, ties count one half.

    Range [0, 1]: 1 ranks every labelled token first, 0.5 is chance or a constant score. Only the order of scores
    matters.

    Args:
        scores: One per token, shape (tokens,); infinite values are allowed.
        labels: 1 (or True) for labelled tokens, else 0, shape (tokens,).

    Returns:
        The area under the ROC curve; None if all labels are equal.
    """
    values, labelled = token_values(scores, "scores"), token_values(labels, "labels") > 0
    # Without both classes there is nothing to rank.
    if labelled.all() or not labelled.any():
        return None
    return float(roc_area(values[~labelled], values[labelled]))


def per_sample_auroc(scores: Sequence[TokenValues], labels: Sequence[TokenValues]) -> SampleAuroc:
    """AUROC of each answer, then mean and standard deviation over answers (as reported in the ATWU paper)."""
    # Pooled over all tokens, a score whose level differs between answers would lose, although it ranks each of them well.
    values = [auroc(*row) for row in zip(scores, labels, strict=True)]
    known = np.array([value for value in values if value is not None], dtype=np.float64)
    mean, std = None, None
    if known.size:
        mean, std = float(known.mean()), float(known.std())
    return SampleAuroc(
        mean=mean,
        std=std,
        n=int(known.size),
        skipped=len(values) - int(known.size),
        values=tuple(values),
    )


def token_values(values: TokenValues, name: str) -> FloatArray:
    """Convert values to float64 on the CPU; NaN is an error."""
    numbers: Any = values
    # A tensor of half precision or on a GPU is no array; asked by its method, since this file does without torch.
    if hasattr(numbers, "detach"):
        numbers = numbers.detach().cpu().double()
    array: FloatArray = np.asarray(numbers, dtype=np.float64)
    unknown = int(np.isnan(array).sum())
    if unknown:
        raise ValueError(f"{unknown} of {len(array)} {name} are NaN; check the model they come from.")
    return array


def score_auroc(scores: Sequence[FloatArray], rows: Sequence[TokenRow]) -> tuple[float | None, ...]:
    """Return the AUROC of one score within each row, over the tokens of the answer's text, without terminal tokens.

    Values in [0, 1], higher is better; None without labels or if all labels are equal.
    """
    aurocs: list[float | None] = []
    for values, row in zip(scores, rows, strict=True):
        if row.labels is None:
            aurocs.append(None)
        else:
            # The terminal token is never labelled, so that it would reward every score that is low there.
            aurocs.append(auroc(values[row.content], row.labels[row.content]))
    return tuple(aurocs)


def score_aurocs(context: ScoreContext) -> dict[str, tuple[float | None, ...]]:
    """Return the AUROC of every available score against the rows' labels, except of `labels` itself.

    Rows without labels count for n-gram frequencies only.
    """
    from atwu.evaluation.weighting_scores import available, token_scores

    # Labels would be compared with themselves.
    names = [name for name in available(context.inputs) if name != "labels"]
    return {name: score_auroc(scores, context.tokens) for name, scores in token_scores(context, names).items()}


class ScoreAurocMetric(Metric):
    name = "scores"
    about = "AUROC of token scores against labelled tokens, for every token weighting"
    cost = "one forward pass over the forget set, and frequency counts over all retain rows"
    needs = reads = (FORGET,)
    default = True
    settings = (
        MetricSetting(
            "noun_finder",
            str,
            "simple",
            "Noun finder of the scores of nouns and rare_nouns: name of a spaCy model, or simple.",
        ),
    )
    columns = (
        Column(
            "auroc_scorer",
            per_sample_auroc,
            "AUROC",
            "AUROC of the learned token scores against labelled tokens, within a row; 0.5 is chance",
            sets=(FORGET,),
            direction="up",
        ),
        Column(
            "auroc_{score}",
            per_sample_auroc,
            "score AUROC, {score}",
            "AUROC of this weighting's token scores against labelled tokens, within a row; 0.5 is chance",
            sets=(FORGET,),
            direction="none",
        ),
    )

    def record(self) -> None:
        from atwu.evaluation.weighting_scores import ScoreContext

        session = self.session
        if all(row.forget_spans is None for row in session.sets[FORGET]):
            return
        encoded, device = session.encode_set(FORGET), next(session.model.parameters()).device
        auxiliary = None
        if session.auxiliary is not None:
            auxiliary = session.auxiliary.logps(encoded, device=device, batch_tokens=session.config.batch_tokens)
        context = ScoreContext(
            tokens=session.tokens(FORGET),
            encoded=encoded,
            examples=session.sets[FORGET],
            retain=session.encode_pool() or None,
            retain_text=session.pool,
            auxiliary=auxiliary,
            noun_finder=session.config.noun_finder,
        )
        for name, values in score_aurocs(context).items():
            self.record_column(FORGET, f"auroc_{name}", values)
