"""Figures of a report: forgetting against retention, AUROC over training, and the list of all; token weights are text in colour
(`heatmap.py`).

A point of a trade-off is a label, with its seeds and intervals; the line is the Pareto front.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from atwu._extras import require
from atwu.evaluation.columns import OVERALL
from atwu.evaluation.result import EvalResult, MetricValue, format_number
from atwu.report.before_after import attacks, uplift
from atwu.report.figure import (
    FIGURE_FORMATS,
    GUIDE,
    INK,
    MUTED,
    DrawnFigure,
    FigureDraft,
    Series,
    mark_names,
    new_figure,
    report_figure,
)
from atwu.report.metric_table import DESTROYED, MetricKey, cell_of
from atwu.report.report_records import Records, RunRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CROWDED = 10
"""Number of labels above which intervals and seeds are drawn fainter."""

TradeOffPoint = tuple[MetricValue, MetricValue]


@report_figure("Forgetting against retention")
def trade_off(records: Records, styles: Mapping[str, Series]) -> FigureDraft | str:
    """Draw extraction strength of forget rows against that of retain rows."""
    axes = {
        ("forget", "extraction_strength"): "extraction strength of forget rows (lower: more forgotten)",
        ("retain", "extraction_strength"): "of retain rows (higher: more retained)",
    }
    return _scatter(records, styles, axes)


@report_figure("Judged forget quality (FQ) against retain degradation (RD)")
def trade_off_judged(records: Records, styles: Mapping[str, Series]) -> FigureDraft | str:
    """Draw judged forget quality against retain degradation."""
    axes = {(OVERALL, "FQ"): "FQ in % (higher: more forgotten)", (OVERALL, "RD"): "RD in % (lower: less degradation)"}
    return _scatter(records, styles, axes, origin=(0.0, 0.0))


def pareto(points: Mapping[str, tuple[float, float]], *, x_up: bool, y_up: bool) -> list[str]:
    """Return the Pareto-optimal points, by x."""

    def better(one: tuple[float, float], other: tuple[float, float]) -> bool:
        (ax, ay), (bx, by) = one, other
        x, y = (ax - bx) * (1 if x_up else -1), (ay - by) * (1 if y_up else -1)
        return x >= 0 and y >= 0 and (x > 0 or y > 0)

    front = [name for name, point in points.items() if not any(better(other, point) for other in points.values())]
    return sorted(front, key=lambda name: points[name])


def _scatter(
    records: Records,
    styles: Mapping[str, Series],
    labels: Mapping[MetricKey, str],
    *,
    origin: tuple[float, float] | None = None,
) -> FigureDraft | str:
    """Draw the two metrics that have `labels`; `origin` is the original model's place if it has no values."""

    def point_of(result: EvalResult) -> TradeOffPoint | None:
        x, y = (cell_of(result, key) for key in labels)
        if x is None or y is None:
            return None
        return x, y

    points = {name: point for name, result in records.results.items() if (point := point_of(result)) is not None}
    # A destroyed model forgets everything, too: it would be the best one on its axis. The caption names it instead.
    destroyed = [name for name, word in records.table.out.items() if word == DESTROYED and name in points]
    broken = {name: points.pop(name) for name in destroyed}
    if not any(label in points for label in records.labels):
        points, broken = points | broken, {}
    ranked = [label for label in records.labels if label in points]
    if not ranked:
        metrics = " and ".join(f"{split} {metric}" for split, metric in labels)
        return f"no run has values of {metrics}."
    up = [points[ranked[0]][axis].direction == "up" for axis in (0, 1)]
    if origin is not None and "original" in records.references and "original" not in points:
        digits = [cell.digits for cell in points[ranked[0]]]
        x, y = (MetricValue(value, 0, "none", digits=n) for value, n in zip(origin, digits, strict=True))
        points["original"] = x, y
    crowded = len(ranked) > _CROWDED
    seeds = []
    height = 4.1
    if crowded:
        height = 5.2
    sheet = new_figure(height)
    axes = sheet.subplots()
    axes.grid(True)
    for name, point in points.items():
        style = styles[name]
        faint = 0.5
        if crowded and not style.focus:
            faint = 0.2
        of_seeds = [point_of(run.result) for run in records.of(name)]
        singles = [_xy(single) for single in of_seeds if single is not None]
        look: dict[str, Any] = {"color": style.colour, "linestyle": "none", "marker": style.marker}
        if len(singles) > 1:
            seeds += singles
            quiet = look | {"alpha": faint, "markersize": 3.6, "markeredgewidth": 0, "zorder": 2.5}
            axes.plot(*zip(*singles, strict=True), **quiet)
        whisker: dict[str, Any] = {"color": style.colour, "linewidth": 1.1, "alpha": faint, "zorder": style.order}
        across, along = point
        place = _xy(point)
        if name in ranked and across.low is not None and across.high is not None:
            axes.plot([across.low, across.high], [place[1], place[1]], **whisker)
        if name in ranked and along.low is not None and along.high is not None:
            axes.plot([place[0], place[0]], [along.low, along.high], **whisker)
        # Not clipped: a mark at the limit of the axes is drawn whole.
        look |= {"markersize": 6.5, "markeredgewidth": 0, "zorder": style.order + 1, "clip_on": False}
        if style.focus:
            look["markersize"] = 8
        if style.reference:
            look |= {"markerfacecolor": "none", "markeredgewidth": 1.3}
        axes.plot(*place, **look, label=name)
    front = pareto({label: _xy(points[label]) for label in ranked}, x_up=up[0], y_up=up[1])
    # The line bounds what the front dominates, so its steps turn away from the better corner.
    steps = "steps-post"
    if up[0]:
        steps = "steps-pre"
    axes.plot(*zip(*(_xy(points[name]) for name in front), strict=True), **GUIDE, drawstyle=steps)
    axes.set(**dict(zip(("xlabel", "ylabel"), labels.values(), strict=True)))
    axes.margins(0.12)
    # Fixed from here on, or placing the names would move the limits.
    axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())
    arrow = {(True, True): "↗", (True, False): "↘", (False, True): "↖", (False, False): "↙"}[up[0], up[1]]
    axes.annotate(
        f"better {arrow}",
        xy=(int(up[0]), int(up[1])),
        # Above the axes, or below the labels of their ticks.
        xytext=(0, 4 if up[1] else -26),
        xycoords="axes fraction",
        textcoords="offset points",
        ha="right" if up[0] else "left",
        fontstyle="italic",
        alpha=MUTED,
    )
    first = sorted(points, key=lambda name: (not styles[name].focus, styles[name].reference, name not in front))
    _name_points(axes, {styles[name]: _xy(points[name]) for name in first}, avoid=seeds)
    faint_marks = ""
    if seeds:
        faint_marks = " (faint: single seeds)"
    caption = (
        f"Each mark is the mean over a method's seeds{faint_marks}; whiskers are 95 % "
        "bootstrap intervals over subjects. Open marks are reference models. The dashed line is the Pareto front: "
        "no other method is better in both directions."
    )
    if broken:
        places = (
            f"{name} at ({', '.join(format_number(cell.value, cell.digits) for cell in point)})"
            for name, point in broken.items()
        )
        caption += f" Not drawn, because less than half of the retained knowledge is left: {', '.join(places)}."
    return sheet, caption


