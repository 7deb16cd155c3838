"""Render pages from templates: one style sheet, one script, all text escaped; pages are self-contained."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from atwu._file_reading import printable
from atwu.report.metric_table import SUBSCRIPT
from atwu.report.scored_row import LEVELS, background, ink, level, percent_of_score, pieces, runs, word_auroc

_KEEP_TOGETHER = 24
"""Maximum length in characters of adjoining words that are kept on one line."""


def render_template(template: str, *, title: str, **values: Any) -> str:
    """Render a page; equal values give equal pages, and all values but `Markup` are escaped."""
    folder = files("atwu.report").joinpath("page")
    style = Markup(folder.joinpath("page.css").read_text(encoding="utf-8"))
    script = Markup(folder.joinpath("page.js").read_text(encoding="utf-8"))
    # The script is allowed by its hash; styles are allowed anywhere because figures contain some, and cannot load
    # anything.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return fragment(template, title=title, style=style, script=script, script_hash=f"sha256-{digest}", **values)


def fragment(template: str, **values: Any) -> str:
    """Render part of a page, without style sheet and script."""
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("atwu.report", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Answers may have control characters, which no browser shows and some refuse.
        finalize=lambda value: value if isinstance(value, Markup) else printable(str(value)),
    )
    # NaN is no JSON: a browser would read none of the block.
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    # Subscripts of metrics: J_W, ES Δ.
    environment.filters["subscripts"] = lambda text: Markup(
        SUBSCRIPT.sub(r"\1<sub>\2</sub>", str(escape(printable(text))))
    )
    environment.globals.update(
        level=level,
        percent=percent_of_score,
        pieces=pieces,
        runs=runs,
        auroc=word_auroc,
        keep_together=_KEEP_TOGETHER,
        colour_levels=[
            [{"paper": paper.hex, "ink": ink(paper).hex} for paper in papers]
            for papers in (
                [background(step / (LEVELS - 1), dark=dark) for dark in (False, True)] for step in range(LEVELS)
            )
        ],
    )
    return environment
