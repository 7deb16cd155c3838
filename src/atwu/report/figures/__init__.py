"""Figures of a report, for pages and for papers: drawn from `Records`, saved as PDF and SVG, or put inline into HTML.

for drawn in all_figures(records):
    if drawn.figure is not None:
        html += f"<figure>{inline_svg(drawn)}<figcaption>{drawn.caption}</figcaption></figure>"
"""

from __future__ import annotations

from atwu.report.figures.all import FIGURES, all_figures
from atwu.report.figures.drawn import Drawn, slug
from atwu.report.figures.save import inline_svg, save_figures

__all__ = ["FIGURES", "Drawn", "all_figures", "inline_svg", "save_figures", "slug"]
