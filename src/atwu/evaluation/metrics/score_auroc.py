"""AUROC of the token scores of all weightings against labelled tokens, within each answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from atwu.data.arrays import FloatArray
from atwu.evaluation.columns import FORGET, Column
from atwu.evaluation.metric import Metric, MetricSetting

if TYPE_CHECKING:
    from atwu.evaluation.teacher_forced import TokenRow
    from atwu.evaluation.weighting_scores import ScoreContext


def score_aurocs(context: ScoreContext) -> dict[str, tuple[float | None, ...]]:
    """Return the AUROC of every available score against the rows' labels, except of `labels` itself.

    Rows without labels count for n-gram frequencies only.
    """
    from atwu.evaluation.weighting_scores import available, token_scores

    names = [name for name in available(context.inputs) if name != "labels"]
    return {name: score_auroc(found, context.tokens) for name, found in token_scores(context, names).items()}


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

    def record(self) -> None:
        from atwu.evaluation.weighting_scores import ScoreContext

        session = self.session
        if all(row.forget_spans is None for row in session.sets[FORGET]):
            return
        encoded, device = session.encoded(FORGET), next(session.model.parameters()).device
        context = ScoreContext(
            tokens=session.tokens(FORGET),
            encoded=encoded,
            examples=session.sets[FORGET],
            retain=session.encoded_pool() or None,
            retain_text=session.pool,
            auxiliary=None
            if session.auxiliary is None
            else session.auxiliary.logps(encoded, device=device, batch_tokens=session.config.batch_tokens),
            noun_finder=session.config.noun_finder,
        )
        for name, values in score_aurocs(context).items():
            self.record_column(FORGET, f"auroc_{name}", values)


def score_auroc(scores: Sequence[FloatArray], rows: Sequence[TokenRow]) -> tuple[float | None, ...]:
    """Return the AUROC of one score within each row, over the tokens of the answer's text, without terminal tokens.

    Values in [0, 1], higher is better; None without labels or if all labels are equal.
    """
    from atwu.evaluation.auroc import auroc

    return tuple(
        None if row.labels is None else auroc(values[row.content], row.labels[row.content])
        for values, row in zip(scores, rows, strict=True)
    )