def _name_points(
    axes: Axes, names: Mapping[Series, tuple[float, float]], *, avoid: Sequence[tuple[float, float]]
) -> None:
    """Write names next to their points, in this order: close, without overlap, off further points (`avoid`)."""
    points, marks = np.array(list(names.values())), np.array([*names.values(), *avoid])
    for order in (None, "largest"):  # the longest names first if one has no room in the given order
        _, _, texts, lines = require("textalloc", extra="report").allocate(
            axes,
            *points.T,
            [style.name for style in names],
            *(None, *marks.T),
            textsize=8,
            fontweight=[style.weight for style in names],
            textcolor=INK,
            linecolor=INK,
            linewidth=0.5,
            plot_kwargs={"alpha": 0.4},
            margin=0.006,
            min_distance=0.01,
            max_distance=0.45,
            nbr_candidates=600,
            draw_all=order is not None,
            priority_strategy=order,
            avoid_label_lines_overlap=True,
            avoid_crossing_label_lines=True,
        )
        if None not in texts:
            break
        for drawn in filter(None, (*texts, *lines)):
            drawn.remove()
    mark_names(texts, list(names))


def _xy(point: TradeOffPoint) -> tuple[float, float]:
    x, y = point
    assert x.value is not None
    assert y.value is not None
    return x.value, y.value


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
        look: dict[str, Any] = {"color": style.colour, "linewidth": style.width, "zorder": style.order}
        # About six marks a line tell labels of one colour apart; one for each step would hide the line.
        look |= {"marker": style.marker, "markersize": 4, "markevery": max(1, len(steps) // 6), "clip_on": False}
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
    # A run that traced no rows of this kind has no values.
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
