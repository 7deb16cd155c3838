"""What is forgotten against what is kept: one point per label, its seeds and intervals, and the Pareto front."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from atwu.evaluation.result import EvalResult, MetricValue
from atwu.report.figures.drawn import Drawn
from atwu.report.figures.labels import Name, place_names
from atwu.report.figures.style import INK, MUTED, WIDTH, Series, grid, new_figure, series_of, styled
from atwu.report.records import Records
from atwu.report.values import OVERALL, Line, cell_of, shown_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Text


@dataclass(frozen=True, slots=True)
class Plane:
    """Two metrics that pull against each other."""

    key: str
    title: str
    x: Line
    y: Line
    x_label: str
    y_label: str
    origin: tuple[float, float] | None = None
    """Where the starting model lies by definition, if its own result cannot say."""


EXTRACTION = Plane(
    "trade_off",
    "What is forgotten against what is kept",
    ("forget", "extraction_strength"),
    ("retain", "extraction_strength"),
    "extraction strength of forget rows (lower: more forgotten)",
    "of retain rows (higher: more kept)",
)
JUDGED = Plane(
    "trade_off_judged",
    "Forget quality against retain damage",
    (OVERALL, "FQ"),
    (OVERALL, "RD"),
    "FQ in % (higher: more forgotten)",
    "RD in % (lower: less damage)",
    origin=(0.0, 0.0),
)

_CROWDED = 10
"""Labels from which intervals and seeds step back behind the means."""

Point = tuple[MetricValue, MetricValue]


def trade_off(records: Records, *, focus: str | None = "atwu") -> Drawn:
    """Extraction strength of the forget rows against that of the retain rows."""
    return _scatter(records, EXTRACTION, focus)


def trade_off_judged(records: Records, *, focus: str | None = "atwu") -> Drawn:
    """Forget quality against retain damage, as the judge sees them."""
    return _scatter(records, JUDGED, focus)


def pareto(points: Mapping[str, tuple[float, float]], *, x_up: bool, y_up: bool) -> list[str]:
    """Names of the points that no other point beats in one direction without losing in the other, ordered by x."""

    def better(one: tuple[float, float], other: tuple[float, float]) -> bool:
        (ax, ay), (bx, by) = one, other
        x, y = (ax - bx) * (1 if x_up else -1), (ay - by) * (1 if y_up else -1)
        return x >= 0 and y >= 0 and (x > 0 or y > 0)

    front = [name for name, point in points.items() if not any(better(other, point) for other in points.values())]
    return sorted(front, key=lambda name: points[name])


def _scatter(records: Records, plane: Plane, focus: str | None) -> Drawn:
    points = {name: point for name, result in records.results.items() if (point := _point(result, plane)) is not None}
    ranked = [label for label in records.labels if label in points]
    if not ranked:
        metrics = " and ".join(dict.fromkeys(f"{split} {metric}" for split, metric in (plane.x, plane.y)))
        return Drawn(plane.key, None, plane.title, reason=f"no run has values of {metrics}.")
    if plane.origin is not None and "original" in records.references and "original" not in points:
        x, y = points[ranked[0]]
        points["original"] = tuple(
            replace(cell, value=value, low=None, high=None, seeds=1, seed_std=None)
            for cell, value in zip((x, y), plane.origin, strict=True)
        )  # type: ignore[assignment]
    looks = series_of(records, focus)
    crowded = len(ranked) > _CROWDED
    tips = {}
    with styled():
        figure = new_figure(WIDTH, 4.1)
        axes = figure.add_axes((0.105, 0.125, 0.875, 0.855))
        grid(axes)
        seeds = []
        for label in ranked:
            singles = [point for run in records.of(label) if (point := _point(run.result, plane)) is not None]
            if len(singles) > 1:
                xy = [_xy(point) for point in singles]
                seeds += xy
                one = looks[label]
                axes.plot(
                    *zip(*xy, strict=True),
                    one.marker,
                    color=one.colour,
                    alpha=0.4 if one.focus or not crowded else 0.2,
                    markersize=3.6,
                    markeredgewidth=0,
                    zorder=2.5,
                    gid=one.gid("seeds"),
                )
                tips[one.gid("seeds")] = f"{label}, seed by seed"
        for name, (x, y) in points.items():
            one = looks[name]
            if name in ranked:
                _whiskers(axes, x, y, one, alpha=0.55 if one.focus or not crowded else 0.2)
            axes.plot(
                *_xy((x, y)),
                marker=one.marker,
                color=one.colour,
                markersize=8 if one.focus else 6.5,
                markerfacecolor="none" if one.reference else one.colour,
                markeredgewidth=1.3 if one.reference else 0,
                linestyle="none",
                zorder=one.order + 1,
                clip_on=False,
                gid=one.gid("mean"),
            )
            tips[one.gid("mean")] = _tip(name, x, y, plane)
        up = [points[ranked[0]][axis].direction == "up" for axis in (0, 1)]
        front = pareto({label: _xy(points[label]) for label in ranked}, x_up=up[0], y_up=up[1])
        axes.plot(
            *zip(*(_xy(points[name]) for name in front), strict=True),
            color=INK,
            alpha=0.6,
            linewidth=1.0,
            linestyle=(0, (4, 2)),
            drawstyle="steps-pre" if up[0] else "steps-post",
            zorder=2,
            gid="front",
        )
        axes.set_xlabel(plane.x_label)
        axes.set_ylabel(plane.y_label)
        axes.margins(0.12)
        axes.autoscale_view()
        limits = axes.get_xlim(), axes.get_ylim()
        corner = _better(axes, x_up=up[0], y_up=up[1])
        first = sorted(points, key=lambda name: (not looks[name].focus, looks[name].reference, name not in front))
        place_names(axes, [Name(*_xy(points[name]), looks[name]) for name in first], avoid=seeds, beside=corner)
        axes.set(xlim=limits[0], ylim=limits[1])
    caption = (
        f"Each mark is the mean over a method's seeds{_faint(seeds)}; whiskers are 95 % bootstrap intervals over subjects. "
        "Open marks are the models compared with. Methods on the dashed line, the Pareto front, are beaten by no other one in "
        "both directions."
    )
    return Drawn(plane.key, figure, plane.title, caption, tips=tips)


def _faint(seeds: Sequence[object]) -> str:
    return " (faint: single seeds)" if seeds else ""


def _point(result: EvalResult, plane: Plane) -> Point | None:
    x, y = cell_of(result, plane.x), cell_of(result, plane.y)
    return (x, y) if x is not None and y is not None else None


def _xy(point: Point) -> tuple[float, float]:
    x, y = point
    assert x.value is not None
    assert y.value is not None
    return x.value, y.value


def _whiskers(axes: Axes, x: MetricValue, y: MetricValue, one: Series, *, alpha: float) -> None:
    middle = _xy((x, y))
    ends = []
    if x.low is not None and x.high is not None:
        ends.append(([x.low, x.high], [middle[1]] * 2))
    if y.low is not None and y.high is not None:
        ends.append(([middle[0]] * 2, [y.low, y.high]))
    for xs, ys in ends:
        axes.plot(xs, ys, color=one.colour, linewidth=1.1, alpha=alpha, zorder=one.order)


def _better(axes: Axes, *, x_up: bool, y_up: bool) -> Text:
    """A word in the corner where one would like to be."""
    x, y = (0.985 if x_up else 0.015), (0.985 if y_up else 0.015)
    arrow = {(True, True): "↗", (True, False): "↘", (False, True): "↖", (False, False): "↙"}[x_up, y_up]
    return axes.text(
        x,
        y,
        f"better {arrow}" if x_up else f"{arrow} better",
        transform=axes.transAxes,
        ha="right" if x_up else "left",
        va="top" if y_up else "bottom",
        fontsize=8,
        fontstyle="italic",
        alpha=MUTED,
    )


def _tip(name: str, x: MetricValue, y: MetricValue, plane: Plane) -> str:
    parts = []
    for (split, metric), cell in ((plane.x, x), (plane.y, y)):
        what = metric if split == OVERALL else f"{split} {metric}"
        parts.append(f"{what} {shown_number(cell.value, cell.digits)}{_interval(cell)}")
    return f"{name}: {', '.join(parts)}"


def _interval(cell: MetricValue) -> str:
    if cell.low is None or cell.high is None:
        return ""
    return f" [{shown_number(cell.low, cell.digits)}, {shown_number(cell.high, cell.digits)}]"
