"""What attacks bring back: before and after, one panel per attack, one row per label."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from atwu.evaluation.intervals import combine
from atwu.evaluation.panel.numbers import Numbers
from atwu.evaluation.result import EvalResult, MetricValue
from atwu.report.figures.drawn import Drawn
from atwu.report.figures.style import (
    INK,
    REFERENCE_DASHES,
    WIDTH,
    Series,
    grid,
    name_rows,
    new_figure,
    room_for,
    series_of,
    styled,
)
from atwu.report.records import Records, RunRecord
from atwu.report.values import cell_of, shown_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORGET = "forget"
_WORDS = {
    "relearn_forget": "relearned:\nforget rows",
    "relearn_retain": "relearned:\nretain rows",
    "int8": "rounded:\n8 bits",
    "int4": "rounded:\n4 bits",
}
_MEASURES = {"J_P": "facts stated in %", "extraction_strength": "extraction strength"}
_FAMILY = "leak_"
_NARROWEST = 0.82
"""Width of a panel in inches, its gap included."""
_ROOMY = 12
"""Labels from which rows move closer."""
_FEWEST = 3
"""Columns of panels, some of them empty if need be, so that a single one is not stretched."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One attack under one measure."""

    before: str
    """Metric without the attack."""
    after: str
    title: str
    measure: str


def attacks(records: Records, *, focus: str | None = "atwu") -> Drawn:
    """Relearning, rounding, the worst family of adversarial probes and the best of several draws."""
    title = "What attacks bring back"
    names = _metrics(records)
    panels = [
        Panel("J_P", name, _spoken(name), _MEASURES["J_P"])
        for name in names
        if name == "leak_worst_family" or name.startswith("leak_best_of_")
    ]
    for before, measure in _MEASURES.items():
        panels += [
            Panel(before, name, _WORDS.get(attack, _plain(attack)), measure)
            for name in names
            for metric, at, attack in [name.partition("@")]
            if at and metric == before
        ]
    caption = (
        "Open: as unlearned. Filled: under attack, with 95 % bootstrap intervals; both on the rows that have both. Vertical "
        "lines: the starting model (dashed) and the retain-only model (dotted) without any attack. Lower is better."
    )
    reason = "no run was attacked (metrics families, sampling, relearning, quantisation)."
    return _dots(records, "attacks", title, panels, caption, reason, focus)


def attack_families(records: Records, *, focus: str | None = "atwu") -> Drawn:
    """Leak rate under each family of adversarial probes (Jin et al. 2024)."""
    panels = [
        Panel("J_P", name, _spoken(name), _MEASURES["J_P"])
        for name in _metrics(records)
        if name.startswith(_FAMILY) and name != "leak_worst_family" and not re.match("leak_(best_of|per_sample)", name)
    ]
    caption = (
        "Facts stated under each of the families of adversarial probes of Jin et al. (2024). Marks and lines as in the "
        "figure of attacks."
    )
    reason = "no run was asked adversarial probes (metrics families)."
    title = "Adversarial wordings, family by family"
    return _dots(records, "attack_families", title, panels, caption, reason, focus)


def before_value(runs: Sequence[RunRecord], panel: Panel) -> float | None:
    """Mean over seeds of what was measured without the attack on the rows the attack was measured on."""
    means = [fmean(before for before, _ in kept) for run in runs if (kept := _pairs(run, panel))]
    return fmean(means) if means else None


def after_value(runs: Sequence[RunRecord], panel: Panel, cell: MetricValue) -> MetricValue:
    """What was measured under attack, on the rows that were also measured without it.

    Args:
        runs: of one label.
        panel: the attack.
        cell: mean over seeds of all attacked rows; it is returned where there is nothing to leave out.
    """
    attacked = [run for run in runs if _pairs(run, panel)]
    counts = {run.seed: len(_pairs(run, panel)) for run in attacked}
    if all(counts[run.seed] == _known(run, panel.after) for run in attacked):
        return cell
    sides = [Numbers(run.result.rows) for run in attacked]
    means = [side.mean(FORGET, panel.after, where=side.values(FORGET, panel.before)) for side in sides]
    mean = combine(lambda *parts: np.mean(parts, axis=0), *means)
    low, high = (mean.interval() if cell.clusters > 1 else None) or (None, None)
    return replace(cell, value=mean.value, low=low, high=high, n=min(counts.values()))


def _pairs(run: RunRecord, panel: Panel) -> list[tuple[float, float]]:
    """Without and under attack, of every row that has both."""
    metrics = run.result.rows[FORGET].metrics if FORGET in run.result.rows else {}
    pairs = zip(metrics.get(panel.before, ()), metrics.get(panel.after, ()), strict=False)
    return [(before, after) for before, after in pairs if before is not None and after is not None]


def _known(run: RunRecord, metric: str) -> int:
    return sum(value is not None for value in run.result.rows[FORGET].metrics.get(metric, ()))


def _metrics(records: Records) -> list[str]:
    """Forget metrics that any label has a value of."""
    results = (records.results[label] for label in records.labels)
    found = ((name, cell_of(result, (FORGET, name))) for result in results for name in result.sets.get(FORGET, {}))
    return list(dict.fromkeys(name for name, cell in found if cell is not None))


def _spoken(name: str) -> str:
    if name == "leak_worst_family":
        return "probes:\nworst family"
    if name.startswith("leak_best_of_"):
        return f"draws:\nbest of {name.rpartition('_')[2]}"
    return _plain(name.removeprefix(_FAMILY))


