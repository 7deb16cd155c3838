"""Figures of how well each method's own token score finds the labelled tokens.

Within single rows, as one ridge per label; and over all tokens of the forget set, as ROC curves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from atwu.data.arrays import FloatArray
from atwu.report.figures.figure import FigureDraft, figure
from atwu.report.figures.figure_style import GUIDE, MUTED, Series, grid, name_rows, new_figure, shorten_names
from atwu.report.report_table import format_range
from atwu.report.run_records import Records, RunRecord

_GRID = np.linspace(0.0, 1.0, 81)
_BASE, _HEIGHT = 0.28, 0.85
"""Base of a ridge below the middle of its row, and height of the tallest, in rows."""
_COLUMNS = {"mean": 8, "score": 38, "rows": 112}
"""Column next to a ridge -> points right of the axes."""


def own_score(run: RunRecord) -> str | None:
    """Return the name of the score, or None for uniform weights, labels, a combination of two, or an unknown weighting.

    For a result without `run.json`, the learned scorer is assumed if it was evaluated, because only the model's own can
    be.
    """
    if run.run is not None:
        name = str((run.run.get("recipe") or {}).get("weighting", ""))
    else:
        name = run.trace.weighting if run.trace is not None else "scorer"
    return name if name != "labels" and f"auroc_{name}" in run.result.sets.get("forget", {}) else None


def own_scores(records: Records) -> dict[str, str]:
    """Label -> score, for those that have one."""
    found = {label: {own_score(run) for run in records.of(label)} for label in records.labels}
    return {label: next(iter(names)) for label, names in found.items() if len(names) == 1 and None not in names}  # type: ignore[misc]


def row_values(runs: Sequence[RunRecord], metric: str) -> list[float]:
    """Values of all forget rows of all runs, without None."""
    rows = [run.result.rows["forget"] for run in runs if "forget" in run.result.rows]
    return [value for found in rows for value in found.metrics.get(metric, ()) if value is not None]


@figure("AUROC of token scores within rows")
def auroc_ridge(records: Records, styles: Mapping[str, Series]) -> FigureDraft | str:
    """Draw the distribution over forget rows of the AUROC of each label's own score, on its unlearned model."""
    scores = own_scores(records)
    values = {label: row_values(records.of(label), f"auroc_{score}") for label, score in scores.items()}
    values = {label: found for label, found in values.items() if found}
    if not values:
        return "no run has an own token score evaluated against labels (metrics 'scores', forget_spans)."
    order = sorted(values, key=lambda label: -float(np.mean(values[label])))
    tips = {}
    sheet = new_figure(0.75 + (0.52 if len(order) <= 8 else 0.29) * (len(order) + 0.5))
    axes = sheet.subplots()
    beside: list[tuple[float, dict[str, str], str]] = [(-0.85, dict(zip(_COLUMNS, _COLUMNS, strict=True)), "normal")]
    for row, label in enumerate(order):
        one, foot, mean = styles[label], row + _BASE, float(np.mean(values[label]))
        heights = density(values[label])
        top = foot - _HEIGHT * heights / heights.max()
        layer = 2 + row / 100
        axes.fill_between(_GRID, top, foot, color=one.colour, alpha=0.3, linewidth=0, zorder=layer)
        axes.plot(_GRID, top, color=one.colour, linewidth=one.width, zorder=layer, gid=one.gid("ridge"))
        axes.plot(mean, foot, one.marker, color=one.colour, clip_on=False, zorder=4, gid=one.gid("mean"))
        counts = [len(rows) for run in records.of(label) if (rows := row_values([run], f"auroc_{scores[label]}"))]
        count = format_range(counts) + (f" × {len(counts)}" if len(counts) > 1 else "")
        beside.append((row, {"mean": f"{mean:.2f}", "score": scores[label], "rows": count}, one.weight))
        tips[one.gid("mean")] = f"{label}: mean AUROC of {scores[label]} {mean:.3f} over {count} rows"
    for height, words, weight in beside:
        for column, word in words.items():
            quiet = height < 0 or column != "mean"
            look: dict[str, Any] = {"alpha": MUTED} if quiet else {"fontweight": weight}
            place = (_COLUMNS[column], 0)
            axes.annotate(
                word, (1, height), place, textcoords="offset points", va="center", annotation_clip=False, **look
            )
    name_rows(axes, [styles[label] for label in order])
    axes.axvline(0.5, **GUIDE)
    grid(axes, "x")
    axes.set(xlim=(0, 1), ylim=(len(order) - 0.5, -1.0), xlabel="AUROC within a forget row (dashed: chance)")
    caption = (
        "For each forget row, the probability that a labelled token has a higher score than another token: 1 is "
        "perfect, .5 is chance. Ridges are densities over rows and seeds, of equal height; marks are means. Scores "
        "are those of the unlearned model; the figure over steps shows them during training."
    )
    return sheet, caption, tips


