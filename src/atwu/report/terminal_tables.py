"""Terminal tables: wide tables are split into parts below each other, and marks are colours.

No text of a table is interpreted as Rich markup.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from atwu.evaluation.aggregate import mean_over_studies, paired_differences
from atwu.evaluation.columns import OVERALL
from atwu.evaluation.intervals import Estimate
from atwu.evaluation.registry import find_column
from atwu.evaluation.result import EvalResult, format_number
from atwu.report.report_table import (
    Head,
    Table,
    common_counts,
    degradation_notes,
    report_caption,
    report_table,
    table_of,
)
from atwu.report.table_values import MISSING_CELL, REFERENCE_MODELS, Mark, MetricKey, cell_of

if TYPE_CHECKING:
    from atwu.evaluation.linear_probe import ProbeResult
    from atwu.judge.agreement import AgreementResult
    from atwu.report.run_records import Records

_GAP = 3
"""Spaces between two columns of the table."""
_NAME = 34
"""Maximum length of a row name on one line, if it can be broken."""


@dataclass(frozen=True, slots=True)
class TerminalRow:
    """A name and its cells; without cells the title of the rows below it."""

    name: Text
    cells: Sequence[Text] = ()
    end: bool = False
    """Whether it ends a group of rows."""


@dataclass(frozen=True, slots=True)
class SplitTable:
    """A first column, repeated in every part, and further columns, which are never cut or broken."""

    first: str
    heads: Sequence[Text]
    rows: Sequence[TerminalRow]
    said: Sequence[str] = field(default=())
    """Sentences below the table, without full stops."""
    title: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the parts, then the notes."""
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

    def _part(self, places: Sequence[int]) -> RichTable:
        grid = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
        grid.add_column(self.first, no_wrap=True)
        for place in places:
            grid.add_column(self.heads[place], justify="right", no_wrap=True)
        for row in self.rows:
            grid.add_row(self._name(row), *(row.cells[place] for place in places if row.cells), end_section=row.end)
        return grid

    @staticmethod
    def _name(row: TerminalRow) -> Text:
        """Break a long name before an attack: `extraction_strength` / `@relearn_forget`."""
        text = row.name.plain
        place = text.rfind("@")
        if len(text) <= _NAME or place <= 0:
            return row.name
        return Text.assemble(row.name[:place], "\n", " " * (4 if text[:1] == " " else 2), row.name[place:])


def _wide(text: Text) -> int:
    return max((line.cell_len for line in text.split("\n", allow_blank=True)), default=0)


_STYLES: Mapping[str, str] = {"best": "bold green", "second": "italic", "degraded": "red", "": ""}
_MARKS: Mapping[Mark, str] = {"best": "green: best", "second": "italic: second", "degraded": "red: degraded"}


def _text(cell: Any, *, intervals: bool) -> Text:
    """Format a row of the frame as one cell."""
    text = Text(cell.number, "dim" if cell.reference else _STYLES[cell.mark])
    around = [f"± {cell.spread}" if cell.spread else "", cell.interval] if intervals else []
    around.append(f"({cell.told})" if cell.told else "")
    return text.append("".join(f" {part}" for part in around if part), "dim" if intervals else "")


def headline_table(records: Records) -> SplitTable:
    """Headline table of a report for `rich.console.Console.print`; other formats include intervals."""
    table = report_table(records)
    said = report_caption(records, table, _MARKS, intervals=False, spreads=False)[1:]
    said += [note.rstrip(".") for note in degradation_notes(records, table)]
    if (table.frame.interval != "").any():
        said.append("Intervals: atwu report FOLDER --format md, or --output report.html")
    return _models(table, said)


def models_terminal_table(results: Mapping[str, EvalResult], names: Mapping[MetricKey, str]) -> SplitTable:
    """Table of some metrics of results outside a study, with custom names."""
    table = replace(table_of(results, list(names)), names=names)
    return _models(table, table.caption(_MARKS, intervals=False))


def _models(table: Table, said: Sequence[str]) -> SplitTable:
    """One row per model, without intervals."""
    cells = table.cells(lambda cell: _text(cell, intervals=False), Text(MISSING_CELL, "dim"))
    rows = []
    for label in table.labels:
        name = Text(table.shown(label), "dim" if label in REFERENCE_MODELS or label in table.out else "")
        rows.append(TerminalRow(name, list(cells.loc[label]), end=label in table.ruled))
    return SplitTable("method", [Text(head.text) for head in table.heads], rows, said)


def panel_table(results: Mapping[str, EvalResult], *, keys: Sequence[MetricKey] | None = None) -> SplitTable:
    """Table with one row per metric, one column per model, with intervals.

    Args:
        keys: metrics, in order; all metrics by default, grouped by set.
    """
    table = table_of(results, keys)
    cells = table.cells(lambda cell: _text(cell, intervals=True), Text(MISSING_CELL, "dim"))
    usual = common_counts(table)
    rows: list[TerminalRow] = []
    for place, head in enumerate(table.heads):
        split = head.key[0]
        if keys is None and (place == 0 or table.keys[place - 1][0] != split):
            rows.append(
                TerminalRow(Text(split if split == OVERALL else f"{split} (n = {usual[split]})", "bold underline"))
            )
        name = Text(head.full if keys is not None else f"  {head.full.removeprefix(f'{split} ')}")
        if head.count != usual[split]:
            name.append(f" (n = {head.count})", "dim")
        end = keys is None and place + 1 < len(table.keys) and table.keys[place + 1][0] != split
        rows.append(TerminalRow(name, list(cells.iloc[:, place]), end=end))
    heads = [Text(table.shown(name), "dim" if name in REFERENCE_MODELS else "") for name in results]
    counts = f"Rows: {', '.join(f'{split} n={count}' for split, count in usual.items())}"
    said = ([counts] if keys is not None and usual else []) + table.caption(_MARKS)
    return SplitTable("metric", heads, rows, said)


