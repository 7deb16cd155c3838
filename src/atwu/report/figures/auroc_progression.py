"""Figure of the AUROC of token scores during training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from atwu.report.figures.figure import FigureDraft, figure
from atwu.report.figures.figure_style import GUIDE, Series, grid, new_figure
from atwu.report.figures.label_placement import name_ends
from atwu.report.run_records import Records, RunRecord


def mask_note(records: Records) -> str:
    """Return a sentence about masks that training computes once and a trace recomputes; empty if there are none."""
    found = [
        label
        for label in records.labels
        if any(run.trace is not None and run.trace.weighting == "logprob_mask" for run in records.of(label))
    ]
    if not found:
        return ""
    return f" {', '.join(found)}: training uses the mask of the original model; this is the mask of the current model."


@figure("AUROC of token scores during training")
def auroc_progression(records: Records, styles: Mapping[str, Series]) -> FigureDraft | str:
    """Draw the AUROC of each label's score over optimizer steps: mean over seeds, with their range."""
    curves = {
        (label, name): found
        for label in records.labels
        for name in ("forget", "holdout")
        if (found := _over_seeds(records.of(label), name)) is not None
    }
    ends = {label: found for (label, name), found in curves.items() if name == "forget"}
    if not ends:
        return "no run recorded token scores during training (trace.json)."
    tips = {}
    sheet = new_figure(max(3.0, 0.6 + 0.155 * len(ends)))
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
        axes.plot(steps, mean, **look, gid=one.gid(name))
        tips[one.gid(name)] = f"{label}, {name} rows: {mean[0]:.3f} at step {steps[0]}, {mean[-1]:.3f} at the end"
    axes.axhline(0.5, **GUIDE)
    grid(axes)
    every = pd.concat(list(curves.values()))
    axes.set_ylim(max(0.0, min(0.5, every["min"].min()) - 0.04), min(1.0, max(0.5, every["max"].max()) + 0.04))
    axes.set_xlim(0, max(1, every.index.max()))
    axes.set(xlabel="optimizer steps", ylabel="mean AUROC within rows")
    name_ends(axes, {styles[label]: (found.index[-1], found["mean"].iloc[-1]) for label, found in ends.items()})
    dashed = "; dashed: holdout rows" if any(name == "holdout" for _, name in curves) else ""
    caption = (
        "AUROC, within each row, of the score that each method uses against the labelled tokens, recomputed on the "
        "current model (without the run's exponents): up to 40 rows per set, from before the first step to the "
        f"last{dashed}. Lines are means over seeds, bands range from the lowest to the highest seed. Long dashes: "
        f"chance.{mask_note(records)}"
    )
    return sheet, caption, tips


def _over_seeds(runs: Sequence[RunRecord], name: str) -> pd.DataFrame | None:
    """Mean, lowest and highest AUROC over seeds, at the steps recorded for all of them."""
    found = [
        pd.Series(run.trace.auroc.get(name, ()), run.trace.steps[: len(run.trace.auroc.get(name, ()))], dtype=float)
        for run in runs
        if run.trace is not None
    ]
    styles = pd.concat(found, axis=1).dropna() if found else pd.DataFrame()
    return None if styles.empty else styles.agg(["mean", "min", "max"], axis=1)
