"""Figures of two values per row, the first open and the second filled: metrics under attack, and gains from token weights."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from atwu.evaluation.columns import FORGET, OVERALL
from atwu.report.figure import INK, MUTED, REFERENCE_DASHES, FigureDraft, Series, name_rows, new_figure, report_figure
from atwu.report.metric_table import REFERENCE_MODELS, MetricKey
from atwu.report.report_records import Records, RunRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TITLES = {
    "leak_worst_family": "probes:\nworst family",
    "relearn_forget": "relearned:\nforget rows",
    "relearn_retain": "relearned:\nretain rows",
    "int8": "quantized:\n8 bits",
    "int4": "quantized:\n4 bits",
}
_MEASURES = {"J_P": "facts stated in %", "extraction_strength": "extraction strength"}
_ACROSS = range(3, 6)
"""Number of panels per row; some may stay empty, so that a single panel is not stretched."""
_ROOMY = 12
"""Number of labels above which rows are closer together."""


class Panel(NamedTuple):
    """Metric without and under one attack."""

    before: str
    after: str

    @property
    def title(self) -> str:
        """The attack, on two lines."""
        name = self.after.removeprefix(f"{self.before}@")
        if name.startswith("leak_best_of_"):
            return f"sampling:\nbest of {name.rpartition('_')[2]}"
        return _TITLES.get(name) or name.replace("_", " ").replace(" ", "\n", 1)


@report_figure("Metrics under attack")
def attacks(records: Records, styles: Mapping[str, Series]) -> FigureDraft | str:
    """Draw relearning, quantization, the worst attack family of probes and best-of-n sampling."""
    frame = records.table.frame[records.table.frame.set == FORGET]
    names = list(frame.metric[~frame.reference].unique())
    panels = [Panel("J_P", name) for name in names if re.match("leak_(worst_family|best_of_)", name)]
    panels += [Panel(before, name) for before in _MEASURES for name in names if name.startswith(f"{before}@")]
    if not panels:
        return "no run has attack metrics (metrics families, sampling, relearning, quantization)."
    attacked = frame[frame.metric.isin([panel.after for panel in panels])]
    labels = list(
        attacked[~attacked.reference].groupby("label", sort=False).value.mean().sort_values(kind="stable").index
    )
    cells = {(cell.label, cell.metric): cell for cell in frame.itertuples()}
    # Rows of about equal length, with one measure per row: the axes of a row share their labels and their scale.
    lines: list[Sequence[Panel]] = []
    for measure in dict.fromkeys(panel.before for panel in panels):
        of_measure = [panel for panel in panels if panel.before == measure]
        size = math.ceil(len(of_measure) / math.ceil(len(of_measure) / _ACROSS[-1]))
        lines += [of_measure[start : start + size] for start in range(0, len(of_measure), size)]
    row_height = 0.165
    if len(labels) > _ROOMY:
        row_height = 0.145
    body = 0.3 + row_height * len(labels)
    sheet = new_figure(len(lines) * (body + 0.8))
    every = sheet.subplots(len(lines), max(_ACROSS[0], *map(len, lines)), squeeze=False)
    look: dict[str, Any] = {"linewidth": 0.9, "alpha": 0.6, "zorder": 1}
    for across, line in zip(every, lines, strict=True):
        name_rows(across[0], [styles[label] for label in labels])
        across[0].set_xlabel(_MEASURES[line[0].before], fontsize=8, loc="left")
        for axes in across[1:]:
            # Rows are named once, at the first panel of a line.
            axes.sharey(across[0])
            axes.spines["left"].set_visible(False)
            axes.tick_params(axis="y", length=0, labelleft=False)
        for axes in across[len(line) :]:
            axes.set_visible(False)
        for axes, panel in zip(across, line, strict=False):
            for row, label in enumerate(labels):
                after = cells.get((label, panel.after))
                if after:
                    _row(axes, row, styles[label], before_value(records.of(label), panel), after)
            for role in REFERENCE_MODELS:
                cell = cells.get((role, panel.before))
                if cell:
                    axes.axvline(cell.value, color=INK, **look, linestyle=REFERENCE_DASHES[role])
            top = 100 if panel.before == "J_P" else 1
            ticks = [0, top / 2, top]
            axes.set(xlim=(-0.04 * top, 1.04 * top), xticks=ticks, xticklabels=[f"{tick:g}" for tick in ticks])
            first, _, last = axes.get_xticklabels()
            # Centred below the ends, they would run into those of the next panel.
            first.set_horizontalalignment("left")
            last.set_horizontalalignment("right")
            axes.grid(True, axis="x")
            axes.set_title(panel.title, fontsize=8, linespacing=1.1)
    caption = (
        "Filled: under attack, with 95 % bootstrap intervals. Open: the same rows without attack. Vertical lines: the "
        "original model (dashed) and the retain-only model (dotted), without attack. Lower is better."
    )
    return sheet, caption


def before_value(runs: Sequence[RunRecord], panel: Panel) -> float | None:
    """Mean over seeds of the metric without attack, on the rows that have both values."""
    means = []
    for run in runs:
        if FORGET not in run.result.rows:
            continue
        metrics = run.result.rows[FORGET].metrics
        # A metric that was not measured has no values, and so no pairs.
        pairs = zip(metrics.get(panel.before, ()), metrics.get(panel.after, ()), strict=False)
        kept = [before for before, after in pairs if before is not None and after is not None]
        if kept:
            means.append(fmean(kept))
    if not means:
        return None
    return fmean(means)


def _row(axes: Axes, row: int, style: Series, before: float | None, after: Any) -> None:
    """Draw a label's values; `after` is a row of the frame."""
    # A mark at the end of the axis is drawn whole.
    look: dict[str, Any] = {"color": style.colour, "clip_on": False}
    axes.plot([after.low, after.high], [row, row], **look, linewidth=3.2, alpha=0.25, solid_capstyle="butt")
    if before is not None:
        axes.plot([before, after.value], [row, row], **look, linewidth=1.0, zorder=2)
        axes.plot(before, row, style.marker, **look, markersize=4.5, markerfacecolor="none")
    size = 5.5
    if style.focus:
        size = 6.5
    axes.plot(after.value, row, style.marker, **look, markersize=size, markeredgewidth=0, zorder=4)


