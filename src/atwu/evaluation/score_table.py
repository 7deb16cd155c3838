"""How well the token scores of all weightings find the annotated secret: per answer, pooled, and as ROC curves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from atwu.evaluation.induced import ScoreContext, available, token_scores
from atwu.evaluation.teacher_forced import FloatArray, TokenRow
from atwu.evaluation.token_scores import RocCurve, per_sample_auroc, pooled_auroc, pooled_roc

__all__ = ["MAX_POINTS", "ScoreAuroc", "ScoreContext", "score_aurocs", "thinned"]

MAX_POINTS = 200
"""Points of a stored curve."""


@dataclass(frozen=True, slots=True)
class ScoreAuroc:
    """One score against the labels, over tokens of the answers' text (terminal tokens are left out)."""

    values: tuple[float | None, ...]
    """AUROC within each row, in [0, 1], higher is better; None without labels and where all labels are equal."""
    pooled: float | None
    """AUROC over the tokens of all labelled rows together; None when they are all of one class."""
    curve: RocCurve
    """The pooled curve in at most `MAX_POINTS` points; without points where `pooled` is None."""
    unlabelled: int
    """Rows left out because they have no labels."""


def score_aurocs(context: ScoreContext, names: Iterable[str] | None = None) -> dict[str, ScoreAuroc]:
    """Measure scores against the labels of the rows.

    Args:
        context: the rows, and what else some scores need. Unlabelled rows are counted for n-grams, but not measured.
        names: which scores; by default all that the context allows, `labels` excepted.

    Raises:
        ValueError: an unknown score, or one whose needs are not met.
    """
    if names is None:
        names = [name for name in available(context.there) if name != "labels"]
    return {name: _measured(found, context.tokens) for name, found in token_scores(context, names).items()}


def thinned(curve: RocCurve, points: int = MAX_POINTS) -> RocCurve:
    """At most `points` >= 2 points of a curve, both ends among them, at about equal steps of fpr + tpr."""
    if curve.fpr.size <= points:
        return curve
    kept = np.unique(np.searchsorted(curve.fpr + curve.tpr, np.linspace(0.0, 2.0, points)))
    return RocCurve(fpr=curve.fpr[kept], tpr=curve.tpr[kept])


def _measured(scores: Sequence[FloatArray], rows: Sequence[TokenRow]) -> ScoreAuroc:
    found, labels = [], []
    for values, row in zip(scores, rows, strict=True):
        if row.labels is not None:
            found.append(values[row.content])
            labels.append(row.labels[row.content])
    single = iter(per_sample_auroc(found, labels).values)
    both = len(set[int]().union(*(given.tolist() for given in labels))) == 2
    return ScoreAuroc(
        values=tuple(None if row.labels is None else next(single) for row in rows),
        pooled=pooled_auroc(found, labels) if both else None,
        curve=thinned(pooled_roc(found, labels)) if both else RocCurve(np.empty(0), np.empty(0)),
        unlabelled=len(rows) - len(labels),
    )
