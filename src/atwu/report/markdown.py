"""Tables in GitHub Markdown: best **bold**, second *italic*, degraded (!)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from atwu.report.report_table import Table, degradation_notes, report_caption, report_table
from atwu.report.table_values import MISSING_CELL, Mark, MetricKey

if TYPE_CHECKING:
    from atwu.report.run_records import Records

_CELLS: Mapping[str, str] = {"best": "**{}**", "second": "*{}*", "degraded": "{} (!)", "": "{}"}
_MARKS: Mapping[Mark, str] = {"best": "bold: best", "second": "italic: second", "degraded": "(!): degraded"}


def to_markdown(records: Records, keys: Sequence[MetricKey] | None = None, *, intervals: bool = True) -> str:
    """Format the table of a report, followed by its caption."""
    table = report_table(records, keys)
    caption = " ".join(f"{part}." for part in report_caption(records, table, _MARKS, intervals=intervals))
    notes = "".join(f"- {escaped(note)}\n" for note in degradation_notes(records, table))
    return f"{models_markdown(table, intervals=intervals)}\n{escaped(caption)}\n" + (f"\n{notes}" if notes else "")


def models_markdown(table: Table, *, intervals: bool = False) -> str:
    """One row per model, one column per metric."""
    cells = table.cells(lambda cell: _markdown_cell(cell, intervals), MISSING_CELL)
    names = map(table.shown, table.labels)
    return _markdown("method", [head.text for head in table.heads], zip(names, cells.values, strict=True))


def panel_markdown(table: Table, *, intervals: bool = True) -> str:
    """One row per metric, one column per model."""
    cells = table.cells(lambda cell: _markdown_cell(cell, intervals), MISSING_CELL)
    rows = ((head.full, [head.count, *cells[head.key]]) for head in table.heads)
    return _markdown("metric", ["n", *map(table.shown, table.labels)], rows)


def _markdown(first: str, heads: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]]) -> str:
    """Format a table; its cells are Markdown, its headers and names are plain text."""
    text = [[first, *map(escaped, heads)], ["---", *["---:"] * len(heads)]]
    text += [[escaped(name), *cells] for name, cells in rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in text)


def _markdown_cell(cell: Any, intervals: bool) -> str:
    spread, told = cell.spread and f"± {cell.spread}", cell.told and f"({cell.told})"
    parts = [_CELLS[cell.mark].format(cell.number), spread, intervals and cell.interval, told]
    return " ".join(part for part in parts if part)


def escaped(text: str) -> str:
    """Escape text for Markdown, on one line."""
    return re.sub(r"([\\|*_<`\[\]!])", r"\\\1", text.replace("\n", " "))
