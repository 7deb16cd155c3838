"""The type of a drawn figure, and its conversion to files and page elements."""

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
from atwu.report.run_records import Records

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURE_FORMATS = {
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
}
"""File format -> metadata entries to leave out, so that equal figures give equal bytes."""


@dataclass(frozen=True, slots=True)
class DrawnFigure:
    """One figure, or the reason why it is missing."""

    key: str
    """Short name, also of its file."""
    figure: Figure | None
    """None if there is no data."""
    title: str
    caption: str = ""
    """Caption: how to read the figure."""
    reason: str = ""
    """Why `figure` is None."""
    tips: Mapping[str, str] = field(default_factory=dict)
    """gid of a mark -> tooltip text, also for screen readers."""

    def bytes(self, form: str) -> bytes:
        """Return the figure as a file of one of `FIGURE_FORMATS`; equal figures give equal bytes."""
        assert self.figure is not None, self.reason
        out = io.BytesIO()
        with styled(salt=self.key):
            self.figure.savefig(out, format=form, metadata=FIGURE_FORMATS[form])
        return out.getvalue()

    @property
    def svg(self) -> Markup | None:
        """Return the SVG with the page's text colour; marks have tooltips and a CSS class per label."""
        if self.figure is None:
            return None
        text = self.bytes("svg").decode().replace(INK, "currentColor")
        head = f'<svg class="figure" role="img" aria-label="{escape(self.title)}" '
        text = head + text[text.index("<svg ") + len("<svg ") :]
        text = re.sub(r"<style.*?</style>", "", text, flags=re.DOTALL)  # its style rule would apply to the whole page
        text = re.sub(r'<g id="(series-[^"]*?--[^"]*)">', self._marked, text)
        text = re.sub(r' id="[\w.]+_\d+"', "", text)  # every figure has an element figure_1
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
"""Draws records with a style per label, or returns the reason why there is nothing to draw."""


def figure(title: str) -> Callable[[DrawFunction], Callable[..., DrawnFigure]]:
    """Decorator that turns a draw function into a figure of the report: `FIGURE(records, focus=LABEL)`."""

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
