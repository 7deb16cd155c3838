"""Names beside the marks they belong to, without overlap.

`place_names` is for points anywhere in a plot, `spread` for the ends of lines. Both are deterministic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from atwu.report.figures.style import INK, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Text

_ANGLES = tuple(math.radians(degrees) for degrees in (20, -20, 160, -160, 90, -90, 0, 180, 50, -50, 130, -130))
_DISTANCES = (7, 11, 16, 22, 30, 40, 52, 66, 82, 100, 120, 145, 175)
"""Points from a mark to its name."""
_LEADER_FROM = 13
"""Distance in points from which a line leads from a mark to its name."""
_MARK = 4.5
"""Half the size of a mark in points, with room around it."""

Box = tuple[float, float, float, float]
"""Left, bottom, right, top, in points."""


@dataclass(frozen=True, slots=True)
class Name:
    """A point and what it is called."""

    x: float
    y: float
    series: Series


def place_names(
    axes: Axes, names: Sequence[Name], *, avoid: Sequence[tuple[float, float]] = (), beside: Text | None = None
) -> None:
    """Write names beside their points: near, off each other and off the marks, inside the axes.

    Args:
        axes: with its final limits and place in the figure.
        names: the first ones choose first.
        avoid: further marks, in data coordinates, that names should not cover.
        beside: a text that is there already.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = axes.figure
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[arg-type]
    scale = 72 / renderer.dpi

    def points(x: float, y: float) -> tuple[float, float]:
        px, py = axes.transData.transform((x, y))
        return px * scale, py * scale

    corners = axes.get_window_extent(renderer)
    room: Box = (corners.x0 * scale, corners.y0 * scale, corners.x1 * scale, corners.y1 * scale)
    anchors = [points(name.x, name.y) for name in names]
    marks = [_around(*anchor) for anchor in (*anchors, *(points(*other) for other in avoid))]
    taken: list[Box] = []
    if beside is not None:
        taken.append(tuple(side * scale for side in beside.get_window_extent(renderer).extents))
    leaders: list[tuple[float, float, float, float]] = []
    for name, anchor in zip(names, anchors, strict=True):
        text = axes.text(
            name.x, name.y, name.series.name, fontsize=8, fontweight=name.series.weight, gid=name.series.gid("name")
        )
        extent = text.get_window_extent(renderer)
        width, height = extent.width * scale, extent.height * scale
        box, distance = _best(anchor, width, height, room, taken, marks, leaders)
        taken.append(box)
        middle = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
        text.set(
            position=axes.transData.inverted().transform((middle[0] / scale, middle[1] / scale)),
            ha="center",
            va="center",
            clip_on=False,
            zorder=6,
        )
        if distance >= _LEADER_FROM:
            end = _nearest(box, anchor)
            leaders.append((*anchor, *end))
            (x0, y0), (x1, y1) = (axes.transData.inverted().transform((x / scale, y / scale)) for x, y in (anchor, end))
            axes.plot([x0, x1], [y0, y1], color=INK, alpha=0.35, linewidth=0.6, zorder=2, clip_on=False)


def _around(x: float, y: float) -> Box:
    return x - _MARK, y - _MARK, x + _MARK, y + _MARK


def _best(
    anchor: tuple[float, float],
    width: float,
    height: float,
    room: Box,
    taken: Sequence[Box],
    marks: Sequence[Box],
    leaders: Sequence[tuple[float, float, float, float]],
) -> tuple[Box, float]:
    """The cheapest place: near, not over marks and lines; never over another name where any place is free."""
    best: tuple[float, Box, float] | None = None
    for distance in _DISTANCES:
        for preference, angle in enumerate(_ANGLES):
            # The name's box touches the circle around the mark with the side that faces it.
            x = anchor[0] + math.cos(angle) * (distance + width / 2)
            y = anchor[1] + math.sin(angle) * (distance + height / 2)
            box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
            cost = (
                distance
                + 0.3 * preference
                + 1000.0 * sum(_overlap(box, other, 1.0) for other in taken)
                + 25.0 * sum(_overlap(box, mark, 0.0) for mark in marks)
                + 18.0 * sum(_crosses(box, line) for line in leaders)
                + 400.0 * _outside(box, room)
            )
            if distance >= _LEADER_FROM:
                line = (*anchor, *_nearest(box, anchor))
                cost += 18.0 * sum(_crosses(other, line) for other in taken)
            if best is None or cost < best[0]:
                best = (cost, box, distance)
    assert best is not None
    return best[1], best[2]


