"""How well each method's own token score finds the secret in single rows: one ridge per label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from atwu.report.figures.drawn import Drawn
from atwu.report.figures.own_score import own_scores, row_values
from atwu.report.figures.style import INK, MUTED, WIDTH, grid, name_rows, new_figure, place, room_for, series_of, styled
from atwu.report.records import Records

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KEY = "auroc_ridge"
TITLE = "Do token scores find the secret? Row by row"
_GRID = np.linspace(0.0, 1.0, 81)
_HEIGHT = 0.85
"""Of the tallest ridge, in rows."""
_COLUMNS = {"mean": 8, "score": 38, "rows": 112}
"""What stands beside a ridge -> points right of the axes."""


def auroc_ridge(records: Records, *, focus: str | None = "atwu") -> Drawn:
    """Distribution over forget rows of the AUROC of each label's own score on its unlearned model."""
    scores = own_scores(records)
    values = {label: row_values(records.of(label), f"auroc_{score}") for label, score in scores.items()}
    values = {label: found for label, found in values.items() if found}
    if not values:
        reason = (
            "no run has token scores of its own that were measured against labels (metrics 'scores', forget_spans)."
        )
        return Drawn(KEY, None, TITLE, reason=reason)
    order = sorted(values, key=lambda label: -float(np.mean(values[label])))
    looks = series_of(records, focus)
    tips = {}
    with styled():
        figure = new_figure(WIDTH, 0.75 + (0.52 if len(order) <= 8 else 0.29) * (len(order) + 0.5))
        axes = figure.subplots()
        for row, label in enumerate(order):
            one, found = looks[label], values[label]
            heights = density(found)
            top = row + 0.28 - _HEIGHT * heights / heights.max()
            axes.fill_between(_GRID, top, row + 0.28, color=one.colour, alpha=0.3, linewidth=0, zorder=2 + row / 100)
            axes.plot(_GRID, top, color=one.colour, linewidth=one.width, zorder=2 + row / 100, gid=one.gid("ridge"))
            mean = float(np.mean(found))
            axes.plot(
                [mean],
                [row + 0.28],
                one.marker,
                color=one.colour,
                markersize=6,
                clip_on=False,
                zorder=4,
                gid=one.gid("mean"),
            )
            counts = [len(rows) for run in records.of(label) if (rows := row_values([run], f"auroc_{scores[label]}"))]
            each = str(min(counts)) if min(counts) == max(counts) else f"{min(counts)}–{max(counts)}"
            count = each + (f" × {len(counts)}" if len(counts) > 1 else "")
            _beside(axes, row, "mean", f"{mean:.2f}", fontweight=one.weight)
            _beside(axes, row, "score", scores[label], alpha=MUTED)
            _beside(axes, row, "rows", count, alpha=MUTED)
            tips[one.gid("mean")] = f"{label}: mean AUROC of {scores[label]} {mean:.3f} over {count} rows"
        name_rows(axes, [looks[label] for label in order])
        axes.set_ylim(len(order) - 0.5, -1.0)
        for head in _COLUMNS:
            _beside(axes, -0.85, head, head, alpha=MUTED)
        axes.axvline(0.5, color=INK, alpha=0.6, linewidth=0.9, linestyle=(0, (4, 2)), zorder=1)
        grid(axes, "x")
        axes.set(xlim=(0, 1), xlabel="AUROC within a forget row (dashed: chance)")
        place(axes, left=room_for(looks[label] for label in order) + 0.12, right=2.25, bottom=0.45, top=0.03)
    caption = (
        "For every forget row, the chance that a token of the secret has a higher score than any other token: 1 finds the "
        "secret first, .5 is chance. Ridges are densities over rows and seeds, of equal height; marks are means. Scores are "
        "those of the unlearned model: what they were while it trained is in the figure over steps."
    )
    return Drawn(KEY, figure, TITLE, caption, tips=tips)


def _beside(axes: Axes, row: float, column: str, text: str, **look: Any) -> None:
    axes.annotate(
        text,
        (1, row),
        xytext=(_COLUMNS[column], 0),
        textcoords="offset points",
        va="center",
        fontsize=8,
        annotation_clip=False,
        **look,
    )


def density(values: Sequence[float]) -> NDArray[np.float64]:
    """Gaussian kernel density on [0, 1], mirrored at both ends so that no mass leaves the range.

    Returns:
        Heights at 81 points from 0 to 1.
    """
    found = np.asarray(values, dtype=np.float64)
    spread = float(found.std(ddof=1)) if found.size > 1 else 0.0
    width = max(0.02, 1.06 * spread * found.size**-0.2)
    points = np.concatenate([found, -found, 2 - found])
    heights = np.exp(-0.5 * ((_GRID[:, None] - points[None, :]) / width) ** 2).sum(axis=1)
    scale = found.size * width * np.sqrt(2 * np.pi)
    return np.asarray(heights / scale, dtype=np.float64)
