"""AUROC of the token scores of all weightings against labelled tokens: per answer, pooled, and as ROC curves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from atwu.data.arrays import FloatArray
from atwu.evaluation.columns import FORGET, Column
from atwu.evaluation.metric import Metric
from atwu.evaluation.metric_settings import MetricSetting

if TYPE_CHECKING:
    from atwu.evaluation.auroc import RocCurve
    from atwu.evaluation.teacher_forced import TokenRow
    from atwu.evaluation.weighting_scores import ScoreContext

MAX_POINTS = 200
"""Maximum number of points of a stored curve."""


@dataclass(frozen=True, slots=True)
class ScoreAuroc:
    """AUROC of one score over the tokens of the answers' text, without terminal tokens."""

    values: tuple[float | None, ...]
    """AUROC within each row, in [0, 1], higher is better; None without labels or if all labels are equal."""
    pooled: float | None
    """AUROC over the tokens of all labelled rows; None if all labels are equal."""
    curve: RocCurve
    """Pooled curve with at most `MAX_POINTS` points; empty if `pooled` is None."""


def score_aurocs(context: ScoreContext, names: Iterable[str] | None = None) -> dict[str, ScoreAuroc]:
    """Return the AUROC of scores against the rows' labels; by default of all available scores except `labels`.

    Rows without labels count for n-gram frequencies only.

    Raises:
        ValueError: An unknown score, or one whose inputs are missing.
    """
    from atwu.evaluation.weighting_scores import available, token_scores

    if names is None:
        names = [name for name in available(context.met_needs) if name != "labels"]
    return {name: score_auroc(found, context.tokens) for name, found in token_scores(context, names).items()}


def thinned(curve: RocCurve, points: int = MAX_POINTS) -> RocCurve:
    """Reduce a curve to at most `points` >= 2 points, including both ends, at about equal steps of fpr + tpr."""
    from atwu.evaluation.auroc import RocCurve

    if curve.fpr.size <= points:
        return curve
    kept = np.unique(np.searchsorted(curve.fpr + curve.tpr, np.linspace(0.0, 2.0, points)))
    return RocCurve(fpr=curve.fpr[kept], tpr=curve.tpr[kept])


class ScoreAurocMetric(Metric):
    """AUROC of every available token score, per row and pooled."""

    name = "scores"
    about = "AUROC of token scores against labelled tokens, for every token weighting"
    cost = "one forward pass over the forget set, and frequency counts over all retain rows"
    needs = (FORGET,)
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
            "atwu.evaluation.auroc:per_sample_auroc",
            "AUROC",
            "AUROC of the learned token scores against labelled tokens, within a row; 0.5 is chance",
            sets=(FORGET,),
            direction="up",
        ),
        Column(
            "auroc_{score}",
            "atwu.evaluation.auroc:per_sample_auroc",
            "score AUROC, {score}",
            "AUROC of this weighting's token scores against labelled tokens, within a row; 0.5 is chance",
            sets=(FORGET,),
            direction="none",
        ),
    )

    def read(self) -> None:
        """Read the forget rows."""
        self.session.tokens(FORGET)

    def record(self) -> None:
        """Record the AUROCs on the forget set."""
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
            noun_finder=session.config.noun_finder,
        )
        curves = {}
        for name, found in score_aurocs(context).items():
            self.record_column(FORGET, f"auroc_{name}", found.values)
            curves[name] = {"auroc": found.pooled, "fpr": list(found.curve.fpr), "tpr": list(found.curve.tpr)}
        session.curves["pooled_roc"] = curves


def score_auroc(scores: Sequence[FloatArray], rows: Sequence[TokenRow]) -> ScoreAuroc:
    """Return the AUROC of one score, given as one array of shape (tokens,) per row."""
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
