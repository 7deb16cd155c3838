"""What a figure's function gives, and how it becomes a file or part of a page."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from atwu._file_reading import printable
from atwu.report.figures.figure_style import INK, Series, series_of, styled
from atwu.report.records import Records

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURE_FORMATS = {
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
}
"""Format of a file -> the entries that it is written without, as equal figures give equal bytes."""


@dataclass(frozen=True, slots=True)
class DrawnFigure:
    """One figure, or why there is none."""

    key: str
    """Short name, also of its file."""
    figure: Figure | None
    """None when the records have nothing to draw."""
    title: str
    caption: str = ""
    """How to read it, in a sentence or two."""
    reason: str = ""
    """Why `figure` is None."""
    tips: Mapping[str, str] = field(default_factory=dict)
    """gid of a mark -> what it shows, for tooltips and screen readers."""

    def bytes(self, form: str) -> bytes:
        """The figure as a file of one of `FIGURE_FORMATS`; equal figures give equal bytes."""
        assert self.figure is not None, self.reason
        out = io.BytesIO()
        with styled(salt=self.key):
            self.figure.savefig(out, format=form, metadata=FIGURE_FORMATS[form])
        return out.getvalue()

    @property
    def svg(self) -> Markup | None:
        """The SVG as matplotlib writes it, in the page's ink; marks have tooltips and the class of their label."""
        if self.figure is None:
            return None
        text = self.bytes("svg").decode().replace(INK, "currentColor")
        head = f'<svg class="figure" role="img" aria-label="{escape(self.title)}" '
        text = head + text[text.index("<svg ") + len("<svg ") :]
        text = re.sub(r"<style.*?</style>", "", text, flags=re.DOTALL)  # its rule would be the whole page's
        text = re.sub(r'<g id="(series-[^"]*?--[^"]*)">', self._marked, text)
        text = re.sub(r' id="[\w.]+_\d+"', "", text)  # every figure has a figure_1
        return Markup(re.sub(r"\d+\.\d{3,}", lambda found: f"{float(found[0]):.2f}", text))

    def _repr_html_(self) -> str:
        if self.figure is None:
            return f"<p>{escape(self.title)}: {escape(self.reason)}</p>"
        return f"<figure>{self.svg}<figcaption>{escape(self.caption)}</figcaption></figure>"

    def _marked(self, found: re.Match[str]) -> str:
        tip = escape(printable(self.tips.get(found[1], "")))
        return f'<g class="series {found[1].partition("--")[0]}">' + (f"<title>{tip}</title>" if tip else "")


FigureDraft = tuple["Figure", str, Mapping[str, str]]
"""Figure, caption and tooltips."""
DrawFunction = Callable[[Records, Mapping[str, Series]], FigureDraft | str]
"""Draws records in the looks of their labels, or says why there is nothing to draw."""


def figure(title: str) -> Callable[[DrawFunction], Callable[..., DrawnFigure]]:
    """Makes what draws one of a report's figures, under the function's name: `FIGURE(records, focus=LABEL)`."""

    def made(draw: DrawFunction) -> Callable[..., DrawnFigure]:
        @wraps(draw)
        def drawn(records: Records, *, focus: str | None = "atwu") -> DrawnFigure:
            with styled():
                found = draw(records, series_of(records, focus))
            if isinstance(found, str):
                return DrawnFigure(draw.__name__, None, title, reason=found)
            sheet, caption, tips = found
            return DrawnFigure(draw.__name__, sheet, title, caption, tips=tips)

        return drawn

    return made
