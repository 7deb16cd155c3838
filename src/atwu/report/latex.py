r"""The table of a report in LaTeX: a `table` environment that needs the packages booktabs and xcolor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from atwu.report.metric_labels import SUBSCRIPT
from atwu.report.report_table import degradation_notes, report_caption, report_table
from atwu.report.run_records import Records
from atwu.report.table_values import Mark

_TEX: Mapping[int, str] = str.maketrans(
    {
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
        "↑": r"$\uparrow$",
        "↓": r"$\downarrow$",
        "½": r"$\tfrac12$",
        "…": r"\ldots{}",
    }
)
_MARKS: Mapping[Mark, str] = {"best": "bold: best", "second": "underlined: second", "degraded": "red: degraded"}
_CELLS = {"best": r"\textbf{%s}", "second": r"\underline{%s}", "degraded": r"\textcolor{red}{%s}", "": "%s"}


def to_latex(records: Records) -> str:
    """Format the table: best bold, second underlined, degraded red, spread over seeds as subscript, intervals below."""
    table = report_table(records)
    numbers = table.cells(_cell, "--")
    small = table.cells(lambda cell: cell.interval and rf"{{\tiny {_number(cell.interval)}}}")
    body: list[str] = []
    for label in table.labels:
        body.append(_row(tex(table.shown(label)), *numbers.loc[label]))
        if any(small.loc[label]):
            body.append(_row("", *small.loc[label]))
        if label in table.ruled:
            body.append(r"    \midrule")
    caption = [*report_caption(records, table, _MARKS), *degradation_notes(records, table)]
    return "\n".join(
        [
            r"% needs \usepackage{booktabs} and \usepackage{xcolor}",
            r"\begin{table}[t]",
            r"  \centering",
            r"  \footnotesize",
            r"  \setlength{\tabcolsep}{3pt}",
            rf"  \caption{{{' '.join(tex(part.rstrip('.')) + '.' for part in caption)}}}",
            rf"  \begin{{tabular}}{{l{'r' * len(table.keys)}}}",
            r"    \toprule",
            _row("method", *(_head(head.text) for head in table.heads)),
            r"    \midrule",
            *body,
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def tex(text: str) -> str:
    """Escape text for LaTeX."""
    return text.replace("\n", " ").translate(_TEX)


def _row(*cells: str) -> str:
    return rf"    {' & '.join(cells)} \\"


def _head(name: str) -> str:
    """Format a name and its arrow, with the subscripts of metrics."""
    parts = SUBSCRIPT.split(name)
    lows = [rf"$_{{{low}}}$".replace("Δ", r"\Delta") for low in parts[2::3]]
    named = zip(parts[::3], [*parts[1::3], ""], [*lows, ""], strict=True)
    return "".join(tex(before) + base + low for before, base, low in named)


def _cell(cell: Any) -> str:
    text = _CELLS[cell.mark] % _number(cell.number)
    text += rf"$_{{\pm {cell.spread}}}$" if cell.spread else ""
    return text + (rf" {{\tiny ({cell.told})}}" if cell.told else "")


def _number(number: str) -> str:
    return number.replace("-", "$-$")
