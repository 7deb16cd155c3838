"""The table of models as text: in the terminal, in Markdown and in LaTeX; and a report as CSV and JSON.

All lay out one data frame (`metric_table.py`), and print the numbers of the JSON, rounded. In the terminal wide tables are
split into parts below each other, and no text is interpreted as Rich markup.
"""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pandas as pd
from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Column
from rich.table import Table as RichTable
from rich.text import Text

from atwu.evaluation.aggregate import mean_over_studies
from atwu.evaluation.columns import OVERALL
from atwu.evaluation.intervals import Estimate
from atwu.evaluation.registry import column_of
from atwu.evaluation.result import ARROWS, EvalResult, format_number
from atwu.report.metric_table import (
    DATA,
    MISSING_CELL,
    REFERENCE_MODELS,
    SUBSCRIPT,
    Head,
    Mark,
    MetricKey,
    Table,
    table_of,
)
from atwu.report.report_records import Records, degradation_notes, headline_metrics, report_caption, report_table
from atwu.training.model_card import public_command, public_record

if TYPE_CHECKING:
    from atwu.evaluation.linear_probe import ProbeResult
    from atwu.judge.agreement import AgreementResult

_STYLES: Mapping[str, str] = {"best": "bold green", "second": "italic", "degraded": "red", "": ""}
_MARKS: Mapping[Mark, str] = {"best": "green: best", "second": "italic: second", "degraded": "red: degraded"}
_NAME = 34
"""Maximum length of a metric's name on one line."""


