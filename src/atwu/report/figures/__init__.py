"""Figures of a report, saved as PDF and SVG or embedded in a page; token weights are text in colour (`heatmap.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from atwu.report.figures.before_after import attacks, uplift
from atwu.report.figures.curves import auroc_progression
from atwu.report.figures.figure import FIGURE_FORMATS, DrawnFigure
from atwu.report.figures.trade_off import trade_off, trade_off_judged
from atwu.report.report_records import Records

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
        for form in FIGURE_FORMATS if drawn.figure is not None else ():
            written.append(folder / f"{drawn.key}.{form}")
            written[-1].write_bytes(drawn.bytes(form))
    return written
