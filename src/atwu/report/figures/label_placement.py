"""Place names next to their marks without overlap: for points, and for the ends of lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from atwu._extras import require
from atwu.data.arrays import FloatArray
from atwu.report.figures.figure_style import INK, Series, shorten_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LabelPoint = tuple[float, float]
_ORDERS = 8
"""Number of shuffled orders to try."""
_GAP, _ROOM = 10.5, 12.0
"""Points between two names at line ends, and from the axes to the names."""


def place_names(axes: Axes, names: Mapping[Series, LabelPoint], *, avoid: Sequence[LabelPoint] = ()) -> None:
    """Write names next to their points: close, without overlap, inside the axes.

    Names are placed one after the other; if that leaves one without space, other orders are tried.

    Args:
        names: placed in this order.
        avoid: further points that no name should cover.
    """
    points, marks = np.array(list(names.values())), np.array([*names.values(), *avoid])
    left: dict[int | None, int] = {}
    for order in (None, *range(_ORDERS)):
        texts, lines = _placed(axes, names, points, marks, order, every=False)
        left[order] = texts.count(None)
        if not left[order]:
            break
        for drawn in filter(None, (*texts, *lines)):
            drawn.remove()
    else:
        texts, _ = _placed(axes, names, points, marks, min(left, key=left.__getitem__), every=True)
    shorten_names(texts, list(names))


def _placed(
    axes: Axes,
    names: Mapping[Series, LabelPoint],
    points: FloatArray,
    marks: FloatArray,
    order: int | None,
    *,
    every: bool,
) -> tuple[list[Any], list[Any]]:
    """Return names and the lines to their points; None if a name has no space, unless all must be drawn.

    Args:
        order: number of a shuffled order; None for the given order.
    """
    _, _, texts, lines = require("textalloc", extra="report").allocate(
        axes,
        *points.T,
        [one.name for one in names],
        *(None, *marks.T),
        textsize=8,
        fontweight=[one.weight for one in names],
        textcolor=INK,
        linecolor=INK,
        linewidth=0.5,
        plot_kwargs={"alpha": 0.4},
        margin=0.006,
        min_distance=0.01,
        max_distance=0.45,
        nbr_candidates=600,
        draw_all=every,
        priority_strategy=order,
        avoid_label_lines_overlap=True,
        avoid_crossing_label_lines=True,
    )
    return texts, lines


def name_ends(axes: Axes, ends: Mapping[Series, LabelPoint]) -> None:
    """Write names right of the axes at the height of their line ends, with thin connecting lines."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()  # the height is known only after layout
    box = axes.get_window_extent()
    low, high = axes.get_ylim()
    heights = [(y - low) / (high - low) for _, y in ends.values()]
    places = spread_apart(heights, _GAP * figure.dpi / 72 / box.height, low=0.0, high=1.0)
    texts = []
    for (one, end), height in zip(ends.items(), places, strict=True):
        arrow = {"arrowstyle": "-", "color": one.colour, "linewidth": 0.7, "alpha": 0.7, "shrinkA": 1, "shrinkB": 2}
        place = (1 + _ROOM * figure.dpi / 72 / box.width, height)
        texts.append(
            axes.annotate(
                one.name, end, place, textcoords="axes fraction", va="center", annotation_clip=False,
                arrowprops=arrow | {"relpos": (0, 0.5)},
            )
        )  # fmt: skip
    shorten_names(texts, list(ends))


def spread_apart(values: Sequence[float], gap: float, *, low: float, high: float) -> list[float]:
    """Move values apart as little as possible: at least `gap` between neighbours, in the same order.

    Args:
        gap: minimum distance; reduced if `low` to `high` cannot hold all values.

    Returns:
        One value each, in the order given.
    """
    from scipy.optimize import isotonic_regression

    if not values:
        return []
    order = np.argsort(values, kind="stable")
    gaps = min(gap, (high - low) / max(1, len(values) - 1)) * np.arange(len(values))
    # Subtracting the gaps turns the constraint "at least gap apart" into "not decreasing".
    fitted = isotonic_regression(np.asarray(values, dtype=float)[order] - gaps).x
    moved = np.empty(len(values))
    moved[order] = np.clip(fitted, low, high - gaps[-1]) + gaps
    return [float(value) for value in moved]
