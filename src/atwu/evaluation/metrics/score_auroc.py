"""How well the token scores of all weightings find the annotated secret: per answer, pooled, and as ROC curves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from atwu.data.arrays import FloatArray
from atwu.evaluation.columns import FORGET, Column
from atwu.evaluation.metric import Metric

if TYPE_CHECKING:
    from atwu.evaluation.auroc import RocCurve
    from atwu.evaluation.teacher_forced import TokenRow
    from atwu.evaluation.weighting_scores import ScoreContext

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


def score_aurocs(context: ScoreContext, names: Iterable[str] | None = None) -> dict[str, ScoreAuroc]:
    """Measure scores against the labels of the rows; by default all that the context allows, `labels` excepted.

    Unlabelled rows are counted for n-grams, but not measured.

    Raises:
        ValueError: an unknown score, or one whose needs are not met.
    """
    from atwu.evaluation.weighting_scores import available, token_scores

    if names is None:
        names = [name for name in available(context.met_needs) if name != "labels"]
    return {name: score_auroc(found, context.tokens) for name, found in token_scores(context, names).items()}


def thinned(curve: RocCurve, points: int = MAX_POINTS) -> RocCurve:
    """At most `points` >= 2 points of a curve, both ends among them, at about equal steps of fpr + tpr."""
    from atwu.evaluation.auroc import RocCurve

    if curve.fpr.size <= points:
        return curve
    kept = np.unique(np.searchsorted(curve.fpr + curve.tpr, np.linspace(0.0, 2.0, points)))
    return RocCurve(fpr=curve.fpr[kept], tpr=curve.tpr[kept])


class ScoreAurocMetric(Metric):
    """AUROC per row and pooled, for every score these rows and this model allow."""

    name = "scores"
    about = "AUROC of the token scores of every weighting"
    cost = "one pass over the forget rows, and counts over all retain rows"
    needs = (FORGET,)
    default = True
    columns = (
        Column(
            "auroc_scorer",
            "atwu.evaluation.auroc:per_sample_auroc",
            "AUROC",
            "how well the learned token scores find the secret words of a row; 0.5 is chance, 1 is perfect",
            sets=(FORGET,),
            direction="up",
        ),
        Column(
            "auroc_{score}",
            "atwu.evaluation.auroc:per_sample_auroc",
            "score AUROC, {score}",
            "how well these token scores find the secret words of a row; 0.5 is chance, 1 is perfect",
            sets=(FORGET,),
            direction="none",
        ),
    )

    def read(self) -> None:
        """Read the forget rows."""
        self.session.tokens(FORGET)

    def record(self) -> None:
        """Record the AUROCs of the forget rows, which are the rows that are weighed."""
        from atwu.evaluation.weighting_scores import ScoreContext

        session = self.session
        if all(row.forget_spans is None for row in session.sets[FORGET]):
            return
        context = ScoreContext(
            tokens=session.tokens(FORGET),
            encoded=session.encoded(FORGET),
            examples=session.sets[FORGET],
            retain=session.encoded_pool() or None,
            retain_text=session.pool,
            auxiliary=session.auxiliary_logps(FORGET),
        )
        curves = {}
        for name, found in score_aurocs(context).items():
            self.record_column(FORGET, f"auroc_{name}", found.values)
            curves[name] = {"auroc": found.pooled, "fpr": list(found.curve.fpr), "tpr": list(found.curve.tpr)}
        session.curves["pooled_roc"] = curves


def score_auroc(scores: Sequence[FloatArray], rows: Sequence[TokenRow]) -> ScoreAuroc:
    """Measure one score, which has one array of shape (tokens,) per row."""
    from atwu.evaluation.auroc import auroc, per_sample_auroc, roc

    found, labels = [], []
    for values, row in zip(scores, rows, strict=True):
        if row.labels is not None:
            found.append(values[row.content])
            labels.append(row.labels[row.content])
    single = iter(per_sample_auroc(found, labels).values)
    pooled = [np.concatenate([np.empty(0), *parts]) for parts in (found, labels)]
    return ScoreAuroc(
        values=tuple(None if row.labels is None else next(single) for row in rows),
        pooled=auroc(*pooled),
        curve=thinned(roc(*pooled)),
    )
