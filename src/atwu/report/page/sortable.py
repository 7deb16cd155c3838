"""A table that can be sorted in the page: references apart, rows of methods below, every cell with its full value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from atwu.evaluation.result import Direction
from atwu.report.page.html import Html, join, tag, text
from atwu.report.values import ARROWS

BETTER = {"up": "higher is better", "down": "lower is better", "none": ""}


@dataclass(frozen=True, slots=True)
class Column:
    """Head of a column."""

    name: Html
    above: str = ""
    """Small line above the name, such as the set."""
    below: str = ""
    """Small line below it, such as the number of rows."""
    better: Direction = "none"
    meaning: str | None = None
    more: bool = False
    """Shown only when all metrics are asked for."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One value."""

    shown: Html
    value: float | None = None
    """What it is sorted by; None goes last."""


@dataclass(frozen=True, slots=True)
class Row:
    """One model."""

    label: str
    head: Html
    cells: Sequence[Cell]
    focus: bool = False


def sortable(
    name: str,
    columns: Sequence[Column],
    rows: Sequence[Row],
    *,
    caption: str,
    references: Sequence[Row] = (),
    first: str = "Model",
) -> Html:
    """The table in a container of its own that scrolls.

    Args:
        name: id of the table.
        columns: without the first, which names the models.
        rows: models that are ranked, in their own order.
        caption: what it shows, also for screen readers.
        references: models that are compared with; they stay on top.
        first: head of the column of labels.
    """
    heads = join((_head(Column(text(first)), first=True), *(_head(column, first=False) for column in columns)))
    bodies = [(references, "references"), (rows, "ranked")]
    table = tag(
        "table",
        {"id": name, "class": "sortable"},
        tag("caption", {"id": f"{name}-caption"}, tag("span", None, caption)),
        tag("thead", None, tag("tr", None, heads)),
        *(tag("tbody", {"class": kind}, *(_row(row, columns) for row in body)) for body, kind in bodies if body),
    )
    return tag("div", {"class": "scroll", "role": "region", "tabindex": 0, "aria-labelledby": f"{name}-caption"}, table)


def _head(column: Column, *, first: bool) -> Html:
    arrow = ARROWS[column.better].strip()
    inside = (
        tag("span", {"class": "above"}, column.above) if column.above else None,
        tag(
            "span",
            {"class": "name"},
            column.name,
            tag("span", {"class": "arrow", "aria-hidden": "true"}, arrow) if arrow else None,
            tag("span", {"class": "sr"}, f", {BETTER[column.better]}") if arrow else None,
        ),
        tag("span", {"class": "below"}, column.below) if column.below else None,
    )
    button = tag("button", {"type": "button", "title": column.meaning}, *inside)
    classes = " ".join(name for name, there in (("label", first), ("num", not first), ("more", column.more)) if there)
    return tag("th", {"scope": "col", "class": classes, "aria-sort": "none", "data-better": column.better}, button)


def _row(row: Row, columns: Sequence[Column]) -> Html:
    cells = (
        tag(
            "td",
            {"class": "num more" if column.more else "num", "data-v": "" if cell.value is None else repr(cell.value)},
            cell.shown,
        )
        for column, cell in zip(columns, row.cells, strict=True)
    )
    head = tag("th", {"scope": "row", "class": "label"}, row.head)
    return tag("tr", {"data-label": row.label, "class": "focus" if row.focus else None}, head, *cells)
