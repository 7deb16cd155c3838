"""A report's table as Markdown, LaTeX, CSV and JSON. Printed numbers are those of the JSON, rounded."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from atwu.evaluation.result import EVAL_SCHEMA, EvalResult
from atwu.report.method_table import TableCell, caption_of, headline_lines, method_table
from atwu.report.panel import Line, Mark, cell_of, lines_of
from atwu.report.records import Records
from atwu.report.tables import ARROWS, MISSING, escaped
from atwu.report.terminal_table import headline_table
from atwu.training.card import public_command, public_record

__all__ = [
    "REPORT_SCHEMA",
    "WRITERS",
    "headline_lines",
    "headline_table",
    "to_csv",
    "to_json",
    "to_latex",
    "to_markdown",
]

SCHEMA_NAME = "atwu.report/1"


def to_markdown(records: Records, lines: Sequence[Line] | None = None, *, intervals: bool = True) -> str:
    """GitHub Markdown: best **bold**, second *italic*, degraded (!); the last lines say what is what.

    Args:
        records: finished runs.
        lines: columns; those of `headline_lines` by default.
        intervals: whether to print them.
    """
    table = method_table(records, lines)
    heads = ["method", *(escaped(column.name) + ARROWS[column.direction] for column in table.columns)]
    text = [heads, ["---", *["---:"] * len(table.columns)]]
    for row in table.rows:
        text.append([escaped(row.name), *(_markdown_cell(cell, intervals) for cell in row.cells)])
    body = "".join(f"| {' | '.join(line)} |\n" for line in text)
    marks: Mapping[Mark, str] = {"best": "bold: best", "second": "italic: second", "degraded": "(!): degraded"}
    caption = " ".join(f"{part}." for part in caption_of(table, marks, intervals=intervals))
    notes = "".join(f"- {escaped(note)}\n" for note in table.notes)
    return f"{body}\n{escaped(caption)}\n" + (f"\n{notes}" if notes else "")


def _markdown_cell(cell: TableCell, intervals: bool) -> str:
    before, after = {"best": ("**", "**"), "second": ("*", "*"), "degraded": ("", " (!)")}.get(
        cell.mark or "", ("", "")
    )
    parts = [f"{before}{cell.number}{after}"]
    if cell.spread:
        parts.append(f"± {cell.spread}")
    if intervals and cell.interval is not None:
        parts.append(f"[{cell.interval[0]}, {cell.interval[1]}]")
    if cell.seeds:
        parts.append(f"({cell.seeds})")
    return " ".join(parts)


# LaTeX

_TEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "–": "--",
    "−": "$-$",
    "Δ": r"$\Delta$",
    "½": r"$\tfrac12$",
    "…": r"\ldots{}",
}
_TEX_ARROWS = {"up": r" $\uparrow$", "down": r" $\downarrow$", "none": ""}


def to_latex(records: Records, lines: Sequence[Line] | None = None, *, intervals: bool = True) -> str:
    r"""A booktabs table: best bold, second underlined, degraded red, spread over seeds as subscript, intervals below.

    Args:
        records: finished runs.
        lines: columns; those of `headline_lines` by default.
        intervals: whether to print them.

    Returns:
        A `table` environment; needs the packages booktabs and xcolor.
    """
    table = method_table(records, lines)
    heads = [(column.latex or tex(column.name)) + _TEX_ARROWS[column.direction] for column in table.columns]
    body: list[str] = []
    for place, row in enumerate(table.rows):
        if place and table.rows[place - 1].reference and not row.reference:
            body.append(r"    \midrule")
        body.append(f"    {' & '.join([tex(row.name), *map(_tex_cell, row.cells)])} \\\\")
        if intervals and any(cell.interval for cell in row.cells):
            body.append(f"    {' & '.join(['', *map(_tex_interval, row.cells)])} \\\\")
    marks: Mapping[Mark, str] = {"best": "bold: best", "second": "underlined: second", "degraded": "red: degraded"}
    caption = [*caption_of(table, marks, intervals=intervals), *(note.rstrip(".") for note in table.notes)]
    return "\n".join(
        [
            r"% needs \usepackage{booktabs} and \usepackage{xcolor}",
            r"\begin{table}[t]",
            r"  \centering",
            r"  \footnotesize",
            r"  \setlength{\tabcolsep}{3pt}",
            f"  \\caption{{{' '.join(f'{tex(part)}.' for part in caption)}}}",
            f"  \\begin{{tabular}}{{l{'r' * len(heads)}}}",
            r"    \toprule",
            f"    {' & '.join(['method', *heads])} \\\\",
            r"    \midrule",
            *body,
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def tex(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return "".join(_TEX.get(character, character) for character in text.replace("\n", " "))


def _tex_cell(cell: TableCell) -> str:
    if cell.number == MISSING:
        return "--"
    command = {"best": r"\textbf", "second": r"\underline", "degraded": r"\textcolor{red}"}.get(cell.mark or "", "")
    text = f"{command}{{{_tex_number(cell.number)}}}" if command else _tex_number(cell.number)
    if cell.spread:
        text += f"$_{{\\pm {cell.spread}}}$"
    if cell.seeds:
        text += f" {{\\tiny ({cell.seeds})}}"
    return text


def _tex_interval(cell: TableCell) -> str:
    if cell.interval is None:
        return ""
    low, high = map(_tex_number, cell.interval)
    return f"{{\\tiny [{low}, {high}]}}"


def _tex_number(number: str) -> str:
    return number.replace("-", "$-$")


# Data

_FIELDS = ("label", "seeds", "set", "metric", "value", "low", "high", "seed_std", "n", "direction")


def to_csv(records: Records) -> str:
    """Every number of every model in long form, unrounded: one line per model, set and metric."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_FIELDS)
    for label, result in records.results.items():
        for line in lines_of({label: result}):
            cell = cell_of(result, line)
            assert cell is not None
            values = (cell.value, cell.low, cell.high, cell.seed_std)
            numbers = ("" if value is None else repr(value) for value in values)
            writer.writerow([label, cell.seeds, *line, *numbers, cell.n, cell.direction])
    return out.getvalue()


