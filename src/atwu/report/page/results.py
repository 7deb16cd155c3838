"""Tables of metrics: one row per model, one column per metric, with intervals, spread over seeds and marks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from atwu.evaluation.result import Direction, EvalResult, MetricValue
from atwu.report.frame import tidy
from atwu.report.names import definition, line_name, short_name
from atwu.report.page.html import Html, join, tag
from atwu.report.page.sortable import BETTER, Cell, Column, Row, sortable
from atwu.report.records import Records
from atwu.report.values import ARROWS, MISSING, OVERALL, REFERENCES, Line, cell_of, seeds_told, shown_number

REFERENCE_NOTES = {"original": "starting model", "retain-only": "never saw forget rows"}
_WIDTH = 72
_SUBSCRIPT = re.compile(r"\b(J|ES|N)[_ ](P|ICR|W|AVG|Δ)(?!\w)")


def metric_table(
    records: Records,
    lines: Sequence[Line],
    *,
    name: str,
    caption: str,
    more: Sequence[Line] = (),
    focus: str | None = None,
) -> Html:
    """Every model with its value on each line.

    Args:
        records: of the report.
        lines: columns.
        name: id of the table.
        caption: of the table.
        more: further columns, hidden at first.
        focus: label whose row stands out.
    """
    results = records.results
    every = [*lines, *more]
    runs = _runs(records)
    marks = _marks(records)
    ends = {line: _ends(results, line) for line in lines}
    columns = [_column(results, line, more=line not in lines) for line in every]

    def row(label: str, head: Html) -> Row:
        cells = [
            _cell(cell_of(results[label], line), marks.get((label, line)), ends.get(line), runs.get(label, 1))
            for line in every
        ]
        return Row(label, head, cells, focus=label == focus)

    return sortable(
        name,
        columns,
        [row(label, tag("span", None, label)) for label in records.labels],
        references=[
            row(role, join((tag("span", None, role), tag("span", {"class": "below"}, REFERENCE_NOTES[role]))))
            for role in REFERENCES
            if role in results
        ],
        caption=caption,
    )


def lines_table(records: Records, lines: Sequence[Line], *, name: str, caption: str) -> Html:
    """The same the other way round, for many lines: one row per line, one column per model."""
    results = records.results
    runs = _runs(records)
    marks = _marks(records)
    rows = []
    for line in lines:
        cells = [
            _cell(cell_of(result, line), marks.get((label, line)), None, runs.get(label, 1))
            for label, result in results.items()
        ]
        there = [cell for result in results.values() if (cell := cell_of(result, line)) is not None]
        direction: Direction = there[0].direction if there else "none"
        arrow = ARROWS[direction].strip()
        head = join(
            (
                name_html(line[1]),
                tag("span", {"class": "arrow", "aria-hidden": "true"}, arrow) if arrow else "",
                tag("span", {"class": "sr"}, f", {BETTER[direction]}") if arrow else "",
                tag(
                    "span",
                    {"class": "below"},
                    ", ".join(found for found in (line[0], _count(results, line)) if found != OVERALL),
                ),
            )
        )
        rows.append(Row(line_name(line), tag("span", {"title": definition(line[1])}, head), cells))
    columns = [Column(tag("span", None, label)) for label in results]
    return sortable(name, columns, rows, caption=caption, first="Metric")


def name_html(metric: str) -> Html:
    """The short name of a metric with its subscript."""
    return subscripted(short_name(metric))


def subscripted(words: str) -> Html:
    """Text with the subscripts of metrics set as such: J_W, ES Δ."""
    parts = _SUBSCRIPT.split(words)
    groups = zip(parts[::3], parts[1::3], parts[2::3], strict=False)
    set_low = join(join((before, name, tag("sub", None, low))) for before, name, low in groups)
    return tag("span", None, set_low, parts[-1])


def legend(records: Records, lines: Sequence[Line]) -> Html:
    """What the marks and the small numbers mean, as far as they are in use."""
    results = records.results
    used = {mark for (_, line), mark in _marks(records).items() if line in lines}
    cells = [cell for result in results.values() for line in lines if (cell := cell_of(result, line)) is not None]
    parts: list[Html] = []
    for mark, meaning in (
        ("best", "best unlearned model"),
        ("second", "second best"),
        ("degraded", "general ability lost, against the starting model"),
    ):
        if mark in used:
            parts.append(tag("span", {"class": f"key {mark}"}, _icon(mark), tag("span", None, meaning)))
    if any(cell.low is not None for cell in cells):
        sample = _interval(0.2, 0.5, 0.8, (0.0, 1.0))
        meaning = (
            "[ ] 95 % bootstrap interval, whole subjects drawn with replacement; the line runs over the column's range"
        )
        parts.append(tag("span", {"class": "key"}, sample, tag("span", None, meaning)))
    if any(cell.seed_std is not None for cell in cells):
        parts.append(tag("span", {"class": "key"}, "± standard deviation over seeds"))
    return tag("div", {"class": "legend"}, *parts)


def _column(results: Mapping[str, EvalResult], line: Line, *, more: bool) -> Column:
    split, metric = line
    cells = [cell for result in results.values() if (cell := cell_of(result, line)) is not None]
    meaning = definition(metric)
    return Column(
        name=name_html(metric),
        above=split,
        below=_count(results, line),
        better=next((cell.direction for cell in cells if cell is not None), "none"),
        meaning=None if meaning is None else f"{line_name(line)}: {meaning}",
        more=more,
    )


def _count(results: Mapping[str, EvalResult], line: Line) -> str:
    """Rows that a line was measured on."""
    counts = [cell.n for result in results.values() if (cell := cell_of(result, line)) is not None] or [0]
    return f"n = {min(counts)}" + (f"–{max(counts)}" if max(counts) > min(counts) else "")


def _marks(records: Records) -> dict[tuple[str, Line], str]:
    """What is best, second or degraded, by label and line."""
    frame = tidy(records.results, runs=_runs(records))
    return {(row.label, (row.set, row.metric)): row.mark for row in frame[frame["mark"] != ""].itertuples()}


def _runs(records: Records) -> dict[str, int]:
    """Label -> how many runs it has."""
    return {label: len(records.of(label)) for label in records.labels}


def _ends(results: Mapping[str, EvalResult], line: Line) -> tuple[float, float] | None:
    """Smallest and largest number of a column, intervals included."""
    numbers = [
        number
        for result in results.values()
        if (cell := cell_of(result, line)) is not None
        for number in (cell.value, cell.low, cell.high)
        if number is not None
    ]
    return (min(numbers), max(numbers)) if numbers and max(numbers) > min(numbers) else None


def _cell(cell: MetricValue | None, mark: str | None, ends: tuple[float, float] | None, runs: int) -> Cell:
    if cell is None or cell.value is None:
        return Cell(join((Html('<span class="v" aria-label="not measured">'), MISSING, Html("</span>"))))
    shown = shown_number(cell.value, cell.digits)
    parts = [tag("span", {"class": f"v {mark}" if mark else "v"}, _icon(mark) if mark else None, shown)]
    if cell.low is not None and cell.high is not None:
        if ends is not None:
            parts.append(_interval(cell.low, cell.value, cell.high, ends))
        low, high = (shown_number(end, cell.digits) for end in (cell.low, cell.high))
        parts.append(tag("span", {"class": "ci"}, f"[{low}, {high}]"))
    if cell.seed_std is not None:
        parts.append(tag("span", {"class": "ci"}, f"± {cell.seed_std:.{cell.digits}f}"))
    if told := seeds_told(cell, runs):
        parts.append(tag("span", {"class": "ci few"}, told))
    return Cell(join(parts), cell.value)


def _interval(low: float, value: float, high: float, ends: tuple[float, float]) -> Html:
    """A line from end to end of the interval with a dot at the value, on the column's common scale."""
    a, b, c = (round(4 + (_WIDTH - 8) * (number - ends[0]) / (ends[1] - ends[0]), 1) for number in (low, value, high))
    return Html(
        f'<svg class="iv" viewBox="0 0 {_WIDTH} 8" aria-hidden="true"><path d="M4 4H{_WIDTH - 4}" class="base"/>'
        f'<path d="M{a:g} 4H{c:g}"/><circle cx="{b:g}" cy="4" r="2.6"/></svg>'
    )


def _icon(mark: str) -> Html:
    return Html(
        f'<svg class="icon" viewBox="0 0 16 16" aria-hidden="true"><use href="#i-{mark}"/></svg>'
        f'<span class="sr">{mark} </span>'
    )
