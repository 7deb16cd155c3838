"""The whole panel of several models side by side: one line per metric, one column per model, with intervals and marks.

Best and second best of the ranked models, and general abilities that were materially lost, are marked as in the ATWU
paper. Takes results of `evaluate`; gives a rich table, Markdown, or differences to one of the models.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal

from rich.table import Table
from rich.text import Text

from atwu.evaluation.intervals import Estimate
from atwu.evaluation.panel.differences import overall_differences, set_differences
from atwu.evaluation.panel.warn import degraded
from atwu.evaluation.result import EvalResult, MetricValue
from atwu.report.tables import ARROWS, MISSING, REFERENCES, escaped, known, ranks, shown_number

OVERALL = "overall"

HEADLINE = (
    ("forget", "extraction_strength"),
    ("retain", "extraction_strength"),
    (OVERALL, "ES_delta"),
    ("forget", "J_P"),
    ("forget", "J_ICR"),
    ("forget", "J_W"),
    ("retain", "J_AVG"),
    (OVERALL, "FQ"),
    (OVERALL, "RD"),
    (OVERALL, "UQ"),
    ("instructions", "repetitiveness"),
    ("instructions", "win_rate"),
)
"""The lines of the paper's panel."""

Line = tuple[str, str]
"""Set (or `OVERALL`) and metric."""
Mark = Literal["best", "second", "degraded"]


def cell_of(result: EvalResult, line: Line) -> MetricValue | None:
    """A model's value on a line."""
    split, metric = line
    return (result.overall if split == OVERALL else result.sets.get(split, {})).get(metric)


def lines_of(results: Mapping[str, EvalResult]) -> list[Line]:
    """Every line that some model has a value on: set by set, derived metrics last."""
    found: dict[Line, None] = {}
    for result in results.values():
        for split, metrics in result.sets.items():
            found |= dict.fromkeys((split, metric) for metric in metrics)
    splits = list(dict.fromkeys(split for split, _ in found))
    ordered = [line for split in splits for line in found if line[0] == split]
    derived = dict.fromkeys((OVERALL, metric) for result in results.values() for metric in result.overall)
    return [line for line in [*ordered, *derived] if any(known(cell_of(result, line)) for result in results.values())]


def marks_of(
    results: Mapping[str, EvalResult],
    lines: Sequence[Line],
    *,
    references: Collection[str] = REFERENCES,
    runs: Mapping[str, int] | None = None,
) -> dict[tuple[str, Line], Mark]:
    """Best and second best of the ranked models on every line, and general abilities that were lost, by (model, line).

    Args:
        results: model name -> result.
        lines: which lines.
        references: names of models that are not ranked.
        runs: model name -> runs it is the mean of; numbers that only some of them have are not ranked.
    """
    ranked = {name: result for name, result in results.items() if name not in references}
    marks: dict[tuple[str, Line], Mark] = {}
    for line in lines:
        there = {name: cell for name, result in ranked.items() if (cell := cell_of(result, line)) is not None}
        cells = {name: cell for name, cell in there.items() if not seeds_told(cell, (runs or {}).get(name, 1))}
        marks |= {(name, line): "best" if place == 1 else "second" for name, place in ranks(cells).items()}
    for name, result in ranked.items():
        for split, metric, _ in degraded(result, results.get("original")):
            if (split, metric) in lines:
                marks[name, (split, metric)] = "degraded"
    return marks


def seeds_told(cell: MetricValue, runs: int) -> str:
    """`2 of 3 seeds` for a mean that not all runs of a method have a value for; else empty."""
    return f"{cell.seeds} of {runs} seeds" if cell.seeds < runs else ""


def panel_table(
    results: Mapping[str, EvalResult], *, lines: Sequence[Line] | None = None, references: Collection[str] = REFERENCES
) -> Table:
    """Table for the terminal.

    Args:
        results: model name -> result.
        lines: which lines, in order; every line by default, grouped by set.
        references: names of models that are not ranked.
    """
    grouped = lines is None
    lines = list(lines or lines_of(results))
    marks = marks_of(results, lines, references=references)
    table = Table(caption_justify="left", caption=_caption(results, lines, marks), pad_edge=False)
    table.add_column("metric", no_wrap=True)
    table.add_column("n", justify="right", style="dim")
    for name in results:
        table.add_column(Text(name, "dim" if name in references else ""), justify="right")
    last = ""
    for place, line in enumerate(lines):
        split, metric = line
        if grouped and split != last:
            table.add_row(Text(split, "bold underline"))
            last = split
        cells = [cell_of(result, line) for result in results.values()]
        there = [cell for cell in cells if cell is not None]
        arrow = ARROWS[there[0].direction] if there else ""
        following = lines[place + 1][0] if place + 1 < len(lines) else split
        table.add_row(
            f"  {metric}{arrow}" if grouped else f"{split} {metric}{arrow}",
            _counts(there),
            *(
                _styled(cell, marks.get((name, line)), reference=name in references)
                for name, cell in zip(results, cells, strict=True)
            ),
            end_section=grouped and following != split,
        )
    return table


