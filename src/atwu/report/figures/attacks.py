"""Figures of attacks: each metric without and under attack, one panel per attack, one row per label."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from atwu.evaluation.columns import FORGET
from atwu.evaluation.intervals import mean_of
from atwu.evaluation.result import MetricValue, format_number
from atwu.evaluation.row_statistics import RowMetrics
from atwu.report.figures.figure import FigureDraft, report_figure
from atwu.report.figures.figure_style import INK, REFERENCE_DASHES, Series, grid, name_rows, new_figure
from atwu.report.run_records import Records, RunRecord
from atwu.report.table_values import cell_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WORDS = {
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


@dataclass(frozen=True, slots=True)
class Panel:
    """One attack and one measure."""

    before: str
    """Metric without the attack."""
    after: str
    title: str

    @property
    def measure(self) -> str:
        """Name of the measure."""
        return _MEASURES[self.before]


@report_figure("Metrics under attack")
def attacks(records: Records, styles: Mapping[str, Series]) -> FigureDraft | str:
    """Draw relearning, quantization, the worst attack family of probes and best-of-n sampling."""
    names = _metrics(records)
    panels = [Panel("J_P", name, _spoken(name)) for name in names if re.match("leak_(worst_family|best_of_)", name)]
    for before in _MEASURES:
        after = [name for name in names if name.startswith(f"{before}@")]
        panels += [Panel(before, name, _spoken(name.partition("@")[2])) for name in after]
    caption = (
        "Open: without attack. Filled: under attack, with 95 % bootstrap intervals; both on rows that have both. "
        "Vertical lines: the original model (dashed) and the retain-only model (dotted), without attack. Lower is "
        "better."
    )
    reason = "no run has attack metrics (metrics families, sampling, relearning, quantization)."
    return _dots(records, panels, styles, caption) if panels else reason


@report_figure("Adversarial probes by family")
def attack_families(records: Records, styles: Mapping[str, Series]) -> FigureDraft | str:
    """Draw the leak rate under each family of adversarial probes (Jin et al. 2024)."""
    family = re.compile("leak_(?!worst_family|best_of|per_sample)")
    panels = [Panel("J_P", name, _spoken(name)) for name in _metrics(records) if family.match(name)]
    caption = (
        "Rate of stated facts under each family of adversarial probes (Jin et al. 2024). Marks and lines as in the "
        "previous figure."
    )
    reason = "no run has results for adversarial probes (metrics families)."
    return _dots(records, panels, styles, caption) if panels else reason


def before_value(runs: Sequence[RunRecord], panel: Panel) -> float | None:
    """Mean over seeds of the metric without attack, on the attacked rows."""
    means = [fmean(before for before, _ in kept) for run in runs if (kept := _pairs(run, panel))]
    return fmean(means) if means else None


def after_value(runs: Sequence[RunRecord], panel: Panel, cell: MetricValue) -> MetricValue:
    """Metric under attack, on rows that also have a value without attack.

    Args:
        cell: mean over seeds of all attacked rows; returned unchanged if no row is excluded.
    """
    attacked = [(run, len(kept)) for run in runs if (kept := _pairs(run, panel))]
    every = [run.result.rows[FORGET].metrics[panel.after] for run, _ in attacked]
    if all(len(values) - values.count(None) == kept for (_, kept), values in zip(attacked, every, strict=True)):
        return cell
    sides = [RowMetrics(run.result.rows) for run, _ in attacked]
    mean = mean_of(*(side.mean(FORGET, panel.after, where=side.values(FORGET, panel.before)) for side in sides))
    low, high = (mean.interval() if cell.clusters > 1 else None) or (None, None)
    return replace(cell, value=mean.value, low=low, high=high, n=min(count for _, count in attacked))


def _pairs(run: RunRecord, panel: Panel) -> list[tuple[float, float]]:
    """Values without and under attack, of every row that has both."""
    metrics = run.result.rows[FORGET].metrics if FORGET in run.result.rows else {}
    pairs = zip(metrics.get(panel.before, ()), metrics.get(panel.after, ()), strict=False)
    return [(before, after) for before, after in pairs if before is not None and after is not None]


def _metrics(records: Records) -> list[str]:
    """Forget metrics that any label has a value of."""
    results = [records.results[label] for label in records.labels]
    names = dict.fromkeys(name for result in results for name in result.sets.get(FORGET, {}))
    return [name for name in names if any(cell_of(result, (FORGET, name)) is not None for result in results)]


def _spoken(name: str) -> str:
    """Split an attack's name into two lines of about equal length."""
    if name.startswith("leak_best_of_"):
        return f"sampling:\nbest of {name.rpartition('_')[2]}"
    words = name.removeprefix("leak_").split("_")
    cut = min(range(1, len(words) + 1), key=lambda n: abs(len(" ".join(words[:n])) - len(" ".join(words[n:]))))
    return _WORDS.get(name) or "\n".join(" ".join(part) for part in (words[:cut], words[cut:]) if part)