def _overlap(one: Box, other: Box, margin: float) -> bool:
    return (
        one[0] < other[2] + margin
        and other[0] < one[2] + margin
        and one[1] < other[3] + margin
        and other[1] < one[3] + margin
    )


def _outside(box: Box, room: Box) -> bool:
    return box[0] < room[0] or box[1] < room[1] or box[2] > room[2] or box[3] > room[3]


def _crosses(box: Box, line: tuple[float, float, float, float]) -> bool:
    """Whether a line runs through a box, at the accuracy of 16 points along it."""
    x0, y0, x1, y1 = line
    return any(
        box[0] < x0 + (x1 - x0) * part / 15 < box[2] and box[1] < y0 + (y1 - y0) * part / 15 < box[3]
        for part in range(16)
    )


def _nearest(box: Box, point: tuple[float, float]) -> tuple[float, float]:
    return min(max(point[0], box[0]), box[2]), min(max(point[1], box[1]), box[3])


def spread(values: Sequence[float], gap: float, *, low: float, high: float) -> list[float]:
    """Move values apart as little as possible: neighbours at least `gap` from each other, order kept.

    Args:
        values: in any order.
        gap: smallest distance; made smaller where `low` to `high` cannot hold all.
        low: lower end of the room.
        high: upper end.

    Returns:
        One value for each, in the order given.
    """
    if not values:
        return []
    gap = min(gap, (high - low) / max(1, len(values) - 1))
    order = np.argsort(values, kind="stable")
    # Taking the gaps out turns "at least gap apart" into "not decreasing": a least-squares monotone fit.
    blocks: list[list[float]] = []
    for place, index in enumerate(order):
        blocks.append([values[index] - place * gap, 1])
        while len(blocks) > 1 and blocks[-2][0] >= blocks[-1][0]:
            mean, size = blocks.pop()
            before, count = blocks[-1]
            blocks[-1] = [(before * count + mean * size) / (count + size), count + size]
    fitted = [mean for mean, size in blocks for _ in range(int(size))]
    top = high - (len(values) - 1) * gap
    moved = [0.0] * len(values)
    for place, index in enumerate(order):
        moved[index] = min(max(fitted[place], low), top) + place * gap
    return moved


def name_ends(axes: Axes, ends: Sequence[Name], *, room: float = 12.0) -> None:
    """Write names right of the axes at the height where their lines end, with a thin line to that end.

    Args:
        axes: with its final limits and place in the figure.
        ends: the last point of every line.
        room: width in points between the axes and the names.
    """
    box = axes.get_window_extent()
    scale = 72 / axes.figure.get_figure(root=True).dpi
    width, height = box.width * scale, box.height * scale
    heights = [(axes.transData.transform((name.x, name.y))[1] - box.y0) * scale for name in ends]
    for name, place in zip(ends, spread(heights, 10.5, low=0.0, high=height), strict=True):
        text = axes.annotate(
            name.series.name,
            (name.x, name.y),
            xytext=(1 + room / width, place / height),
            textcoords="axes fraction",
            va="center",
            fontsize=8,
            fontweight=name.series.weight,
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": name.series.colour,
                "linewidth": 0.7,
                "alpha": 0.7,
                "shrinkA": 1,
                "shrinkB": 2,
                "relpos": (0, 0.5),
            },
        )
        text.set_gid(name.series.gid("name"))