def panel_markdown(
    results: Mapping[str, EvalResult],
    *,
    lines: Sequence[Line] | None = None,
    references: Collection[str] = REFERENCES,
    intervals: bool = True,
) -> str:
    """The same as GitHub Markdown: best **bold**, second *italic*, degraded (!).

    Args:
        results: model name -> result.
        lines: which lines, in order; every line by default.
        references: names of models that are not ranked.
        intervals: whether to print them.
    """
    lines = list(lines or lines_of(results))
    marks = marks_of(results, lines, references=references)
    text = [["metric", "n", *map(escaped, results)], ["---", *["---:"] * (len(results) + 1)]]
    for line in lines:
        cells = [cell_of(result, line) for result in results.values()]
        there = [cell for cell in cells if cell is not None]
        stars = [_STARS[mark] if (mark := marks.get((name, line))) else ("", "") for name in results]
        printed = [
            f"{before}{number}{after}{f' {interval}' if intervals and interval else ''}"
            for (before, after), (number, interval) in zip(stars, map(_printed, cells), strict=True)
        ]
        arrow = ARROWS[there[0].direction] if there else ""
        text.append([f"{line[0]} {escaped(line[1])}{arrow}", _counts(there), *printed])
    return "".join(f"| {' | '.join(row)} |\n" for row in text)


_STARS: Mapping[Mark, tuple[str, str]] = {"best": ("**", "**"), "second": ("*", "*"), "degraded": ("", " (!)")}
_STYLES: Mapping[Mark, str] = {"best": "bold green", "second": "italic", "degraded": "red"}


def _caption(results: Mapping[str, EvalResult], lines: Sequence[Line], marks: Mapping[tuple[str, Line], Mark]) -> Text:
    parts = (
        ["[ ]: 95 % bootstrap interval, subjects drawn with replacement"]
        if any(
            (cell := cell_of(result, line)) is not None and cell.low is not None
            for result in results.values()
            for line in lines
        )
        else []
    )
    if any(cell.seed_std is not None for result in results.values() for cell in _cells(result)):
        parts.append("±: deviation over seeds")
    parts += [
        text
        for mark, text in (("best", "green: best"), ("second", "italic: second"), ("degraded", "red: degraded"))
        if mark in marks.values()
    ]
    return Text("; ".join(parts))


def _cells(result: EvalResult) -> Iterator[MetricValue]:
    yield from result.overall.values()
    for metrics in result.sets.values():
        yield from metrics.values()


def _counts(cells: Sequence[MetricValue]) -> str:
    counts = [cell.n for cell in cells if known(cell)] or [0]
    return str(min(counts)) if min(counts) == max(counts) else f"{min(counts)}–{max(counts)}"


def _printed(cell: MetricValue | None) -> tuple[str, str]:
    """Number and interval as text."""
    if cell is None or not known(cell):
        return MISSING, ""
    number = shown_number(cell.value, cell.digits)
    spread = f"± {cell.seed_std:.{cell.digits}f}" if cell.seed_std is not None else ""
    if cell.low is None or cell.high is None:
        return number, spread
    low, high = (shown_number(end, cell.digits) for end in (cell.low, cell.high))
    return number, f"{spread} [{low}, {high}]".strip()


def _styled(cell: MetricValue | None, mark: Mark | None, *, reference: bool) -> Text:
    number, interval = _printed(cell)
    text = Text(number, "dim" if reference else _STYLES[mark] if mark else "")
    if interval:
        text.append(f" {interval}", "dim")
    return text


def differences_table(results: Mapping[str, EvalResult], *, to: str, lines: Sequence[Line] | None = None) -> Table:
    """Every model minus one of them, with paired intervals; those that exclude zero are bold.

    Args:
        results: model name -> result, all on the same rows.
        to: name of the model that is subtracted.
        lines: which lines, in order; every line by default.

    Raises:
        ValueError: models were measured on different rows.
    """
    lines = list(lines or lines_of(results))
    base = results[to]
    others = {name: result for name, result in results.items() if name != to}
    found = {
        name: set_differences(result, base)
        | {(OVERALL, key): value for key, value in overall_differences(result, base, results.values()).items()}
        for name, result in others.items()
    }
    table = Table(
        title=Text(f"difference to {to}"),
        title_justify="left",
        caption=Text("[ ]: paired 95 % bootstrap interval; bold: it excludes zero"),
        caption_justify="left",
        pad_edge=False,
    )
    table.add_column("metric", no_wrap=True)
    for name in others:
        table.add_column(Text(name), justify="right")
    for line in lines:
        digits = next((cell.digits for result in results.values() if (cell := cell_of(result, line)) is not None), 3)
        arrow = next((ARROWS[cell.direction] for r in results.values() if (cell := cell_of(r, line)) is not None), "")
        table.add_row(f"{line[0]} {line[1]}{arrow}", *(_difference(found[name].get(line), digits) for name in others))
    return table


def _signed(value: float, digits: int) -> str:
    shown = shown_number(value, digits)
    return shown if shown.startswith("-") else f"+{shown}"


def _difference(estimate: Estimate | None, digits: int) -> Text:
    if estimate is None or not math.isfinite(estimate.value):
        return Text(MISSING)
    interval = estimate.interval()
    text = Text(_signed(estimate.value, digits))
    if interval is not None:
        low, high = interval
        text.append(f" [{_signed(low, digits)}, {_signed(high, digits)}]", "dim")
        if low > 0 or high < 0:
            text.stylize("bold", 0, len(text.plain.split(" ")[0]))
    return text