def to_json(records: Records) -> str:
    """Everything as JSON that satisfies `REPORT_SCHEMA`: results averaged over seeds, and the single runs.

    Values of single rows and curves stay in the runs' own `eval.json`; places of this machine and secrets in addresses are
    left out.
    """
    plain: dict[str, Any] = {
        "schema": SCHEMA_NAME,
        "title": records.title,
        "study": _study(records),
        "headline": [list(line) for line in headline_lines(records)],
        "results": {label: _without_rows(result) for label, result in records.results.items()},
        "runs": [
            {
                "label": run.label,
                "seed": run.seed,
                "result": _without_rows(run.result),
                "run": None if run.run is None else public_record(run.run),
            }
            for run in records.runs
        ],
    }
    return json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _without_rows(result: EvalResult) -> dict[str, Any]:
    plain: dict[str, Any] = public_record(dataclasses.replace(result, rows={}, curves={}).to_json())
    return plain


def _study(records: Records) -> dict[str, Any]:
    """`study.json`, which may come from a version that kept the command as it was typed."""
    plain: dict[str, Any] = public_record(records.study)
    command = records.study.get("command")
    return plain if command is None else plain | {"command": public_command(str(command))}


REPORT_SCHEMA: Mapping[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Report of atwu report --format json",
    "type": "object",
    "required": ["schema", "title", "study", "headline", "results", "runs"],
    "additionalProperties": False,
    "properties": {
        "schema": {"const": SCHEMA_NAME},
        "title": {"type": "string"},
        "study": {"type": "object"},
        "headline": {
            "type": "array",
            "items": {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2},
        },
        "results": {"type": "object", "additionalProperties": {"$ref": "#/$defs/result"}},
        "runs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["label", "seed", "result", "run"],
                "additionalProperties": False,
                "properties": {
                    "label": {"type": "string"},
                    "seed": {"type": ["integer", "null"]},
                    "result": {"$ref": "#/$defs/result"},
                    "run": {"type": ["object", "null"]},
                },
            },
        },
    },
    "$defs": {"result": {key: value for key, value in EVAL_SCHEMA.items() if key != "$schema"}},
}
"""JSON Schema of `to_json`."""

WRITERS: Mapping[str, Callable[[Records], str]] = {
    "md": to_markdown,
    "latex": to_latex,
    "csv": to_csv,
    "json": to_json,
}
"""Format -> text of a report."""
