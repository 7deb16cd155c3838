"""Results of several models side by side: one row per model, one column per metric, the best ones marked.

Takes declared values with direction and sample count; gives a rich table for the terminal or Markdown for a README.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from rich.table import Table
from rich.text import Text

from atwu.evaluation.result import Direction, MetricValue

ARROWS: dict[Direction, str] = {"up": " ↑", "down": " ↓", "none": ""}
MISSING = "–"

REFERENCES = ("original", "retain-only")
"""Rows that are there to compare with and take no part in the ranking."""


def results_table(
    results: Mapping[str, Mapping[str, MetricValue]],
    *,
    references: Collection[str] = REFERENCES,
    title: str | None = None,
) -> Table:
    """Table for the terminal: best unlearned model bold, second best italic, reference rows dim.

    Args:
        results: model name to metric name to value; a metric a model lacks shows as a dash.
        references: names of models that are not ranked.
        title: line above the table.

    Returns:
        A rich table. A column is ranked when at least two unlearned models have a value and all its values have the
        same direction; otherwise (rows that are sets rather than models) each value carries its own arrow.
    """
    marks = _marks(results, references)
    table = Table(title=None if title is None else Text(title), title_justify="left", caption_justify="left")
    table.caption = Text(_caption(marks)) if marks else None
    table.add_column("model", no_wrap=True)
    for metric in _metrics(results):
        header = Text(metric + _arrow(results, metric))
        header.append(f"\nn={_count(results, metric)}", "dim")
        table.add_column(header, justify="right", vertical="bottom")
    ordered = list(results)
    for place, model in enumerate(ordered):
        ranked = model not in references
        cells = []
        for metric in _metrics(results):
            mark = marks.get((model, metric))
            style = {1: "bold", 2: "italic"}.get(mark or 0, "" if ranked else "dim")
            cells.append(Text(_text(results, model, metric), style))
        following = ordered[place + 1] if place + 1 < len(ordered) else model
        table.add_row(Text(model, "" if ranked else "dim"), *cells, end_section=(following in references) == ranked)
    return table


def markdown_table(
    results: Mapping[str, Mapping[str, MetricValue]], *, references: Collection[str] = REFERENCES
) -> str:
    """The same table as GitHub Markdown: best **bold**, second best *italic*.

    Args:
        results: as for `results_table`.
        references: as for `results_table`.

    Returns:
        Lines of Markdown, ending in a newline.
    """
    marks = _marks(results, references)
    metrics = _metrics(results)
    heads = [f"{escaped(metric)}{_arrow(results, metric)} (n={_count(results, metric)})" for metric in metrics]
    lines = [["model", *heads], ["---", *["---:"] * len(metrics)]]
    for model in results:
        stars = [{1: "**", 2: "*"}.get(marks.get((model, metric), 0), "") for metric in metrics]
        cells = [f"{s}{_text(results, model, metric)}{s}" for s, metric in zip(stars, metrics, strict=True)]
        lines.append([escaped(model), *cells])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def ranks(cells: Mapping[str, MetricValue]) -> dict[str, int]:
    """1 for the models with the best and 2 for those with the second best printed value of one metric.

    Nothing is ranked when values have different directions or none, when fewer than two are known, or all are equal;
    of two models only the better is ranked.
    """
    shown = {model: float(shown_number(cell.value, cell.digits)) for model, cell in cells.items() if known(cell)}
    directions = {cell.direction for cell in cells.values()}
    order = sorted(set(shown.values()), reverse=directions == {"up"})
    if len(directions) != 1 or "none" in directions or len(shown) < 2 or len(order) == 1:
        return {}
    places = {model: order.index(value) + 1 for model, value in shown.items()}
    return {model: place for model, place in places.items() if place == 1 or (place == 2 and len(shown) > 2)}


def _marks(results: Mapping[str, Mapping[str, MetricValue]], references: Collection[str]) -> dict[tuple[str, str], int]:
    """Ranks of each column, by (model, metric)."""
    return {
        (model, metric): rank
        for metric in _metrics(results)
        if _direction(results, metric) is not None
        for model, rank in ranks(
            {model: row[metric] for model, row in results.items() if model not in references and metric in row}
        ).items()
    }


def _caption(marks: Mapping[tuple[str, str], int]) -> str:
    """What the type faces mean, naming only those in use."""
    second = ", italic: second" if 2 in marks.values() else ""
    return f"bold: best unlearned{second}"


def _metrics(results: Mapping[str, Mapping[str, MetricValue]]) -> list[str]:
    """Metric names in the order they first appear."""
    return list(dict.fromkeys(metric for row in results.values() for metric in row))


def _cells(results: Mapping[str, Mapping[str, MetricValue]], metric: str) -> list[MetricValue]:
    return [row[metric] for row in results.values() if metric in row]


def _direction(results: Mapping[str, Mapping[str, MetricValue]], metric: str) -> Direction | None:
    """Direction of a column, None when its values disagree."""
    found = {cell.direction for cell in _cells(results, metric)}
    return found.pop() if len(found) == 1 else None


def _arrow(results: Mapping[str, Mapping[str, MetricValue]], metric: str) -> str:
    """Arrow for the head of a column."""
    direction = _direction(results, metric)
    return "" if direction is None else ARROWS[direction]


def _count(results: Mapping[str, Mapping[str, MetricValue]], metric: str) -> str:
    """Sample count of a column, as a range where models differ."""
    counts = [cell.n for cell in _cells(results, metric) if known(cell)] or [0]
    return str(min(counts)) if min(counts) == max(counts) else f"{min(counts)}–{max(counts)}"


def _text(results: Mapping[str, Mapping[str, MetricValue]], model: str, metric: str) -> str:
    """One cell: the number, a dash when there is none, and an arrow when the column's head cannot carry it."""
    cell = results[model].get(metric)
    if cell is None or not known(cell):
        return MISSING
    return shown_number(cell.value, cell.digits) + (
        ARROWS[cell.direction] if _direction(results, metric) is None else ""
    )


def known(cell: MetricValue | None) -> bool:
    """Whether there is a number to show."""
    return cell is not None and cell.value is not None and not math.isnan(cell.value)


def shown_number(value: float | None, digits: int) -> str:
    """A number as printed, without a minus in front of zero."""
    shown = f"{value:.{digits}f}"
    return shown[1:] if shown.startswith("-") and not shown.strip("-0.") else shown


def escaped(text: str) -> str:
    """Text that Markdown leaves as it is."""
    for character in "\\|*_<":
        text = text.replace(character, f"\\{character}")
    return text.replace("\n", " ")
