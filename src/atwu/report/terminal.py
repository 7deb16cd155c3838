"""Tables for a terminal: numbers and marks as colours. No text of a table is read as Rich's markup."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from atwu.evaluation.columns import OVERALL
from atwu.evaluation.differences import overall_differences, set_differences
from atwu.evaluation.intervals import Estimate
from atwu.evaluation.result import EvalResult
from atwu.report.records import Records
from atwu.report.table import Table, notes_of, report_table, said_of, table_of
from atwu.report.values import MISSING, REFERENCES, Line, Mark, cell_of, shown_number

_STYLES: Mapping[str, str] = {"best": "bold green", "second": "italic", "degraded": "red", "": ""}
_MARKS: Mapping[Mark, str] = {"best": "green: best", "second": "italic: second", "degraded": "red: degraded"}
_GAP = 3
"""Columns of the terminal between two columns of a table."""


def _text(cell: Any, *, intervals: bool) -> Text:
    """A row of the frame as one cell."""
    text = Text(cell.number, "dim" if cell.reference else _STYLES[cell.mark])
    around = [f"± {cell.spread}" if cell.spread else "", cell.interval] if intervals else []
    around.append(f"({cell.told})" if cell.told else "")
    return text.append("".join(f" {part}" for part in around if part), "dim" if intervals else "")


@dataclass(frozen=True, slots=True)
class ModelsTable:
    """One row per model, without intervals, in as many parts as the terminal's width asks for."""

    table: Table
    said: Sequence[str]
    """Sentences below it."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Parts of the table that fit, then what to know about it."""
        cells = self.table.cells(lambda cell: _text(cell, intervals=False), Text(MISSING, "dim"))
        names = max(map(len, self.table.labels), default=0) + _GAP
        parts: list[list[int]] = [[]]
        used = names
        for place, head in enumerate(self.table.heads):
            needed = max(*map(len, head.text.splitlines()), *map(len, cells.iloc[:, place])) + _GAP
            if parts[-1] and used + needed > options.max_width:
                parts.append([])
                used = names
            parts[-1].append(place)
            used += needed
        for part in parts:
            yield self._part(part, cells)
        yield Text(" ".join(f"{sentence}." for sentence in self.said), "dim")

    def _part(self, places: Sequence[int], cells: Any) -> RichTable:
        grid = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
        grid.add_column("method", no_wrap=True)
        for place in places:
            grid.add_column(Text(self.table.heads[place].text), justify="right", no_wrap=True)
        labels = list(self.table.labels)
        for label, following in zip(labels, [*labels[1:], None], strict=True):
            last = label in REFERENCES and following not in (*REFERENCES, None)
            style = "dim" if label in REFERENCES else ""
            grid.add_row(Text(label, style), *cells.loc[label].iloc[list(places)], end_section=last)
        return grid


def headline_table(records: Records) -> ModelsTable:
    """The table of a report for `rich.console.Console.print`; intervals are in the other formats."""
    table = report_table(records)
    said = said_of(records, table, _MARKS, intervals=False, spreads=False)[1:]
    said += [note.rstrip(".") for note in notes_of(records, table)]
    if (table.frame.interval != "").any():
        said.append("Intervals: atwu report --format md, or --output report.html")
    return ModelsTable(table, said)


def models_table(results: Mapping[str, EvalResult], names: Mapping[Line, str]) -> ModelsTable:
    """Some lines of results that are of no study, under names of one's own."""
    table = replace(table_of(results, list(names)), names=names)
    return ModelsTable(table, table.caption(_MARKS, intervals=False))


def panel_table(
    results: Mapping[str, EvalResult],
    *,
    lines: Sequence[Line] | None = None,
    references: Collection[str] = REFERENCES,
) -> RichTable:
    """One row per line, one column per model, with intervals.

    Args:
        results: model name -> result.
        lines: which lines, in order; every line by default, grouped by set.
        references: names of models that are not ranked.
    """
    table = table_of(results, lines, references=references)
    cells = table.cells(lambda cell: _text(cell, intervals=True), Text(MISSING, "dim"))
    caption = Text(" ".join(f"{sentence}." for sentence in table.caption(_MARKS)))
    grid = RichTable(caption_justify="left", caption=caption, pad_edge=False)
    grid.add_column("metric", no_wrap=True)
    grid.add_column("n", justify="right", style="dim")
    for name in results:
        grid.add_column(Text(name, "dim" if name in references else ""), justify="right")
    last = None
    for place, head in enumerate(table.heads):
        split = head.line[0]
        following = table.lines[place + 1][0] if place + 1 < len(table.lines) else split
        if lines is None and split != last:
            grid.add_row(Text(split, "bold underline"))
        last = split
        first = Text(head.full if lines is not None else f"  {head.full.removeprefix(f'{split} ')}")
        grid.add_row(first, head.count, *cells.iloc[:, place], end_section=lines is None and following != split)
    return grid


def differences_table(results: Mapping[str, EvalResult], *, to: str, lines: Sequence[Line] | None = None) -> RichTable:
    """Every model minus one of them, with paired intervals; those that exclude zero are bold.

    Args:
        results: model name -> result, all on the same rows.
        to: name of the model that is subtracted.
        lines: which lines, in order; every line by default.

    Raises:
        ValueError: models were measured on different rows.
    """
    base = results[to]
    found = {
        name: set_differences(result, base)
        | {(OVERALL, key): value for key, value in overall_differences(result, base, results.values()).items()}
        for name, result in results.items()
        if name != to
    }
    grid = RichTable(
        title=Text(f"difference to {to}"),
        title_justify="left",
        caption=Text("[ ]: paired 95 % bootstrap interval; bold: it excludes zero"),
        caption_justify="left",
        pad_edge=False,
    )
    grid.add_column("metric", no_wrap=True)
    for name in found:
        grid.add_column(Text(name), justify="right")
    for head in table_of(results, lines).heads:
        cells = (cell_of(result, head.line) for result in results.values())
        digits = next((cell.digits for cell in cells if cell is not None), 3)
        grid.add_row(Text(head.full), *(_difference(each.get(head.line), digits) for each in found.values()))
    return grid


def _difference(estimate: Estimate | None, digits: int) -> Text:
    if estimate is None or not math.isfinite(estimate.value):
        return Text(MISSING)

    def signed(value: float) -> str:
        shown = shown_number(value, digits)
        return shown if shown.startswith("-") else f"+{shown}"

    interval = estimate.interval()
    if interval is None:
        return Text(signed(estimate.value))
    low, high = interval
    number = Text(signed(estimate.value), "bold" if low > 0 or high < 0 else "")
    return Text.assemble(number, (f" [{signed(low)}, {signed(high)}]", "dim"))