@dataclass(frozen=True, slots=True)
class SplitTable:
    """A table whose columns are never cut or broken: those that do not fit follow below, with the first one repeated."""

    table: RichTable
    notes: Sequence[str] = ()
    """Sentences below the table, without full stops."""
    title: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render as many columns per part as fit, then the notes."""
        if self.title:
            yield Text(self.title, "bold")
        first, *others = self.table.columns
        shown = [first]
        for column in others:
            wider = self._part([*shown, column])
            # Measured without a limit: within the terminal's width Rich would report at most that width.
            if shown[1:] and Measurement.get(console, options.update_width(10_000), wider).maximum > options.max_width:
                yield self._part(shown)
                shown = [first]
            shown.append(column)
        yield self._part(shown)
        if self.notes:
            yield Text(" ".join(f"{sentence}." for sentence in self.notes), "dim")

    def _part(self, columns: Sequence[Column]) -> RichTable:
        part = copy.copy(self.table)
        # Rich finds the cells of a column by its index.
        part.columns = [replace(column, _index=place) for place, column in enumerate(columns)]
        return part


def _empty_table(first: str, heads: Iterable[Text]) -> RichTable:
    columns = [Column(first, no_wrap=True), *(Column(head, justify="right", no_wrap=True) for head in heads)]
    return RichTable(*columns, box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))


def _break_name(name: Text) -> Text:
    """Break a long name before an attack: `extraction_strength` / `@relearn_forget`."""
    place = name.plain.find("@")
    if len(name) <= _NAME or place <= 0:
        return name
    indent = "  "
    if name.plain.startswith(" "):
        indent = "    "
    return Text.assemble(name[:place], f"\n{indent}", name[place:])


def _beside(cell: Any, *, intervals: bool) -> str:
    """Return what stands behind the number of a cell: spread and interval if wanted, and how many seeds have it."""
    parts = []
    if intervals and cell.spread:
        parts.append(f"± {cell.spread}")
    if intervals and cell.interval:
        parts.append(cell.interval)
    if cell.told:
        parts.append(f"({cell.told})")
    return "".join(f" {part}" for part in parts)


def _text(cell: Any, *, intervals: bool) -> Text:
    """Format a row of the frame as one cell."""
    style = _STYLES[cell.mark]
    if cell.reference:
        style = "dim"
    beside = ""
    if intervals:
        beside = "dim"
    return Text(cell.number, style).append(_beside(cell, intervals=intervals), beside)


def headline_table(records: Records) -> SplitTable:
    """Headline table of a report for `rich.console.Console.print`; other formats include intervals."""
    table = report_table(records)
    notes = report_caption(records, table, _MARKS, intervals=False)[1:]
    notes += [note.rstrip(".") for note in degradation_notes(table)]
    if (table.frame.interval != "").any():
        notes.append("Intervals: atwu report FOLDER --format md, or --output report.html")
    return _models(table, notes)


def models_terminal_table(results: Mapping[str, EvalResult], names: Mapping[MetricKey, str]) -> SplitTable:
    """Table of some metrics of results outside a study, with custom names."""
    table = table_of(results).only(list(names))
    return _models(table, table.caption(_MARKS, intervals=False), names)


def _models(table: Table, notes: Sequence[str], names: Mapping[MetricKey, str] = MappingProxyType({})) -> SplitTable:
    heads = [Text(names.get(head.key, head.name) + ARROWS[head.direction]) for head in table.heads]
    cells = table.cells(lambda cell: _text(cell, intervals=False), Text(MISSING_CELL, "dim"))
    grid = _empty_table("method", heads)
    for label in table.labels:
        if label in table.ruled:
            grid.add_section()
        style = ""
        if label in REFERENCE_MODELS or label in table.out:
            style = "dim"
        grid.add_row(Text(table.shown(label), style), *cells.loc[label])
    return SplitTable(grid, notes)


def panel_table(results: Mapping[str, EvalResult], *, keys: Sequence[MetricKey] | None = None) -> SplitTable:
    """Table with one row per metric and one column per model, with intervals; all metrics, grouped by set, by default."""
    table = table_of(results)
    if keys is not None:
        table = table.only(keys)
    cells = table.cells(lambda cell: _text(cell, intervals=True), Text(MISSING_CELL, "dim"))
    counts: dict[str, list[str]] = {}
    for head in table.heads:
        counts.setdefault(head.key[0], []).append(head.count)
    # The count of most metrics stands in the heading of the set; others have theirs beside the name.
    usual = {split: max(numbers, key=numbers.count) for split, numbers in counts.items()}
    grid = _empty_table(
        "metric", [Text(table.shown(name), "dim" if name in REFERENCE_MODELS else "") for name in results]
    )
    group = ""
    for place, head in enumerate(table.heads):
        name, split = head.full, head.key[0]
        if keys is None:
            name = f"  {name.removeprefix(f'{split} ')}"
            if split != group:
                if place:
                    grid.add_section()
                title = f"{split} (n = {usual[split]})"
                if split == OVERALL:  # its metrics are of no set of rows
                    title = split
                grid.add_row(Text(title, "bold underline"))
        group = split
        other = ""
        if head.count != usual[split]:
            other = f" (n = {head.count})"
        grid.add_row(_break_name(Text.assemble(name, (other, "dim"))), *cells.iloc[:, place])
    notes = []
    if keys and usual:
        notes.append(f"Rows: {', '.join(f'{split} n={count}' for split, count in usual.items())}")
    return SplitTable(grid, notes + table.caption(_MARKS))


def differences_table(
    studies: Mapping[str, Mapping[str, Mapping[MetricKey, Estimate]]], *, to: str, heads: Sequence[Head]
) -> SplitTable:
    """Table of paired differences (study -> model -> metric) to one model.

    Several studies are listed for each metric, with their mean if all of them have it.
    """
    keys = {head.key for head in heads}
    models = dict.fromkeys(
        name for study in studies.values() for name, of_study in study.items() if keys & of_study.keys()
    )
    several = len(studies) > 1
    notes = ["[ ]: paired 95 % bootstrap interval", "Bold: the interval excludes zero"]
    first = "metric"
    if several:
        first = "study"
        notes.append("Mean: unweighted over studies")
    grid = _empty_table(first, map(Text, models))
    for head in heads:
        of_study = {name: [study.get(model, {}).get(head.key) for model in models] for name, study in studies.items()}
        if several:
            grid.add_row(_break_name(Text(head.full, "bold underline")))
            columns = [[cell for cell in cells if cell is not None] for cells in zip(*of_study.values(), strict=True)]
            # A mean over some of the studies would not compare with those of other models.
            of_study["mean"] = [mean_over_studies(cells) if len(cells) == len(studies) else None for cells in columns]
        for name, cells in of_study.items():
            shown = head.full
            if several:
                shown = f"  {name}"
            grid.add_row(_break_name(Text(shown)), *(_difference(cell, head.key) for cell in cells))
    return SplitTable(grid, notes, title=f"difference to {to}")


def _difference(estimate: Estimate | None, key: MetricKey) -> Text:
    if estimate is None or not math.isfinite(estimate.value):
        return Text(MISSING_CELL)
    digits = 3
    column = column_of(key[1], key[0])
    if column is not None:
        digits = column.digits

    def with_sign(value: float) -> str:
        shown = format_number(value, digits)
        if shown.startswith("-"):
            return shown
        return f"+{shown}"

    number = Text(with_sign(estimate.value))
    interval = estimate.interval()
    if interval is None:
        return number
    low, high = interval
    if low > 0 or high < 0:
        number.stylize("bold")
    return Text.assemble(number, (f" [{with_sign(low)}, {with_sign(high)}]", "dim"))


def titled_table(title: str, names: Sequence[str], numbers: Sequence[str]) -> RichTable:
    """Return an empty table with a title, columns of text and, after them, columns of numbers."""
    columns = (Column(name, justify="right", no_wrap=True) for name in numbers)
    return RichTable(*names, *columns, title=Text(title), title_justify="left")


def agreement_table(agreed: AgreementResult, *, title: str) -> RichTable:
    table = titled_table(title, ["cases"], ["n", "unscored", "accuracy", "kappa", "false yes", "false no"])
    for name, part in {"all": agreed, **agreed.kinds}.items():
        accuracy, kappa = MISSING_CELL, ""
        if part.accuracy is not None:
            accuracy = f"{part.accuracy:.3f}"
        if part is agreed and part.interval is not None:
            accuracy += " [{:.3f}, {:.3f}]".format(*part.interval)
        if part is agreed and part.kappa is not None:
            kappa = f"{part.kappa:.3f}"
        table.add_row(
            *(Text(name), str(part.n), str(part.unscored), accuracy, kappa),
            *(str(part.false_positives), str(part.false_negatives)),
            end_section=part is agreed,
        )
    return table


PROBE_READING = (
    "How to read it: mean ± standard deviation over answers; 1 is perfect, 0.5 is chance. Held-out answers are about "
    "subjects that the probe was not trained on; a much higher train AUROC indicates overfitting."
)


def probe_table(results: Sequence[ProbeResult], *, title: str) -> RichTable:
    """Table with one row per layer and position; the best printed held-out value is bold, including ties."""
    table = titled_table(title, ["layer", "position"], ["held-out AUROC ↑", "train AUROC", "rows"])
    best = max(f"{result.auroc.mean:.3f}" for result in results)
    layer = results[0].layer
    for result in results:
        if result.layer != layer:
            table.add_section()
        layer, mean = result.layer, f"{result.auroc.mean:.3f}"
        train = MISSING_CELL
        if result.train_auroc is not None:
            train = f"{result.train_auroc:.3f}"
        table.add_row(
            *(str(result.layer), result.position, f"{mean} ± {result.auroc.std:.3f}", train, str(result.auroc.n)),
            style="bold" if mean == best else None,
        )
    return table


_MARKDOWN = {"best": "**{}**", "second": "*{}*", "degraded": "{} (!)", "": "{}"}
_MARKDOWN_LEGEND: Mapping[Mark, str] = {"best": "bold: best", "second": "italic: second", "degraded": "(!): degraded"}
_LATEX = {"best": r"\textbf{%s}", "second": r"\underline{%s}", "degraded": r"\textcolor{red}{%s}", "": "%s"}
_LATEX_LEGEND: Mapping[Mark, str] = {"best": "bold: best", "second": "underlined: second", "degraded": "red: degraded"}
_TEX = str.maketrans(
    {sign: rf"\{sign}" for sign in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "…": r"\ldots{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "±": r"$\pm$", "×": r"$\times$", "–": "--", "−": "$-$"}
    | {"Δ": r"$\Delta$", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "½": r"$\tfrac12$"}
)


def to_markdown(records: Records) -> str:
    """Format the table in GitHub Markdown: best **bold**, second *italic*, degraded (!); followed by its caption."""
    table = report_table(records)
    caption = " ".join(f"{part}." for part in report_caption(records, table, _MARKDOWN_LEGEND))
    text = f"{models_markdown(table)}\n{escape_markdown(caption)}\n"
    notes = "".join(f"- {escape_markdown(note)}\n" for note in degradation_notes(table))
    if notes:
        text += f"\n{notes}"
    return text


def models_markdown(table: Table) -> str:
    def write(cell: Any) -> str:
        return _MARKDOWN[cell.mark].format(cell.number) + _beside(cell, intervals=True)

    text = [["method", *(escape_markdown(head.text) for head in table.heads)], ["---", *["---:"] * len(table.keys)]]
    for label, cells in zip(table.labels, table.cells(write, MISSING_CELL).values, strict=True):
        text.append([escape_markdown(table.shown(label)), *cells])
    return "".join(f"| {' | '.join(row)} |\n" for row in text)


def escape_markdown(text: str) -> str:
    return re.sub(r"([\\|*_<`\[\]!])", r"\\\1", text.replace("\n", " "))


def to_latex(records: Records) -> str:
    """Format the table: best bold, second underlined, degraded red, spread over seeds as subscript, intervals below."""
    table = report_table(records)

    def write(cell: Any) -> str:
        text = _LATEX[cell.mark] % _minus(cell.number)
        if cell.spread:
            text += rf"$_{{\pm {cell.spread}}}$"
        if cell.told:
            text += rf" {{\tiny ({cell.told})}}"
        return text

    numbers = table.cells(write, "--")
    intervals = table.cells(lambda cell: cell.interval and rf"{{\tiny {_minus(cell.interval)}}}")
    names = pd.Series({label: escape_latex(table.shown(label)) for label in table.labels})
    for below in table.ruled:
        names[below] = rf"\midrule {names[below]}"
    numbers.insert(0, "", names)
    intervals.insert(0, "", "")
    # Both frames have the labels as index, so that `loc` puts the intervals of a model below its numbers.
    rows = pd.concat([numbers, intervals[(intervals != "").any(axis=1)]]).loc[list(table.labels)]
    rows.columns = ["method", *(_latex_head(head.text) for head in table.heads)]
    caption = [*report_caption(records, table, _LATEX_LEGEND), *degradation_notes(table)]
    text: str = rows.to_latex(
        index=False,
        escape=False,
        column_format="l" + "r" * len(table.keys),
        position="t",
        caption=" ".join(escape_latex(part.rstrip(".")) + "." for part in caption),
    )
    # Twelve metrics with intervals fit the text width of a paper only in small type.
    size = r"\centering\footnotesize\setlength{\tabcolsep}{3pt}"
    # Behind the first line, which begins the table: pandas has no argument for the size of its type.
    return "% needs \\usepackage{booktabs} and \\usepackage{xcolor}\n" + text.replace("\n", f"\n{size}\n", 1)


def escape_latex(text: str) -> str:
    return text.replace("\n", " ").translate(_TEX)


def _latex_head(name: str) -> str:
    """Format a name and its arrow, with the subscripts of metrics."""
    parts = SUBSCRIPT.split(name)
    lows = [rf"$_{{{low}}}$".replace("Δ", r"\Delta") for low in parts[2::3]]
    named = zip(parts[::3], [*parts[1::3], ""], [*lows, ""], strict=True)
    return "".join(escape_latex(before) + base + low for before, base, low in named)


def _minus(number: str) -> str:
    return number.replace("-", "$-$")


def to_csv(records: Records) -> str:
    """Return all numbers of all models in long form, unrounded: one row per model, set and metric."""
    return str(records.table.frame.to_csv(columns=DATA, index=False, lineterminator="\n"))


def to_json(records: Records) -> str:
    """Return the report as JSON: results averaged over seeds, and the single runs.

    Values per row are only in the runs' own `eval.json`; local paths and secrets in URLs are removed.
    """
    plain = public_record(
        {
            "schema": "atwu.report/1",
            "title": records.title,
            "study": dict(records.study),
            "headline": [list(key) for key in headline_metrics(records)],
            "results": {label: replace(result, rows={}).to_json() for label, result in records.results.items()},
            "runs": [
                {
                    "label": run.label,
                    "seed": run.seed,
                    "result": replace(run.result, rows={}).to_json(),
                    "run": None if run.run is None else dict(run.run),
                }
                for run in records.runs
            ],
        }
    )
    if records.study.get("command") is not None:
        plain["study"]["command"] = public_command(str(records.study["command"]))
    return json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


WRITERS: Mapping[str, Callable[[Records], str]] = {"md": to_markdown, "latex": to_latex, "csv": to_csv, "json": to_json}
