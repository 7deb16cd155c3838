"""Figures with one line per label: AUROC of token scores and losses over optimizer steps, erasure over decoder layers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from atwu.data.arrays import FloatArray, as_floats
from atwu.evaluation.columns import FORGET
from atwu.report.figures.figure import GUIDE, FigureDraft, Series, mark_names, new_figure, report_figure
from atwu.report.report_records import Records, RunRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOSS_COMPONENTS = {
    "forget_loss": "forget loss",
    "retain_loss": "retain loss",
    "scorer_loss": "scorer loss",
    "mean_score": "mean token weight",
    "selected": "share of weights above ½",
}
_POINTS = 900
"""Maximum number of points of all lines in a panel."""
_WIDE = 30.0
"""Ratio of the largest value to the median above which a panel's scale is logarithmic away from zero."""
_COLUMNS = 3


def mask_note(records: Records) -> str:
    """Return a sentence about masks that training computes once and a trace recomputes; empty if there are none."""
    traces = {label: [run.trace for run in records.of(label) if run.trace is not None] for label in records.labels}
    found = [label for label, each in traces.items() if any(trace.weighting == "logprob_mask" for trace in each)]
    if not found:
        return ""
    return f" {', '.join(found)}: training uses the mask of the original model; this is the mask of the current model."


