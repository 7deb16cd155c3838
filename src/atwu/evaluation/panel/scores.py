"""How well the token scores of every weighting find the annotated secret, on the model as it is."""

from __future__ import annotations

from atwu.evaluation.panel.group import Group
from atwu.evaluation.panel.session import FORGET
from atwu.evaluation.score_table import ScoreContext, score_aurocs


class Scores(Group):
    """AUROC per row and pooled, for every score these rows and this model allow."""

    def read(self) -> None:
        """Read the forget rows."""
        self.session.tokens(FORGET)

    def record(self) -> None:
        """Record the AUROCs of the forget rows, which are the rows that are weighed."""
        session = self.session
        if all(row.forget_spans is None for row in session.sets[FORGET]):
            return
        context = ScoreContext(
            tokens=session.tokens(FORGET),
            encoded=session.encoded(FORGET),
            examples=session.sets[FORGET],
            retain=session.encoded_pool() or None,
        )
        curves = {}
        for name, found in score_aurocs(context).items():
            session.record(FORGET, f"auroc_{name}", found.values, direction="up" if name == "scorer" else "none")
            curves[name] = {"auroc": found.pooled, "fpr": list(found.curve.fpr), "tpr": list(found.curve.tpr)}
        session.curves["pooled_roc"] = curves