def _dots(records: Records, panels: Sequence[Panel], styles: Mapping[str, Series], caption: str) -> FigureDraft:
    cells = {
        (label, panel): cell
        for label in records.labels
        for panel in panels
        if (cell := cell_of(records.results[label], (FORGET, panel.after))) is not None
    }
    labels = sorted(
        dict.fromkeys(label for label, _ in cells),
        key=lambda label: fmean(float(cell.value or 0) for (name, _), cell in cells.items() if name == label),
    )
    lines = _lines(panels)
    tips: dict[str, str] = {}
    body = 0.3 + (0.165 if len(labels) <= _ROOMY else 0.145) * len(labels)
    sheet = new_figure(len(lines) * (body + 0.8))
    for across, line in zip(
        sheet.subplots(len(lines), max(_ACROSS[0], *map(len, lines)), squeeze=False), lines, strict=True
    ):
        name_rows(across[0], [styles[label] for label in labels])
        across[0].set_xlabel(line[0].measure, fontsize=8, loc="left")
        for axes in across[1:]:
            axes.sharey(across[0])
            axes.spines["left"].set_visible(False)
            axes.tick_params(axis="y", length=0, labelleft=False)
        for axes in across[len(line) :]:
            axes.set_visible(False)
        for axes, panel in zip(across, line, strict=False):
            for row, label in enumerate(labels):
                if (label, panel) in cells:
                    runs = records.of(label)
                    after = after_value(runs, panel, cells[label, panel])
                    tips |= _row(axes, row, styles[label], before_value(runs, panel), after, panel)
            _frame(axes, records, panel)
    return sheet, caption, tips


def _lines(panels: Sequence[Panel]) -> list[Sequence[Panel]]:
    """Arrange panels in rows of about equal length, one measure per row."""
    found: list[Sequence[Panel]] = []
    for measure in dict.fromkeys(panel.measure for panel in panels):
        mine = [panel for panel in panels if panel.measure == measure]
        size = math.ceil(len(mine) / math.ceil(len(mine) / _ACROSS[-1]))
        found += [mine[start : start + size] for start in range(0, len(mine), size)]
    return found


def _row(
    axes: Axes, row: int, one: Series, before: float | None, after: MetricValue, panel: Panel
) -> Iterable[tuple[str, str]]:
    """Draw one label in a panel; yields its tooltip by gid."""
    assert after.value is not None
    look: dict[str, Any] = {"color": one.colour, "clip_on": False}
    if after.low is not None and after.high is not None:
        axes.plot([after.low, after.high], [row, row], **look, linewidth=3.2, alpha=0.25, solid_capstyle="butt")
    if before is not None:
        axes.plot([before, after.value], [row, row], **look, linewidth=1.0, zorder=2)
        axes.plot(before, row, one.marker, **look, markersize=4.5, markerfacecolor="none")
    gid = one.gid(panel.after.replace("@", "-at-"))
    size = 6.5 if one.focus else 5.5
    axes.plot(after.value, row, one.marker, **look, markersize=size, markeredgewidth=0, zorder=4, gid=gid)
    was = "" if before is None else f"{format_number(before, after.digits)} before, "
    what = f"{one.label}, {' '.join(panel.title.split())}: {panel.measure}"
    yield gid, f"{what} {was}{format_number(after.value, after.digits)} after (n = {after.n})"


def _frame(axes: Axes, records: Records, panel: Panel) -> None:
    """Set scale and title, and draw the reference models."""
    for role, result in records.references.items():
        cell = cell_of(result, (FORGET, panel.before))
        if cell is not None:
            axes.axvline(cell.value, color=INK, alpha=0.6, linewidth=0.9, linestyle=REFERENCE_DASHES[role], zorder=1)  # type: ignore[arg-type]
    top = 100 if panel.before == "J_P" else 1
    axes.set(xlim=(-0.04 * top, 1.04 * top), xticks=[0, top / 2, top], xticklabels=["0", f"{top / 2:g}", f"{top:g}"])
    first, _, last = axes.get_xticklabels()
    first.set_horizontalalignment("left")
    last.set_horizontalalignment("right")
    grid(axes, "x")
    axes.set_title(panel.title, fontsize=8, linespacing=1.1)