@report_figure("AUROC of token scores during training")
def auroc_progression(records: Records, styles: Mapping[str, Series]) -> FigureDraft | str:
    """Draw the AUROC of each label's score over optimizer steps: mean over seeds, with their range."""
    curves = {
        (label, name): found
        for label in records.labels
        for name in ("forget", "holdout")
        if (found := _over_seeds(records.of(label), name)) is not None
    }
    ends = {label: found["mean"].iloc[-1] for (label, name), found in curves.items() if name == "forget"}
    if not ends:
        return "no run recorded token scores during training (trace.json)."
    lines = {}
    sheet = new_figure(max(3.0, 0.6 + 0.165 * len(ends)))
    axes = sheet.subplots()
    for (label, name), found in curves.items():
        one, steps, mean = styles[label], found.index, found["mean"].array
        look = one.line | {"linestyle": "-", "markevery": max(1, len(steps) // 6), "clip_on": False}
        if name == "holdout":
            quiet = {"linestyle": (0, (3, 2)), "linewidth": 0.75 * one.width, "markersize": 3}
            look |= quiet | {"markerfacecolor": "none", "alpha": 0.75}
        elif (found["max"] > found["min"]).any():
            low, high = found["min"], found["max"]
            axes.fill_between(steps, low, high, color=one.colour, alpha=0.16, linewidth=0, zorder=one.order - 1)
        lines[label, name] = axes.plot(steps, mean, **look, label=f"{label}, {name}")[0]
    axes.axhline(0.5, **GUIDE)
    axes.grid(True)
    every = pd.concat(list(curves.values()))
    axes.set_ylim(max(0.0, min(0.5, every["min"].min()) - 0.04), min(1.0, max(0.5, every["max"].max()) + 0.04))
    axes.set_xlim(0, max(1, every.index.max()))
    axes.set(xlabel="optimizer steps", ylabel="mean AUROC within rows")
    order = sorted(ends, key=lambda label: -ends[label])
    names = [f"{ends[label]:.2f}  {styles[label].name}" for label in order]
    handles = [lines[label, "forget"] for label in order]
    place: dict[str, Any] = {"loc": "outside right upper", "title": "AUROC at the end", "alignment": "left"}
    mark_names(sheet.legend(handles, names, **place).get_texts(), [styles[label] for label in order])
    dashed = "; dashed: holdout rows" if any(name == "holdout" for _, name in curves) else ""
    caption = (
        "AUROC, within each row, of the score that each method uses against the labelled tokens, recomputed on the "
        "current model (without the run's exponents): up to 40 rows per set, from before the first step to the "
        f"last{dashed}. Lines are means over seeds, bands range from the lowest to the highest seed. Long dashes: "
        f"chance.{mask_note(records)}"
    )
    return sheet, caption


def _over_seeds(runs: Sequence[RunRecord], name: str) -> pd.DataFrame | None:
    """Mean, lowest and highest AUROC over seeds, at the steps recorded for all of them."""
    traces = [(run.trace.steps, run.trace.auroc.get(name, ())) for run in runs if run.trace is not None]
    found = [pd.Series(values, steps[: len(values)], dtype=float) for steps, values in traces]
    shared = pd.concat(found, axis=1).dropna() if found else pd.DataFrame()
    return None if shared.empty else shared.agg(["mean", "min", "max"], axis=1)


@report_figure("Losses and token weights during training")
def training_curves(records: Records, styles: Mapping[str, Series]) -> FigureDraft | str:
    """Draw one panel per logged quantity, one line per label, mean over seeds."""
    points = max(12, min(80, _POINTS // max(1, len(records.labels))))
    curves = {
        part: {label: line for label in records.labels if (line := curve(records.of(label), part, points)) is not None}
        for part in LOSS_COMPONENTS
    }
    curves = {part: lines for part, lines in curves.items() if lines}
    if not curves:
        return "no run has a training log (log.jsonl)."
    labels = [label for label in records.labels if any(label in lines for lines in curves.values())]
    rows = math.ceil(len(curves) / _COLUMNS)
    across = max(1, min(5, int(82 / (8 + max(len(styles[label].name) for label in labels)))))
    sheet = new_figure(1.6 * rows + 0.45 + 0.165 * math.ceil(len(labels) / across))
    panels = sheet.subplots(rows, _COLUMNS, squeeze=False).ravel()
    handles = {}
    for axes, (part, lines) in zip(panels, curves.items(), strict=False):
        for label, line in lines.items():
            one = styles[label]
            look = one.line | {"markersize": 3.5, "markevery": max(1, len(line[0]) // 3), "label": one.name}
            handles[label] = axes.plot(*line, **look)[0]
        _scale(axes, np.concatenate([values for _, values in lines.values()]))
        axes.grid(True)
        axes.set_title(LOSS_COMPONENTS[part])
        axes.margins(x=0)
    for axes in panels[len(curves) :]:
        axes.set_axis_off()
    for axes in panels[max(0, len(curves) - _COLUMNS) : len(curves)]:
        axes.set_xlabel("optimizer steps")
    legend = sheet.legend(
        handles=[handles[label] for label in labels], loc="outside lower center", ncols=across, columnspacing=1.2
    )
    mark_names(legend.get_texts(), [styles[label] for label in labels])
    caption = (
        "Means over seeds, in bins of neighbouring steps. Forget losses of different methods are different "
        "functions: compare their trends, not their values."
    )
    return sheet, caption


def curve(runs: Sequence[RunRecord], part: str, points: int) -> tuple[FloatArray, FloatArray] | None:
    """Steps and values of a logged quantity, mean over seeds in at most `points` bins of steps; None if not logged."""
    pairs = [(float(line["step"]), float(line[part])) for run in runs for line in run.log if line.get(part) is not None]
    if not pairs:
        return None
    logged = pd.DataFrame(pairs, columns=["step", "value"])
    place = logged.step.rank(method="dense").astype(int) - 1
    steps, values = logged.groupby(place * min(points, place.max() + 1) // (place.max() + 1)).mean().to_numpy().T
    return steps, values


def _scale(axes: Axes, values: FloatArray) -> None:
    """Choose a scale on which one diverging line does not flatten all others."""
    sizes = np.abs(values)
    middle = float(np.median(sizes))
    if middle > 0 and sizes.max() > _WIDE * middle:
        threshold = 10.0 ** math.ceil(math.log10(2 * middle))
        axes.set_yscale("symlog", linthresh=threshold)
        sides = [sign for sign, end in ((-1, -values.min()), (1, values.max())) if end > threshold]
        top = 10.0 ** math.floor(math.log10(sizes.max()))
        ticks = sorted({0.0, *(sign * size for sign in sides for size in (threshold, top))})
        axes.set_yticks(ticks, [f"{tick:g}".replace("-", "−") for tick in ticks])
        axes.yaxis.minorticks_off()


@report_figure("Erasure of key tokens by layer")
def erasure_by_layer(records: Records, styles: Mapping[str, Series]) -> FigureDraft | str:
    """Draw the mean layer erasure ratio of every label, one point per layer."""
    curves = {label: found for label in records.labels if (found := layer_means(records.of(label))).size}
    if not curves:
        return "no run has an unlearning depth score (metric uds)."
    sheet = new_figure(max(2.8, 0.6 + 0.165 * len(curves)))
    axes = sheet.subplots()
    lines = {}
    for label, found in curves.items():
        lines[label] = axes.plot(np.arange(len(found)), found, **styles[label].line, clip_on=False, label=label)[0]
    axes.grid(True)
    axes.set(ylim=(0, 1), xlabel="decoder layer", ylabel="erasure (1: as retain-only)")
    axes.locator_params(axis="x", integer=True)
    order = sorted(curves, key=lambda label: -np.nanmean(curves[label]))
    names = [styles[label].name for label in order]
    legend = sheet.legend([lines[label] for label in order], names, loc="outside right upper", alignment="left")
    mark_names(legend.get_texts(), [styles[label] for label in order])
    caption = (
        "How far hidden states of the unlearned model, put into the original model, lower the log-probability of key "
        "tokens, relative to states of the retain-only model (layer erasure ratio, arXiv 2605.24614). Means over "
        "seeds and the rows that the layer encodes."
    )
    return sheet, caption


def layer_means(runs: Sequence[RunRecord]) -> FloatArray:
    """Mean erasure of every layer over runs and the rows that have it, shape (layers,); empty without values."""
    rows = [run.result.rows[FORGET].metrics for run in runs if FORGET in run.result.rows]
    layers = [{name: values for name, values in each.items() if name.startswith("uds_layer_")} for each in rows]
    return as_floats(pd.concat([pd.DataFrame(each, dtype=float) for each in ({}, *layers)]).mean())
