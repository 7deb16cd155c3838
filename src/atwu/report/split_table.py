"""A table for a terminal of any width: its columns stand below each other in as many parts as they need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

_GAP = 3
"""Columns of the terminal between two columns of the table."""
_NAME = 34
"""Longest name of a row that stays on one line, if it can be broken."""


@dataclass(frozen=True, slots=True)
class Row:
    """A name and its cells; without cells the title of the rows below it."""

    name: Text
    cells: Sequence[Text] = ()
    end: bool = False
    """Whether a group of rows ends here."""


@dataclass(frozen=True, slots=True)
class SplitTable:
    """Rows of a first column, which every part repeats, and further columns, none of which is ever cut or broken."""

    first: str
    heads: Sequence[Text]
    rows: Sequence[Row]
    said: Sequence[str] = field(default=())
    """Sentences below it, without their full stops."""
    title: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The parts, then what to know about them."""
        if self.title:
            yield Text(self.title, "bold")
        for places in self._parts(options.max_width):
            yield self._part(places)
        if self.said:
            yield Text(" ".join(f"{sentence}." for sentence in self.said), "dim")

    def _parts(self, width: int) -> list[list[int]]:
        names = max((_wide(name) for name in [Text(self.first), *map(self._name, self.rows)]), default=0) + _GAP
        parts: list[list[int]] = [[]]
        used = names
        for place, head in enumerate(self.heads):
            needed = max([_wide(head), *(_wide(row.cells[place]) for row in self.rows if row.cells)]) + _GAP
            if parts[-1] and used + needed > width:
                parts.append([])
                used = names
            parts[-1].append(place)
            used += needed
        return parts

    def _part(self, places: Sequence[int]) -> Table:
        grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
        grid.add_column(self.first, no_wrap=True)
        for place in places:
            grid.add_column(self.heads[place], justify="right", no_wrap=True)
        for row in self.rows:
            grid.add_row(self._name(row), *(row.cells[place] for place in places if row.cells), end_section=row.end)
        return grid

    @staticmethod
    def _name(row: Row) -> Text:
        """A long name is broken where an attack begins: `extraction_strength` / `@relearn_forget`."""
        text = row.name.plain
        place = text.rfind("@")
        if len(text) <= _NAME or place <= 0:
            return row.name
        return Text.assemble(row.name[:place], "\n", " " * (4 if text[:1] == " " else 2), row.name[place:])


def _wide(text: Text) -> int:
    return max((line.cell_len for line in text.split("\n", allow_blank=True)), default=0)
