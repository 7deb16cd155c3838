"""Export a report as Markdown, LaTeX, CSV or JSON. Printed numbers are those of the JSON, rounded."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import pandas as pd
from pydantic import TypeAdapter, with_config

from atwu.evaluation.result import STRICT, EvalResult
from atwu.report.metric_table import DATA, MISSING_CELL, SUBSCRIPT, Mark, MetricKey, Table
from atwu.report.report_records import Records, degradation_notes, headline_metrics, report_caption, report_table
from atwu.training.model_card import public_command, public_record

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
    notes = "".join(f"- {escaped(note)}\n" for note in degradation_notes(table))
    return f"{models_markdown(table, intervals=True)}\n{escaped(caption)}\n" + (f"\n{notes}" if notes else "")


def models_markdown(table: Table, *, intervals: bool = False) -> str:
    def write(cell: Any) -> str:
        spread, told = cell.spread and f"± {cell.spread}", cell.told and f"({cell.told})"
        parts = [_MARKDOWN[cell.mark].format(cell.number), spread, intervals and cell.interval, told]
        return " ".join(part for part in parts if part)

    text = [["method", *(escaped(head.text) for head in table.heads)], ["---", *["---:"] * len(table.keys)]]
    for label, cells in zip(table.labels, table.cells(write, MISSING_CELL).values, strict=True):
        text.append([escaped(table.shown(label)), *cells])
    return "".join(f"| {' | '.join(row)} |\n" for row in text)


def escaped(text: str) -> str:
    return re.sub(r"([\\|*_<`\[\]!])", r"\\\1", text.replace("\n", " "))


def to_latex(records: Records) -> str:
    """Format the table: best bold, second underlined, degraded red, spread over seeds as subscript, intervals below."""
    table = report_table(records)
    numbers = table.cells(_latex_cell, "--")
    intervals = table.cells(lambda cell: cell.interval and rf"{{\tiny {_minus(cell.interval)}}}")
    names = pd.Series({label: tex(table.shown(label)) for label in table.labels})
    for below in table.ruled:
        names[below] = rf"\midrule {names[below]}"
    numbers.insert(0, "", names)
    intervals.insert(0, "", "")
    rows = pd.concat([numbers, intervals[(intervals != "").any(axis=1)]]).loc[list(table.labels)]
    rows.columns = ["method", *(_latex_head(head.text) for head in table.heads)]
    caption = [*report_caption(records, table, _LATEX_LEGEND), *degradation_notes(table)]
    text: str = rows.to_latex(
        index=False,
        escape=False,
        column_format="l" + "r" * len(table.keys),
        position="t",
        caption=" ".join(tex(part.rstrip(".")) + "." for part in caption),
    )
    size = r"\centering\footnotesize\setlength{\tabcolsep}{3pt}"
    return "% needs \\usepackage{booktabs} and \\usepackage{xcolor}\n" + text.replace("\n", f"\n{size}\n", 1)


def tex(text: str) -> str:
    return text.replace("\n", " ").translate(_TEX)


def _latex_head(name: str) -> str:
    """Format a name and its arrow, with the subscripts of metrics."""
    parts = SUBSCRIPT.split(name)
    lows = [rf"$_{{{low}}}$".replace("Δ", r"\Delta") for low in parts[2::3]]
    named = zip(parts[::3], [*parts[1::3], ""], [*lows, ""], strict=True)
    return "".join(tex(before) + base + low for before, base, low in named)


def _latex_cell(cell: Any) -> str:
    text = _LATEX[cell.mark] % _minus(cell.number) + (rf"$_{{\pm {cell.spread}}}$" if cell.spread else "")
    return text + (rf" {{\tiny ({cell.told})}}" if cell.told else "")


def _minus(number: str) -> str:
    return number.replace("-", "$-$")


def to_csv(records: Records) -> str:
    """Return all numbers of all models in long form, unrounded: one row per model, set and metric."""
    return str(records.table.frame.to_csv(columns=DATA, index=False, lineterminator="\n"))


@with_config(STRICT)
@dataclass(frozen=True)
class _Run:
    label: str
    seed: int | None
    result: EvalResult
    run: dict[str, Any] | None


@with_config(STRICT)
@dataclass(frozen=True)
class _Report:
    schema: Literal["atwu.report/1"]
    title: str
    study: dict[str, Any]
    headline: list[MetricKey]
    results: dict[str, EvalResult]
    runs: list[_Run]


_REPORT = TypeAdapter(_Report)


def to_json(records: Records) -> str:
    """Return the report as JSON that satisfies `REPORT_SCHEMA`: results averaged over seeds, and the single runs.

    Values per row are only in the runs' own `eval.json`; local paths and secrets in URLs are removed.
    """
    report = _Report(
        "atwu.report/1",
        records.title,
        dict(records.study),
        headline_metrics(records),
        {label: replace(result, rows={}) for label, result in records.results.items()},
        [
            _Run(run.label, run.seed, replace(run.result, rows={}), None if run.run is None else dict(run.run))
            for run in records.runs
        ],
    )
    plain = public_record(json.loads(_REPORT.dump_json(report)))
    if records.study.get("command") is not None:  # earlier versions stored it unchanged
        plain["study"]["command"] = public_command(str(records.study["command"]))
    return json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


REPORT_SCHEMA: Mapping[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    **_REPORT.json_schema(mode="serialization"),
    "title": "Report of atwu report --format json",
}

WRITERS: Mapping[str, Callable[[Records], str]] = {"md": to_markdown, "latex": to_latex, "csv": to_csv, "json": to_json}
