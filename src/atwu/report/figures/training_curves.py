"""Loss parts and score statistics over training, as small multiples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from atwu.report.figures.drawn import Drawn
from atwu.report.figures.style import WIDTH, Series, grid, new_figure, room_for, series_of, styled
from atwu.report.records import Records, RunRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KEY = "training_curves"
TITLE = "Losses and token weights while training"
PARTS = {
    "forget_loss": "forget loss",
    "retain_loss": "retain loss",
    "scorer_loss": "scorer loss",
    "mean_score": "mean token weight",
    "selected": "share of weights above ½",
}
"""Name in the log -> what it is called."""
_POINTS = 900
"""Of all lines of a panel together."""
_WIDE = 30.0
"""Largest value, in medians, from which a panel's scale becomes logarithmic away from zero."""
_COLUMNS = 3
_IN_PANEL = 8
"""Labels that an empty panel has room for."""

FloatArray = NDArray[np.float64]


def training_curves(records: Records, *, focus: str | None = "atwu") -> Drawn:
    """One panel per logged quantity, one line per label, mean over seeds."""
    points = max(12, min(80, _POINTS // max(1, len(records.labels))))
    curves = {
        part: {label: line for label in records.labels if (line := curve(records.of(label), part, points)) is not None}
        for part in PARTS
    }
    curves = {part: lines for part, lines in curves.items() if lines}
    if not curves:
        return Drawn(KEY, None, TITLE, reason="no run has a training log (log.jsonl) beside its results.")
    looks = series_of(records, focus)
    labels = [label for label in records.labels if any(label in lines for lines in curves.values())]
    rows = math.ceil(len(curves) / _COLUMNS)
    free = rows * _COLUMNS > len(curves) and len(labels) <= _IN_PANEL
    across = max(1, int(WIDTH / (room_for(looks[label] for label in labels) + 0.55)))
    legend = 0.0 if free else 0.155 * math.ceil(len(labels) / across) + 0.12
    tips: dict[str, str] = {}
    with styled():
        height = 1.6 * rows + 0.3 + legend
        figure = new_figure(WIDTH, height)
        panels = figure.subplots(rows, _COLUMNS, squeeze=False).ravel()
        for axes, (part, lines) in zip(panels, curves.items(), strict=False):
            for label, line in lines.items():
                _draw(axes, line, looks[label], part, tips)
            _scale(axes, list(lines.values()))
            grid(axes)
            axes.set_title(PARTS[part])
            axes.margins(x=0)
        for axes in panels[len(curves) :]:
            axes.set_axis_off()
        for axes in panels[max(0, len(curves) - _COLUMNS) : len(curves)]:
            axes.set_xlabel("optimizer steps")
        figure.subplots_adjust(
            left=0.085, right=0.985, top=1 - 0.22 / height, bottom=(0.42 + legend) / height, hspace=0.45, wspace=0.3
        )
        handles = [_handle(looks[label]) for label in labels]
        if free:
            shown = panels[len(curves)].legend(handles=handles, loc="center left", handlelength=2.6, labelspacing=0.35)
        else:
            shown = figure.legend(
                handles=handles,
                loc="lower center",
                ncols=across,
                handlelength=2.6,
                columnspacing=1.2,
                labelspacing=0.25,
            )
        for text, label in zip(shown.get_texts(), labels, strict=True):
            text.set_fontweight(looks[label].weight)
            text.set_gid(looks[label].gid("name"))
    caption = (
        "Means over seeds, in bins of neighbouring steps. Forget losses of different methods are different functions: "
        "compare their course, not their height."
    )
    return Drawn(KEY, figure, TITLE, caption, tips=tips)


def curve(runs: Sequence[RunRecord], part: str, points: int) -> tuple[FloatArray, FloatArray] | None:
    """Mean over seeds of a logged quantity, in at most `points` bins of neighbouring steps.

    Returns:
        Mean step and mean value of every bin; None where nothing was logged.
    """
    pairs = [(float(line["step"]), float(line[part])) for run in runs for line in run.log if line.get(part) is not None]
    if not pairs:
        return None
    steps, values = np.array(sorted(pairs), dtype=np.float64).T
    distinct = np.unique(steps)
    bins = np.searchsorted(distinct, steps) * min(points, distinct.size) // distinct.size
    counts = np.bincount(bins)
    return np.bincount(bins, steps) / counts, np.bincount(bins, values) / counts


def _draw(axes: Axes, line: tuple[FloatArray, FloatArray], one: Series, part: str, tips: dict[str, str]) -> None:
    axes.plot(
        *line,
        color=one.colour,
        linewidth=one.width,
        linestyle=one.dashes,
        marker=one.marker,
        markevery=max(1, len(line[0]) // 3),
        markersize=3.5,
        zorder=one.order,
        gid=one.gid(part),
    )
    tips[one.gid(part)] = f"{one.label}: {PARTS[part]} from {line[1][0]:.3g} to {line[1][-1]:.3g}"


def _scale(axes: Axes, lines: Sequence[tuple[FloatArray, FloatArray]]) -> None:
    """One line that runs away must not flatten all others."""
    sizes = np.abs(np.concatenate([values for _, values in lines]))
    middle = float(np.median(sizes))
    if middle > 0 and sizes.max() > _WIDE * middle:
        threshold = 10.0 ** math.ceil(math.log10(2 * middle))
        axes.set_yscale("symlog", linthresh=threshold)
        values = np.concatenate([values for _, values in lines])
        sides = [sign for sign, end in ((-1, -values.min()), (1, values.max())) if end > threshold]
        top = 10.0 ** math.floor(math.log10(sizes.max()))
        ticks = sorted({0.0, *(sign * size for sign in sides for size in (threshold, top))})
        axes.set_yticks(ticks, [f"{tick:g}".replace("-", "−") for tick in ticks])
        axes.yaxis.minorticks_off()


def _handle(one: Series) -> object:
    from matplotlib.lines import Line2D

    return Line2D(
        [],
        [],
        color=one.colour,
        linewidth=one.width,
        linestyle=one.dashes,
        marker=one.marker,
        markersize=4,
        label=one.name,
    )