def density(values: Sequence[float]) -> FloatArray:
    """Compute a Gaussian kernel density on [0, 1], mirrored at both ends so that no mass leaves the range.

    Returns:
        Heights at 81 points from 0 to 1.
    """
    found = np.asarray(values, dtype=np.float64)
    spread = float(found.std(ddof=1)) if found.size > 1 else 0.0
    width = max(0.02, 1.06 * spread * found.size**-0.2)
    points = np.concatenate([found, -found, 2 - found])
    heights = np.exp(-0.5 * ((_GRID[:, None] - points[None, :]) / width) ** 2).sum(axis=1)
    return np.asarray(heights / (found.size * width * np.sqrt(2 * np.pi)), dtype=np.float64)


@figure("ROC of token scores, all tokens together")
def pooled_roc(records: Records, styles: Mapping[str, Series]) -> FigureDraft | str:
    """Draw the pooled ROC curve of each label's own score, mean over seeds at equal false-positive rates."""
    scores = own_scores(records)
    curves: dict[str, tuple[float, FloatArray]] = {}
    for label, score in scores.items():
        stored = [run.result.curves.get("pooled_roc", {}).get(score) for run in records.of(label)]
        found = [curve for curve in stored if curve and curve["auroc"] is not None and curve["fpr"]]
        if found:
            heights = [np.interp(_GRID, curve["fpr"], curve["tpr"]) for curve in found]
            curves[label] = float(np.mean([curve["auroc"] for curve in found])), np.mean(heights, axis=0)
    if not curves:
        return "no run has pooled ROC curves of its own score (metrics 'scores', rows with forget_spans)."
    order = sorted(curves, key=lambda label: -curves[label][0])
    tips = {}
    sheet = new_figure(max(3.1, 0.6 + 0.165 * len(order)))
    axes = sheet.subplots()
    axes.plot([0, 1], [0, 1], **GUIDE)
    lines = []
    for place, label in enumerate(order):
        one, (area, tpr) = styles[label], curves[label]
        every = (4 + 3 * place % 16, 16)
        lines += axes.plot(
            _GRID, tpr, **one.line, markevery=every, label=f"{area:.2f}  {one.name}", gid=one.gid("curve")
        )
        tips[one.gid("curve")] = f"{label}: {scores[label]}, pooled AUROC {area:.3f}"
    grid(axes)
    axes.set(xlim=(0, 1), ylim=(0, 1.01), xlabel="false-positive rate", ylabel=("share of labelled tokens found"))
    axes.set_box_aspect(1)
    axes.set_anchor("W")
    legend = sheet.legend(handles=lines, loc="outside right upper", title="pooled AUROC", alignment="left")
    shorten_names(legend.get_texts(), [styles[label] for label in order])
    caption = (
        "All tokens of the forget set, ranked by each method's own score on its unlearned model; mean over seeds. "
        "Dashed diagonal: chance. Unlike the AUROC within rows, pooled curves need scores that are comparable "
        "between rows."
    )
    return sheet, caption, tips
