"""Figures of a report, saved as PDF and SVG or embedded in a page; token weights are text in colour (`heatmap.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from atwu.report.before_after import attacks, uplift
from atwu.report.figure import (
    FIGURE_FORMATS,
    GUIDE,
    DrawnFigure,
    FigureDraft,
    Series,
    mark_names,
    new_figure,
    report_figure,
)
from atwu.report.report_records import Records, RunRecord
from atwu.report.trade_off import trade_off, trade_off_judged


def mask_note(records: Records) -> str:
    """Return a sentence about masks that training computes once and a trace recomputes; empty if there are none."""
    traces = {label: [run.trace for run in records.of(label) if run.trace is not None] for label in records.labels}
    masked = [label for label, runs in traces.items() if any(trace.weighting == "logprob_mask" for trace in runs)]
    if not masked:
        return ""
    return f" {', '.join(masked)}: training uses the mask of the original model; this is the mask of the current model."


@report_figure("AUROC of token scores during training")
def auroc_progression(records: Records, styles: Mapping[str, Series]) -> FigureDraft | str:
    """Draw the AUROC of each label's score over optimizer steps: mean over seeds, with their range."""
    curves: dict[tuple[str, str], pd.DataFrame] = {}
    for label in records.labels:
        for name in ("forget", "holdout"):
            curve = _over_seeds(records.of(label), name)
            if curve is not None:
                curves[label, name] = curve
    ends = {label: curve["mean"].iloc[-1] for (label, name), curve in curves.items() if name == "forget"}
    if not ends:
        return "no run recorded token scores during training (trace.json)."
    lines = {}
    sheet = new_figure(max(3.0, 0.6 + 0.165 * len(ends)))
    axes = sheet.subplots()
    for (label, name), curve in curves.items():
        style, steps, mean = styles[label], curve.index, curve["mean"].array
        look = style.line | {"linestyle": "-", "markevery": max(1, len(steps) // 6), "clip_on": False}
        if name == "holdout":
            quiet = {"linestyle": (0, (3, 2)), "linewidth": 0.75 * style.width, "markersize": 3}
            look |= quiet | {"markerfacecolor": "none", "alpha": 0.75}
        elif (curve["max"] > curve["min"]).any():
            low, high = curve["min"], curve["max"]
            axes.fill_between(steps, low, high, color=style.colour, alpha=0.16, linewidth=0, zorder=style.order - 1)
        lines[label, name] = axes.plot(steps, mean, **look, label=f"{label}, {name}")[0]
    axes.axhline(0.5, **GUIDE)
    axes.grid(True)
    # Chance is always in sight: a curve near it would otherwise look like one that rises far.
    every = pd.concat(list(curves.values()))
    axes.set_ylim(max(0.0, min(0.5, every["min"].min()) - 0.04), min(1.0, max(0.5, every["max"].max()) + 0.04))
    axes.set_xlim(0, max(1, every.index.max()))
    axes.set(xlabel="optimizer steps", ylabel="mean AUROC within rows")
    order = sorted(ends, key=lambda label: -ends[label])
    names = [f"{ends[label]:.2f}  {styles[label].name}" for label in order]
    handles = [lines[label, "forget"] for label in order]
    place: dict[str, Any] = {"loc": "outside right upper", "title": "AUROC at the end", "alignment": "left"}
    mark_names(sheet.legend(handles, names, **place).get_texts(), [styles[label] for label in order])
    dashed = ""
    if any(name == "holdout" for _, name in curves):
        dashed = "; dashed: holdout rows"
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
    lines = [pd.Series(values, steps[: len(values)], dtype=float) for steps, values in traces]
    if not lines:
        return None
    shared = pd.concat(lines, axis=1).dropna()
    if shared.empty:
        return None
    return shared.agg(["mean", "min", "max"], axis=1)


FIGURES: Mapping[str, Callable[..., DrawnFigure]] = {
    draw.__name__: draw for draw in (trade_off, trade_off_judged, uplift, auroc_progression, attacks)
}
"""Name -> figure(records, focus=LABEL), in the order of the report."""


def all_figures(records: Records, *, focus: str | None = "atwu") -> list[DrawnFigure]:
    """Draw all figures; those without data contain the reason."""
    return [draw(records, focus=focus) for draw in FIGURES.values()]


def save_figures(records: Records, folder: str | Path, *, focus: str | None = "atwu") -> list[Path]:
    """Save every figure that has data as KEY.pdf and KEY.svg; returns the files in the order of the report."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for drawn in all_figures(records, focus=focus):
        if drawn.figure is None:
            continue
        for form in FIGURE_FORMATS:
            path = folder / f"{drawn.key}.{form}"
            path.write_bytes(drawn.bytes(form))
            written.append(path)
    return written
