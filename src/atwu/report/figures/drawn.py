"""What a figure's function gives: the figure with its words, or why there is none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from atwu._cache import short_hash

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Drawn:
    """One figure."""

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


def slug(label: str) -> str:
    """A label as part of an SVG id or a CSS class; marks of a label have a gid that starts with `series-` and this.

    Different labels have different ones.
    """
    plain = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-") or "x"
    return plain if plain == label else f"{plain}-{short_hash(label)[:6]}"
