"""The type, look and file formats of figures: matplotlib with one style file, readable on light and dark pages.

Each label has the same colour and marker in all figures of a report, so that colour is never the only cue. The hues
are those of Okabe and Ito (2008), with a lightness that has a contrast of at least 3 on white and on near-black.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from atwu._extras import require
from atwu.report.metric_table import REFERENCE_MODELS
from atwu.report.report_records import Records

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#0b0d0e"
"""Foreground, also in the style file; becomes the text colour of the page."""
ACCENT = "#d55e00"
COLOURS = ("#1e88c9", "#0f8f6b", "#c45a9a", "#a47c00", "#8a63d2")
MARKERS = ("s", "^", "D", "v", "P", "X", "<", ">", "p")
REFERENCE_MARKERS = {"original": "s", "retain-only": "D"}
REFERENCE_DASHES = {"original": (0, (5, 2)), "retain-only": (0, (1, 1.6))}
GUIDE: dict[str, Any] = {"color": INK, "alpha": 0.6, "linewidth": 0.9, "linestyle": (0, (4, 2)), "zorder": 1}
"""Dashes of guide lines: chance, a Pareto front."""

FIGURE_WIDTH = 5.5
"""Inches: the text width of a one-column paper."""
MUTED = 0.66
"""Opacity of what is read second."""

_LONGEST = 32
"""Maximum number of characters of a drawn label."""

_STYLE = Path(__file__).with_name("report.mplstyle")


@dataclass(frozen=True, slots=True)
class Series:
    label: str
    colour: str
    marker: str
    focus: bool = False
    reference: bool = False
    width: float = 1.2
    """Line width in points."""
    weight: str = "normal"
    """Font weight of the name."""
    order: float = 3.0
    """Drawing order."""

    @property
    def name(self) -> str:
        """The label as drawn, on one line."""
        label = " ".join(self.label.split())
        if len(label) > _LONGEST:
            return f"{label[: _LONGEST - 1]}…"
        return label


def series_of(records: Records, focus: str | None) -> dict[str, Series]:
    styles = {role: Series(role, INK, REFERENCE_MARKERS[role], reference=True) for role in REFERENCE_MODELS}
    # There are five colours and nine markers, so that labels with the same colour have different markers.
    for place, label in enumerate(label for label in records.labels if label != focus):
        styles[label] = Series(label, COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)])
    if focus in records.labels:
        styles[str(focus)] = Series(str(focus), ACCENT, "o", focus=True, width=2.2, weight="bold", order=5.0)
    return styles


def styled(*, salt: str = "") -> AbstractContextManager[None]:
    """Settings under which figures are drawn, independent of the user's; `salt` makes the ids of a figure unique."""
    style = require("matplotlib.style", extra="report")
    # Without a fixed salt matplotlib draws the ids of an SVG at random, and equal figures would differ.
    settings: AbstractContextManager[None] = style.context([_STYLE, {"svg.hashsalt": f"atwu {salt}"}], after_reset=True)
    return settings


def new_figure(height: float) -> Figure:
    """Create an empty figure of a height in inches, without a window; its margins adapt to the content."""
    figure: Figure = require("matplotlib.figure", extra="report").Figure(figsize=(FIGURE_WIDTH, height))
    return figure


def name_rows(axes: Axes, series: Sequence[Series]) -> None:
    """Label the rows on the left of the axes, from the top."""
    axes.set_yticks(range(len(series)), [style.name for style in series])
    mark_names(axes.get_yticklabels(), series)
    axes.set_ylim(len(series) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def mark_names(texts: Sequence[Any], series: Sequence[Series]) -> None:
    """Make the name of the highlighted label bold."""
    for text, style in zip(texts, series, strict=True):
        text.set_fontweight(style.weight)


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
    title: str
    caption: str = ""
    reason: str = ""

    def bytes(self, form: str) -> bytes:
        """Return the figure as a file of one of `FIGURE_FORMATS`; equal figures give equal bytes."""
        assert self.figure is not None, self.reason
        out = io.BytesIO()
        with styled(salt=self.key):
            self.figure.savefig(out, format=form, metadata=FIGURE_FORMATS[form])
        return out.getvalue()

    @property
    def svg(self) -> Markup | None:
        """Return the SVG with the page's text colour."""
        if self.figure is None:
            return None
        # In the colour of the page, so that one figure is readable on light and dark ones.
        text = self.bytes("svg").decode().replace(INK, "currentColor")
        head = f'<svg class="figure" role="img" aria-label="{escape(self.title)}" '
        text = head + text[text.index("<svg ") + len("<svg ") :]
        text = re.sub(r"<style.*?</style>", "", text, flags=re.DOTALL)  # its style rule would apply to the whole page
        text = re.sub(r' id="[\w.]+_\d+"', "", text)  # every figure has an element figure_1
        # Hundredths of a point are finer than any screen.
        return Markup(re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", text))

    def _repr_html_(self) -> str:
        if self.figure is None:
            return f"<p>{escape(self.title)}: {escape(self.reason)}</p>"
        return f"<figure>{self.svg}<figcaption>{escape(self.caption)}</figcaption></figure>"


FigureDraft = tuple["Figure", str]
DrawFunction = Callable[[Records, Mapping[str, Series]], FigureDraft | str]
"""Draws records with a style per label, or returns the reason why there is nothing to draw."""


def report_figure(title: str) -> Callable[[DrawFunction], Callable[..., DrawnFigure]]:
    """Decorator that turns a draw function into a figure of the report: `FIGURE(records, focus=LABEL)`."""

    def decorate(draw: DrawFunction) -> Callable[..., DrawnFigure]:
        @wraps(draw)
        def drawn(records: Records, *, focus: str | None = "atwu") -> DrawnFigure:
            with styled():
                draft = draw(records, series_of(records, focus))
            if isinstance(draft, str):
                return DrawnFigure(draw.__name__, None, title, reason=draft)
            figure, caption = draft
            return DrawnFigure(draw.__name__, figure, title, caption)

        return drawn

    return decorate