def differences_table(
    results: Mapping[str, EvalResult],
    *,
    to: str,
    keys: Sequence[MetricKey] | None = None,
    found: Mapping[str, Mapping[MetricKey, Estimate]] | None = None,
) -> SplitTable:
    """Table of every model minus a reference model, with paired intervals; those that exclude zero are bold.

    Args:
        found: precomputed differences, for means over seeds without single rows.

    Raises:
        ValueError: the models were evaluated on different rows.
    """
    if found is None:
        base, others = results[to], list(results.values())
        found = {name: paired_differences(result, base, others) for name, result in results.items() if name != to}
    rows = []
    for head in table_of(results, keys).heads:
        known = (cell_of(result, head.key) for result in results.values())
        digits = next((cell.digits for cell in known if cell is not None), 3)
        rows.append(TerminalRow(Text(head.full), [_difference(each.get(head.key), digits) for each in found.values()]))
    said = ["[ ]: paired 95 % bootstrap interval", "Bold: the interval excludes zero"]
    return SplitTable("metric", list(map(Text, found)), rows, said, title=f"difference to {to}")


def studies_table(
    studies: Mapping[str, Mapping[str, Mapping[MetricKey, Estimate]]], *, to: str, heads: Sequence[Head]
) -> SplitTable:
    """Differences to one model in every study, and their mean if all studies have the model and the metric.

    Args:
        studies: name of a study -> model -> metric -> difference, as from
            `atwu.report.run_records.Records.paired_differences`.
        heads: the metrics, in order.
    """
    keys = {head.key for head in heads}
    models = dict.fromkeys(name for study in studies.values() for name, found in study.items() if keys & found.keys())
    rows = []
    for head in heads:
        column = find_column(head.key[1], head.key[0])
        digits = 3 if column is None else column[1].digits
        found = {name: [study.get(model, {}).get(head.key) for model in models] for name, study in studies.items()}
        columns = [[cell for cell in cells if cell is not None] for cells in zip(*found.values(), strict=True)]
        found["mean"] = [mean_over_studies(cells) if len(cells) == len(studies) else None for cells in columns]
        rows.append(TerminalRow(Text(head.full, "bold underline")))
        rows += [
            TerminalRow(Text(f"  {name}"), [_difference(cell, digits) for cell in cells])
            for name, cells in found.items()
        ]
    said = ["[ ]: paired 95 % bootstrap interval", "Bold: the interval excludes zero", "Mean: unweighted over studies"]
    return SplitTable("study", list(map(Text, models)), rows, said, title=f"difference to {to}")


def _difference(estimate: Estimate | None, digits: int) -> Text:
    if estimate is None or not math.isfinite(estimate.value):
        return Text(MISSING_CELL)

    def signed(value: float) -> str:
        shown = format_number(value, digits)
        return shown if shown.startswith("-") else f"+{shown}"

    interval = estimate.interval()
    if interval is None:
        return Text(signed(estimate.value))
    low, high = interval
    number = Text(signed(estimate.value), "bold" if low > 0 or high < 0 else "")
    return Text.assemble(number, (f" [{signed(low)}, {signed(high)}]", "dim"))


def agreement_table(found: AgreementResult, *, title: str) -> RichTable:
    """Table with one row for all cases and one for each kind."""
    table = RichTable(title=Text(title), title_justify="left")
    for column in ("cases", "n", "unscored", "accuracy", "kappa", "false yes", "false no"):
        table.add_column(column, justify="left" if column == "cases" else "right")

    def line(name: str, part: AgreementResult, *, interval: bool) -> None:
        accuracy = "–" if part.accuracy is None else f"{part.accuracy:.3f}"
        if interval and part.interval is not None:
            low, high = part.interval
            accuracy += f" [{low:.3f}, {high:.3f}]"
        table.add_row(
            name,
            str(part.n),
            str(part.unscored),
            accuracy,
            f"{part.kappa:.3f}" if interval and part.kappa is not None else "",
            str(part.false_positives),
            str(part.false_negatives),
        )

    line("all", found, interval=True)
    table.add_section()
    for kind, part in found.kinds.items():
        line(kind, part, interval=False)
    return table


_READING = (
    "How to read it: mean ± standard deviation over answers; 1 is perfect, 0.5 is chance. Held-out answers are about "
    "subjects that the probe was not trained on; a much higher train AUROC indicates overfitting."
)


def print_probe(console: Console, results: Sequence[ProbeResult], *, title: str) -> None:
    """Print the probe table and how to read it."""
    console.print(probe_table(results, title=title))
    console.print(_READING, highlight=False, soft_wrap=True)


def probe_table(results: Sequence[ProbeResult], *, title: str) -> RichTable:
    """Table with one row per layer and position; the best printed held-out value is bold, including ties."""
    table = RichTable(title=Text(title), title_justify="left")
    for column in ("layer", "position"):
        table.add_column(column, no_wrap=True)
    for column in ("held-out AUROC ↑", "train AUROC", "rows"):
        table.add_column(column, justify="right", no_wrap=True)
    best = max(f"{result.auroc.mean:.3f}" for result in results)
    for place, result in enumerate(results):
        mean = f"{result.auroc.mean:.3f}"
        train = "–" if result.train_auroc is None else f"{result.train_auroc:.3f}"
        table.add_row(
            *(str(result.layer), result.position, f"{mean} ± {result.auroc.std:.3f}", train, str(result.auroc.n)),
            style="bold" if mean == best else None,
            end_section=place + 1 < len(results) and results[place + 1].layer != result.layer,
        )
    return table