def _plain(name: str) -> str:
    """Words on two lines of about equal length."""
    words = name.split("_")
    cut = min(range(1, len(words) + 1), key=lambda n: abs(len(" ".join(words[:n])) - len(" ".join(words[n:]))))
    return "\n".join(" ".join(part) for part in (words[:cut], words[cut:]) if part)


def _dots(
    records: Records,
    key: str,
    title: str,
    panels: Sequence[Panel],
    caption: str,
    reason: str,
    focus: str | None,
) -> Drawn:
    if not panels:
        return Drawn(key, None, title, reason=reason)
    looks = series_of(records, focus)
    results = records.results
    labels = [label for label in records.labels if any(_after(results[label], panel) for panel in panels)]
    labels.sort(
        key=lambda label: fmean(float(cell.value or 0) for panel in panels if (cell := _after(results[label], panel)))
    )
    left = room_for(looks[label] for label in labels) + 0.1
    most = max(2, int((WIDTH - left) / _NARROWEST))
    lines = [
        list(line)
        for measure in dict.fromkeys(panel.measure for panel in panels)
        for line in _even([panel for panel in panels if panel.measure == measure], most)
    ]
    columns = max(_FEWEST, max(map(len, lines)))
    tips: dict[str, str] = {}
    with styled():
        body = 0.3 + (0.165 if len(labels) <= _ROOMY else 0.145) * len(labels)
        height = len(lines) * (body + 0.8) + 0.05
        figure = new_figure(WIDTH, height)
        for axes_of_line, line in zip(figure.subplots(len(lines), columns, squeeze=False), lines, strict=True):
            for place, axes in enumerate(axes_of_line):
                if place < len(line):
                    _panel(axes, line[place], labels, records, looks, tips)
                else:
                    axes.set_visible(False)
                if place:
                    axes.set_yticklabels([])
                else:
                    axes.set_xlabel(line[0].measure, fontsize=8, loc="left")
        figure.subplots_adjust(
            left=left / WIDTH, right=0.985, top=1 - 0.36 / height, bottom=0.44 / height, wspace=0.14, hspace=0.8 / body
        )
    return Drawn(key, figure, title, caption, tips=tips)


def _even(panels: Sequence[Panel], most: int) -> list[Sequence[Panel]]:
    """Lines of about equal length with at most `most` panels."""
    size = math.ceil(len(panels) / math.ceil(len(panels) / most))
    return [panels[start : start + size] for start in range(0, len(panels), size)]


def _panel(
    axes: Axes,
    panel: Panel,
    labels: Sequence[str],
    records: Records,
    looks: Mapping[str, Series],
    tips: dict[str, str],
) -> None:
    for row, label in enumerate(labels):
        cell = _after(records.results[label], panel)
        if cell is not None:
            runs = records.of(label)
            _row(axes, row, looks[label], before_value(runs, panel), after_value(runs, panel, cell), panel, tips)
    _references(axes, records, panel)
    name_rows(axes, [looks[label] for label in labels])
    top = 100 if panel.before == "J_P" else 1
    axes.set_xlim(-0.04 * top, 1.04 * top)
    axes.set_xticks([0, top / 2, top], ["0", f"{top / 2:g}", f"{top:g}"])
    first, _, last = axes.get_xticklabels()
    first.set_horizontalalignment("left")
    last.set_horizontalalignment("right")
    grid(axes, "x")
    axes.set_title(panel.title, fontsize=8, linespacing=1.1)


def _after(result: EvalResult, panel: Panel) -> MetricValue | None:
    return cell_of(result, (FORGET, panel.after))


def _row(
    axes: Axes,
    row: int,
    one: Series,
    before: float | None,
    cell: MetricValue,
    panel: Panel,
    tips: dict[str, str],
) -> None:
    assert cell.value is not None
    gid = one.gid(panel.after.replace("@", "-at-"))
    if cell.low is not None and cell.high is not None:
        axes.plot(
            [cell.low, cell.high],
            [row, row],
            color=one.colour,
            linewidth=3.2,
            alpha=0.25,
            solid_capstyle="butt",
            clip_on=False,
        )
    if before is not None:
        axes.plot([before, cell.value], [row, row], color=one.colour, linewidth=1.0, zorder=2, clip_on=False)
        axes.plot(
            before, row, one.marker, markersize=4.5, markerfacecolor="none", markeredgecolor=one.colour, clip_on=False
        )
    axes.plot(
        cell.value,
        row,
        one.marker,
        color=one.colour,
        markersize=6.5 if one.focus else 5.5,
        markeredgewidth=0,
        zorder=4,
        clip_on=False,
        gid=gid,
    )
    was = "" if before is None else f"{shown_number(before, cell.digits)} before, "
    words = panel.title.replace("\n", " ")
    tips[gid] = (
        f"{one.label}, {words}: {panel.measure} {was}{shown_number(cell.value, cell.digits)} after (n = {cell.n})"
    )


def _references(axes: Axes, records: Records, panel: Panel) -> None:
    for role, result in records.references.items():
        cell = cell_of(result, (FORGET, panel.before))
        if cell is not None:
            axes.axvline(cell.value, color=INK, alpha=0.6, linewidth=0.9, linestyle=REFERENCE_DASHES[role], zorder=1)  # type: ignore[arg-type]
