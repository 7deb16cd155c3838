"""Figure of loss terms and score statistics during training, as small multiples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from atwu.data.arrays import FloatArray
from atwu.report.figures.figure import FigureDraft, figure
from atwu.report.figures.figure_style import Series, grid, new_figure, shorten_names
from atwu.report.run_records import Records, RunRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOSS_COMPONENTS = {
    "forget_loss": "forget loss",
    "retain_loss": "retain loss",
    "scorer_loss": "scorer loss",
    "mean_score": "mean token weight",
    "selected": "share of weights above ½",
}
"""Name in the log -> title."""
_POINTS = 900
"""Maximum number of points of all lines in a panel."""
_WIDE = 30.0
"""Ratio of the largest value to the median above which a panel's scale is logarithmic away from zero."""
_COLUMNS = 3


@figure("Losses and token weights during training")
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
    tips: dict[str, str] = {}
    sheet = new_figure(1.6 * rows + 0.45 + 0.165 * math.ceil(len(labels) / across))
    panels = sheet.subplots(rows, _COLUMNS, squeeze=False).ravel()
    handles = {}
    for axes, (part, lines) in zip(panels, curves.items(), strict=False):
        for label, line in lines.items():
            one = styles[label]
            look = one.line | {"markersize": 3.5, "markevery": max(1, len(line[0]) // 3), "label": one.name}
            handles[label] = axes.plot(*line, **look, gid=one.gid(part))[0]
            tips[one.gid(part)] = f"{label}: {LOSS_COMPONENTS[part]} from {line[1][0]:.3g} to {line[1][-1]:.3g}"
        _scale(axes, np.concatenate([values for _, values in lines.values()]))
        grid(axes)
        axes.set_title(LOSS_COMPONENTS[part])
        axes.margins(x=0)
    for axes in panels[len(curves) :]:
        axes.set_axis_off()
    for axes in panels[max(0, len(curves) - _COLUMNS) : len(curves)]:
        axes.set_xlabel("optimizer steps")
    legend = sheet.legend(
        handles=[handles[label] for label in labels], loc="outside lower center", ncols=across, columnspacing=1.2
    )
    shorten_names(legend.get_texts(), [styles[label] for label in labels])
    caption = (
        "Means over seeds, in bins of neighbouring steps. Forget losses of different methods are different "
        "functions: compare their trends, not their values."
    )
    return sheet, caption, tips


def curve(runs: Sequence[RunRecord], part: str, points: int) -> tuple[FloatArray, FloatArray] | None:
    """Mean over seeds of a logged quantity, in at most `points` bins of neighbouring steps.

    Returns:
        Mean step and mean value of every bin; None if nothing was logged.
    """
    pairs = [(float(line["step"]), float(line[part])) for run in runs for line in run.log if line.get(part) is not None]
    if not pairs:
        return None
    steps, values = np.array(sorted(pairs), dtype=np.float64).T
    distinct = np.unique(steps)
    bins = np.searchsorted(distinct, steps) * min(points, distinct.size) // distinct.size
    counts = np.bincount(bins)
    return np.bincount(bins, steps) / counts, np.bincount(bins, values) / counts


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
