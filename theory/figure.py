"""Draw the study as a figure with four panels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from atwu._extras import require
from theory.rows import TheoryResult

_PRIVATE, _SHARED, _INK, _PALE = "#0072B2", "#D55E00", "#333333", "#BBBBBB"
_PHASES = ("#009E73", "#F0E442", "#CC79A7")
_PHASE_NAMES = ("binary and tight", "binary, over budget", "fractional")


def check_figure() -> None:
    """Check before the computation that matplotlib is installed.

    Raises:
        ImportError: it is missing; the message gives the pip command.
    """
    require("matplotlib.figure", extra="report")


def write_figure(result: TheoryResult, folder: Path) -> list[Path]:
    """Write theory.svg and theory.pdf.

    Returns:
        The files written.

    Raises:
        ImportError: matplotlib is missing; the message gives the pip command.
    """
    matplotlib = require("matplotlib", extra="report")
    figures = require("matplotlib.figure", extra="report")
    style = {"svg.hashsalt": "atwu", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    with matplotlib.rc_context(style):
        figure = figures.Figure(figsize=(10, 7.2), layout="constrained")
        (tokens, budgets), (phases, departure) = figure.subplots(2, 2)
        _tokens(tokens, result)
        _budgets(budgets, result)
        _phases(phases, result)
        _departure(departure, result)
        paths = [folder / "theory.svg", folder / "theory.pdf"]
        for path, metadata in zip(paths, ({"Date": None}, {"CreationDate": None}), strict=True):
            figure.savefig(path, metadata=metadata)
    return paths


def _tokens(axes: Any, result: TheoryResult) -> None:
    rows = list(reversed(result.tokens))
    colours = [_PRIVATE if row.private else _SHARED for row in rows]
    axes.barh([row.token for row in rows], [row.conflict for row in rows], color=colours)
    for place, row in enumerate(rows):
        axes.text(row.conflict * 1.15, place, f"{row.conflict:.4f}", va="center", color=_INK, fontsize=8)
    axes.set(xscale="log", xlabel="retain conflict c", xlim=(1e-4, 20))
    axes.set_title("a  Forgetting a private word costs little", loc="left")
    axes.text(0.97, 0.9, "private", color=_PRIVATE, transform=axes.transAxes, ha="right", weight="bold")
    axes.text(0.97, 0.4, "shared", color=_SHARED, transform=axes.transAxes, ha="right", weight="bold")


def _budgets(axes: Any, result: TheoryResult) -> None:
    ks = [row.k for row in result.budgets]
    low, high = zip(*result.curves.rises, strict=True)
    axes.fill_between(ks, low, high, color=_PALE, alpha=0.5, linewidth=0)
    axes.plot(ks, [row.rise for row in result.budgets], color=_INK, linewidth=1)
    for row in result.budgets:
        pure = row.private == row.k
        axes.plot(row.k, row.rise, "o" if pure else "s", color=_PRIVATE if pure else _SHARED)
    limit = result.oracle_budget * len(result.tokens)
    axes.axvline(limit, color=_INK, linestyle=":", linewidth=1)
    axes.text(limit - 0.1, 0.8 * max(high), "ρ*", ha="right", color=_INK)
    axes.set(xlabel="tokens selected, k = ρn", ylabel="increase of the retain loss")
    axes.set_title("b  The minimizer selects shared words only beyond ρ*", loc="left")
    axes.text(
        0.97, 0.62, "grey: all supports of k tokens", color=_INK, transform=axes.transAxes, ha="right", fontsize=8
    )


def _phases(axes: Any, result: TheoryResult) -> None:
    colours = require("matplotlib.colors", extra="report")
    multiples = list(result.curves.multiples)
    grid = [list(line) for line in result.curves.phases]
    half = (multiples[1] - multiples[0]) / 2
    first, end = multiples[0] - half, multiples[-1] + half
    axes.imshow(
        grid,
        cmap=colours.ListedColormap(_PHASES),
        vmin=0,
        vmax=2,
        alpha=0.75,
        origin="lower",
        extent=(first, end, first, end),
        aspect="auto",
        interpolation="none",
    )
    axes.plot([1, 1, end], [end, 1, 1], color=_INK, linewidth=1.5)
    axes.text(1.05, end - 0.12, "guaranteed", color=_INK)
    places = ((1.5, 1.4), (1.2, 0.4), (0.05, 1.4))
    for name, (x, y) in zip(_PHASE_NAMES, places, strict=True):
        axes.text(x, y, name, color=_INK, fontsize=8)
    axes.set(xlabel="λ_H over its threshold", ylabel="λ_ρ over its threshold")
    axes.set_title("c  Minimizers of the relaxed problem (3 tokens, k = 1)", loc="left")


def _departure(axes: Any, result: TheoryResult) -> None:
    curves = result.curves
    axes.plot(curves.side, curves.satga, color=_PRIVATE)
    axes.plot(curves.side, curves.satga_plus, color=_SHARED, linestyle="--")
    axes.text(0.5, -0.42, "SatGA", color=_PRIVATE, weight="bold")
    axes.text(0.3, -1.06, "SatGA+", color=_SHARED, weight="bold", va="top")
    axes.set(xlabel="score of a second private word", ylabel="value function, in units of C", ylim=(-1.15, 0.05))
    axes.set_title("d  For SatGA+, a small score gains as much as score 1", loc="left")