UQ: MetricKey = (OVERALL, "UQ")

_WGA = ("saturation", "ga")
_WITHOUT = {"satga": (_WGA, ("uniform", "satga")), "satga_plus": (_WGA, ("uniform", "satga"))}
"""Forget loss -> weighting and forget loss of the equivalent without scores; `uniform` and the same loss for all
others.

With all scores equal to 1 both are p^beta log p, which is WGA.
"""


def without_scores(records: Records) -> dict[str, str]:
    """Label with learned scores -> label without, with the same forget loss, retain loss and configuration."""
    parts = {}
    for label in records.labels:
        run = records.of(label)[0].run or {}
        recipe, config = run.get("recipe") or {}, run.get("config") or {}
        named = [recipe.get(name, "") for name in ("weighting", "forget_loss", "retain_loss")]
        # The configuration counts, since it changes values of scores and losses alike.
        parts[label] = (*map(str, named), str(config.get("configuration", "")))
    unscored = {}
    for label, (weighting, loss, *others) in parts.items():
        wanted = [(*alone, *others) for alone in _WITHOUT.get(loss, (("uniform", loss),))]
        same = [other for sought in wanted for other in records.labels if parts[other] == sought]
        if weighting == "scorer" and same:
            unscored[label] = same[0]
    return unscored


@report_figure("Gain from learned token weights per forget loss")
def uplift(records: Records, styles: Mapping[str, Series]) -> FigureDraft | str:
    """Draw UQ without and with learned scores, one row per forget loss, the largest gain first."""
    cells = {cell.label: cell for cell in records.table.only([UQ]).frame.itertuples()}
    pairs = {
        label: (other, cells[other].value, cells[label].value, cells[label].digits)
        for label, other in without_scores(records).items()
        if {label, other} <= cells.keys()
    }
    if not pairs:
        return (
            "no forget loss has runs both with and without learned scores that were judged against the original "
            "model (UQ)."
        )
    order = sorted(pairs, key=lambda label: pairs[label][1] - pairs[label][2])  # the largest gain first
    sheet = new_figure(0.75 + 0.34 * len(order))
    axes = sheet.subplots()
    for row, label in enumerate(order):
        style, (unscored, before, after, digits) = styles[label], pairs[label]
        axes.plot([before, after], [row, row], color=style.colour, linewidth=style.width, zorder=style.order)
        look: dict[str, Any] = {
            "color": style.colour,
            "marker": style.marker,
            "clip_on": False,
            "zorder": style.order + 1,
        }
        axes.plot(before, row, **look, markerfacecolor="none", markeredgewidth=1.3, label=unscored)
        axes.plot(after, row, **look, label=label)
        ends = None
        difference = records.difference(label, unscored, UQ)
        if difference is not None:
            ends = difference.interval()
        interval = ""
        if ends is not None:
            interval = f"[{', '.join(f'{end:+.{digits}f}' for end in ends)}]"
        strong: dict[str, Any] = {"fontweight": style.weight}
        faint: dict[str, Any] = {"alpha": MUTED}
        # Three columns right of the axes; their places in points leave room for numbers of this width.
        columns = (
            (f"{after - before:+.{digits}f}", 8, strong),
            (interval, 38, faint),
            (f"over {styles[unscored].name}", 102, faint),
        )
        for text, place, font in columns:
            axes.annotate(
                text,
                (1, row),
                (place, 0),
                xycoords=("axes fraction", "data"),
                textcoords="offset points",
                va="center",
                annotation_clip=False,
                **font,
            )
    name_rows(axes, [styles[label] for label in order])
    axes.grid(True, axis="x")
    axes.set(xlim=(0, max(1.0, axes.get_xlim()[1])), xlabel="UQ in % (higher: more forgotten with less degradation)")
    caption = (
        "Open marks: the forget loss alone; filled: with learned scores; each has the values of its runs. On the "
        "right: the gain, its paired 95 % bootstrap interval over rows and shared seeds, and the method it is "
        "relative to."
    )
    return sheet, caption
