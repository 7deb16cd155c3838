"""The headline table for a terminal: numbers and marks, in as many parts as the terminal's width asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from atwu.report.method_table import MethodTable, caption_of, method_table
from atwu.report.panel import Mark
from atwu.report.records import Records
from atwu.report.tables import ARROWS

_STYLES: Mapping[Mark, str] = {"best": "bold green", "second": "italic", "degraded": "red"}
_MARKS: Mapping[Mark, str] = {"best": "green: best", "second": "italic: second", "degraded": "red: degraded"}
_GAP = 3
"""Columns of the terminal between two columns of the table."""


@dataclass(frozen=True, slots=True)
class HeadlineTable:
    """Something a rich console prints."""

    table: MethodTable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Parts of the table that fit, then what to know about it."""
        for places in self._parts(options.max_width):
            yield self._part(places)
        said = caption_of(self.table, _MARKS, intervals=False, spreads=False)[1:]
        said += [note.rstrip(".") for note in self.table.notes]
        said += ["Intervals: atwu report --format md, or --output report.html"] if self.table.intervals else []
        yield Text(" ".join(f"{sentence}." for sentence in said), "dim")

    def _parts(self, width: int) -> list[list[int]]:
        """Places of the columns of each part."""
        table = self.table
        names = max(len(row.name) for row in table.rows) + _GAP
        parts: list[list[int]] = [[]]
        used = names
        for place, column in enumerate(table.columns):
            texts = [column.name + ARROWS[column.direction], *(row.cells[place].text for row in table.rows)]
            needed = max(map(len, texts)) + _GAP
            if parts[-1] and used + needed > width:
                parts.append([])
                used = names
            parts[-1].append(place)
            used += needed
        return parts

    def _part(self, places: Sequence[int]) -> Table:
        grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
        grid.add_column("method", no_wrap=True)
        for place in places:
            column = self.table.columns[place]
            grid.add_column(Text(column.name + ARROWS[column.direction]), justify="right", no_wrap=True)
        rows = self.table.rows
        for row, following in zip(rows, [*rows[1:], None], strict=True):
            cells = []
            for place in places:
                cell = row.cells[place]
                style = _STYLES[cell.mark] if cell.mark else "dim" if row.reference else ""
                cells.append(Text(cell.text, style))
            last = row.reference and following is not None and not following.reference
            grid.add_row(Text(row.name, "dim" if row.reference else ""), *cells, end_section=last)
        return grid


def headline_table(records: Records) -> HeadlineTable:
    """The table of a report for `rich.console.Console.print`; intervals are in the other formats."""
    return HeadlineTable(method_table(records))
