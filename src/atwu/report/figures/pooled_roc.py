"""ROC curves of each method's own token score over all tokens of the forget rows together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from atwu.report.figures.drawn import Drawn
from atwu.report.figures.own_score import own_scores
from atwu.report.figures.style import GUIDE, grid, new_figure, series_of, styled, tell_names
from atwu.report.records import Records

KEY = "pooled_roc"
TITLE = "Do token scores find the secret? All tokens together"
_FPR = np.linspace(0.0, 1.0, 81)


def pooled_roc(records: Records, *, focus: str | None = "atwu") -> Drawn:
    """Pooled ROC curve of each label's own score, mean over seeds at equal false-positive rates."""
    curves: dict[str, tuple[float, NDArray[np.float64]]] = {}
    scores = own_scores(records)
    for label, score in scores.items():
        stored = [run.result.curves.get("pooled_roc", {}).get(score) for run in records.of(label)]
        found = [curve for curve in stored if curve and curve["auroc"] is not None and curve["fpr"]]
        if found:
            heights = [np.interp(_FPR, curve["fpr"], curve["tpr"]) for curve in found]
            curves[label] = float(np.mean([curve["auroc"] for curve in found])), np.mean(heights, axis=0)
    if not curves:
        reason = "no run has pooled ROC curves of a score of its own (metrics 'scores', rows with forget_spans)."
        return Drawn(KEY, None, TITLE, reason=reason)
    looks = series_of(records, focus)
    order = sorted(curves, key=lambda label: -curves[label][0])
    tips = {}
    with styled():
        figure = new_figure(max(3.1, 0.6 + 0.165 * len(order)))
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], **GUIDE)
        lines = []
        for place, label in enumerate(order):
            one, (area, tpr) = looks[label], curves[label]
            every = (4 + 3 * place % 16, 16)
            lines += axes.plot(
                _FPR, tpr, **one.line, markevery=every, label=f"{area:.2f}  {one.name}", gid=one.gid("curve")
            )
            tips[one.gid("curve")] = f"{label}: {scores[label]}, pooled AUROC {area:.3f}"
        grid(axes)
        axes.set(
            xlim=(0, 1), ylim=(0, 1.01), xlabel="share of other tokens found", ylabel="share of secret tokens found"
        )
        axes.set_box_aspect(1)
        axes.set_anchor("W")
        legend = figure.legend(handles=lines, loc="outside right upper", title="pooled AUROC", alignment="left")
        tell_names(legend.get_texts(), [looks[label] for label in order])
    caption = (
        "Tokens of all forget rows, ranked by each method's own score on its unlearned model; mean over seeds. Dashed "
        "diagonal: chance. Pooled curves also need scores to be comparable between rows."
    )
    return Drawn(KEY, figure, TITLE, caption, tips=tips)
