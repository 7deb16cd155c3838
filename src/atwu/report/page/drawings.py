"""Figures inside the page: SVG whose style attributes become rules of the page's own style sheet.

The page's security policy allows the one style sheet it names by hash, and nothing written into attributes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from atwu.report.figures import FIGURES, Drawn, inline_svg
from atwu.report.page.html import Attributes, Html, tag
from atwu.report.records import Records

_STYLE = re.compile(r'<(?P<name>[\w:]+)(?P<before>[^<>]*?) style="(?P<style>[^"]*)"(?P<after>[^<>]*)>')
_CLASS = re.compile(r' class="([^"]*)"')


class Drawings:
    """Draws figures and collects the rules they need."""

    def __init__(self, records: Records, *, focus: str) -> None:
        """Bind the records."""
        self._records, self._focus = records, focus
        self._classes: dict[str, str] = {}

    def show(self, *names: str) -> list[Html]:
        """Figures with captions, or why they are not there."""
        return [self._shown(FIGURES[name](self._records, focus=self._focus)) for name in names]

    @property
    def css(self) -> str:
        """Rules of everything shown so far."""
        return "".join(f".{name}{{{style}}}\n" for style, name in self._classes.items())

    def _shown(self, drawn: Drawn) -> Html:
        if drawn.figure is None:
            return tag("p", {"class": "missing"}, f"{drawn.title}: {drawn.reason.rstrip('.')}.")
        label: Attributes = {"class": "scroll", "role": "group", "tabindex": 0, "aria-label": drawn.title}
        picture = Html(self._classed(inline_svg(drawn, prefix="figure-")))
        return tag(
            "figure",
            None,
            tag("div", label, picture),
            tag("figcaption", None, tag("strong", None, f"{drawn.title}."), " ", drawn.caption),
        )

    def _classed(self, svg: str) -> str:
        return _STYLE.sub(self._without_style, svg)

    def _without_style(self, found: re.Match[str]) -> str:
        style = found["style"].strip().rstrip(";")
        name = self._classes.setdefault(style, f"f{len(self._classes)}")
        rest = found["before"] + found["after"]
        known = _CLASS.search(rest)
        if known:
            both = f' class="{known[1]} {name}"'
            return f"<{found['name']}{rest.replace(known[0], both, 1)}>"
        return f'<{found["name"]} class="{name}"{rest}>'


def grid(figures: Sequence[Html]) -> Html:
    """Figures beside each other where there is room."""
    return tag("div", {"class": "figures"}, *figures)
