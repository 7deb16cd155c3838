"""HTML from Python, escaped unless it is marked as markup: all text of a report is somebody's data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from atwu.report.scored_row import printable

Attributes = Mapping[str, str | int | float | bool | None]


class Html(str):
    """Markup. Any other string is text and gets escaped."""

    __slots__ = ()


def text(value: object) -> Html:
    """A value as text of a page; markup stays as it is."""
    return value if isinstance(value, Html) else Html(escape(printable(str(value)), quote=True))


def tag(name: str, attributes: Attributes | None = None, *children: object) -> Html:
    """An element.

    Args:
        name: of the element.
        attributes: True gives a bare attribute, False and None none at all.
        children: text, or markup that `tag` or `join` made; None is left out.
    """
    inner = "".join(text(child) for child in children if child is not None)
    return Html(f"<{name}{_attributes(attributes or {})}>{inner}</{name}>")


def join(parts: Iterable[object], between: str = "") -> Html:
    """Parts one after the other."""
    return Html(text(between).join(text(part) for part in parts))


def data_block(name: str, value: Any) -> Html:
    """JSON for the page's script; nothing in it can end the element."""
    plain = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        plain = plain.replace(character, f"\\u{ord(character):04x}")
    return Html(f'<script type="application/json" id="{text(name)}">{plain}</script>')


def _attributes(attributes: Attributes) -> str:
    return "".join(
        f" {key}" if value is True else f' {key}="{text(value)}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
