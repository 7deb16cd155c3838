"""Figure of cost per run: training time, peak memory and price of the judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean

from atwu.report.figures.figure import FigureDraft, figure
from atwu.report.figures.figure_style import INK, Series, name_rows, new_figure
from atwu.report.run_records import Records, RunRecord


@dataclass(frozen=True, slots=True)
class Quantity:
    """One kind of cost."""

    title: str
    of: Callable[[RunRecord], float | None]
    shown: Callable[[float], str]


def _seconds(run: RunRecord) -> float | None:
    if run.run is None or run.run.get("train_seconds") is None:
        return None
    looking = 0.0 if run.trace is None else run.trace.seconds  # only methods with token weights have a trace
    return float(run.run["train_seconds"]) - looking


def _gigabytes(run: RunRecord) -> float | None:
    found = None if run.run is None else run.run.get("peak_memory_bytes")
    return None if found is None else found / 1e9


def format_duration(seconds: float) -> str:
    """Format a duration in seconds, minutes or hours."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


QUANTITIES: Mapping[str, Quantity] = {
    "time": Quantity("training time", _seconds, format_duration),
    "memory": Quantity("peak memory", _gigabytes, lambda value: f"{value:.2f} GB" if value < 10 else f"{value:.1f} GB"),
    "judge": Quantity("judge", lambda run: run.result.cost.get("judge_usd"), lambda value: f"${value:.2f}"),
}
"""Name -> cost per run."""


@figure("Cost per run")
def cost(records: Records, styles: Mapping[str, Series]) -> FigureDraft | str:
    """Draw bars per label, mean over seeds."""
    found: dict[str, dict[str, list[float]]] = {}
    for name, quantity in QUANTITIES.items():
        spent = {
            label: [value for run in records.of(label) if (value := quantity.of(run)) is not None]
            for label in records.labels
        }
        spent = {label: values for label, values in spent.items() if values}
        if any(map(any, spent.values())):
            found[name] = spent
    if not found:
        return "no run recorded its time or memory (run.json), and no judge was paid."
    first = next(iter(found.values()))
    labels = [label for label in records.labels if any(label in spent for spent in found.values())]
    labels.sort(key=lambda label: fmean(first[label]) if label in first else float("inf"))
    tips = {}
    sheet = new_figure(0.32 + 0.2 * len(labels))
    panels = sheet.subplots(1, len(found), squeeze=False, sharey=True)[0]
    name_rows(panels[0], [styles[label] for label in labels])
    for axes, (name, spent) in zip(panels, found.items(), strict=True):
        quantity = QUANTITIES[name]
        for label, values in spent.items():
            one, row, mean = styles[label], labels.index(label), fmean(values)
            axes.barh(row, mean, height=0.62, color=one.colour, alpha=0.85 if one.focus else 0.5, gid=one.gid(name))
            if len(values) > 1:
                axes.plot([min(values), max(values)], [row, row], color=one.colour, linewidth=1.4)
            shown = quantity.shown(mean)
            axes.annotate(
                shown, (max(values), row), (3, 0), textcoords="offset points", va="center", fontweight=one.weight
            )
            tips[one.gid(name)] = f"{label}: {quantity.title} {shown}"
        axes.set(xlim=(0, 1.5 * max(map(max, spent.values()))), xticks=[], title=quantity.title)
        axes.tick_params(axis="y", length=0)
        axes.spines[["bottom", "left"]].set_visible(False)
        axes.axvline(0, linewidth=0.8, color=INK)
    money = "; the judge's price is that of all verdicts of one run, including cached ones" if "judge" in found else ""
    caption = (
        f"Means over seeds; thin lines range from the lowest to the highest seed{money}. Times depend on the machine."
    )
    return sheet, caption, tips
