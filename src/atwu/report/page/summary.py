"""The paragraph at the top: who leads, by how much, whether that can be told from chance, and what it rests on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from atwu.evaluation.intervals import Estimate
from atwu.evaluation.panel.seeds import seed_differences
from atwu.evaluation.panel.warn import degraded
from atwu.evaluation.result import EvalResult, MetricValue
from atwu.report.page.glossary import line_name
from atwu.report.page.html import Html, join, tag
from atwu.report.panel import HEADLINE, OVERALL, Line, cell_of
from atwu.report.records import Records
from atwu.report.tables import known, shown_number

FIRST = ((OVERALL, "UQ"), (OVERALL, "ES_delta"), (OVERALL, "N_delta_official"), (OVERALL, "N_delta_port"), *HEADLINE)
"""Lines by which methods are compared in words; the first that at least one of them has a value on."""


def leading_line(records: Records) -> Line | None:
    """The line of the summary; None when nothing with a direction was measured."""
    for line in FIRST:
        cells = [cell_of(records.results[label], line) for label in records.labels]
        if any(cell is not None and known(cell) and cell.direction != "none" for cell in cells):
            return line
    return None


def order(records: Records, line: Line) -> list[str]:
    """Labels from best to worst; those without a value are left out."""
    found = {label: cell_of(records.results[label], line) for label in records.labels}
    there = {label: cell for label, cell in found.items() if cell is not None and known(cell)}
    sign = -1 if any(cell.direction == "up" for cell in there.values()) else 1
    return sorted(there, key=lambda label: sign * (there[label].value or 0.0))


def difference(records: Records, first: str, second: str, line: Line) -> Estimate | None:
    """First minus second over the seeds that both have; None when there are none, or rows differ."""
    mine, other = ({run.seed: run.result for run in records.of(label)} for label in (first, second))
    seeds = [seed for seed in mine if seed in other]
    if not seeds:
        return None
    try:
        found = seed_differences(
            [mine[seed] for seed in seeds], [other[seed] for seed in seeds], list(records.references.values())
        )
    except ValueError:
        return None
    return found.get(line)


def summary(records: Records, *, focus: str) -> Html:
    """The paragraph."""
    return tag("p", {"class": "lead"}, join(_sentences(records, focus), " "))


def facts(records: Records) -> Html:
    """What everything rests on, as a row of numbers."""
    labels = records.labels
    seeds = sorted({len(records.of(label)) for label in labels})
    judges = {name for run in records.runs if (name := _judge(run.result))}
    scale = records.study.get("scale")
    entries = [
        ("methods" if len(labels) != 1 else "method", str(len(labels))),
        ("seeds each", "–".join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))) if seeds else None,
        *((f"{split} rows", str(count)) for split in ("forget", "retain") if (count := _rows(records, split))),
        ("scale", str(scale["name"] if isinstance(scale, Mapping) else scale)) if scale else None,
        ("judge", " and ".join(sorted(judges))) if judges else None,
    ]
    shown = (tag("div", None, tag("dt", None, entry[0]), tag("dd", None, entry[1])) for entry in entries if entry)
    return tag("dl", {"class": "facts"}, *shown)


def _sentences(records: Records, focus: str) -> Iterator[Html]:
    line = leading_line(records)
    if line is None:
        yield Html("No metric with a direction was measured.")
        return
    ranked = order(records, line)
    name = line_name(line)
    cells = {label: _cell(records, label, line) for label in ranked}
    best = ranked[0]
    yield tag("span", None, tag("strong", None, best), f" has the best {name}: {_told(cells[best])}.")
    if len(ranked) > 1:
        yield _against(records, best, ranked[1], line, cells[ranked[1]], "comes second with")
    if focus in ranked[2:]:
        place = ranked.index(focus) + 1
        yield _against(records, best, focus, line, cells[focus], f"is number {place} of {len(ranked)} with")
    lost = [label for label in records.labels if _degraded(records.results, label)]
    if lost:
        yield tag("span", None, f"{_listed(lost)} lost general abilities (marked in the table).")
    missing = [label for label in _planned(records) if label not in records.labels]
    if missing:
        yield tag("span", None, f"No finished run of {_listed(missing)}.")
    yield tag("span", None, _basis(records))


def _against(records: Records, best: str, other: str, line: Line, cell: MetricValue, verb: str) -> Html:
    found = difference(records, best, other, line)
    start = join((tag("strong", None, other), f" {verb} {shown_number(cell.value, cell.digits)}"))
    interval = None if found is None else found.interval()
    if found is None or not math.isfinite(found.value) or interval is None:
        return tag("span", None, start, ".")
    low, high = (shown_number(end, cell.digits) for end in interval)
    apart = interval[0] > 0 or interval[1] < 0
    verdict = "excludes zero" if apart else "does not exclude zero, so these rows cannot tell the two apart"
    shown = shown_number(found.value, cell.digits)
    return tag("span", None, start, f"; the paired difference of {shown} [{low}, {high}] {verdict}.")


def _told(cell: MetricValue) -> str:
    number = shown_number(cell.value, cell.digits)
    parts = []
    if cell.low is not None and cell.high is not None:
        parts.append(f"95 % interval {shown_number(cell.low, cell.digits)} to {shown_number(cell.high, cell.digits)}")
    if cell.seed_std is not None:
        parts.append(f"± {cell.seed_std:.{cell.digits}f} over {cell.seeds} seeds")
    return f"{number} ({', '.join(parts)})" if parts else number


def _basis(records: Records) -> str:
    rows = [f"{count} {split}" for split in ("forget", "retain") if (count := _rows(records, split))]
    seeds = sorted({len(records.of(label)) for label in records.labels})
    each = f"{seeds[0]} to {seeds[-1]} seeds" if len(seeds) > 1 else f"{seeds[0]} seed{'s' if seeds[0] > 1 else ''}"
    where = f" on {_listed(rows)} rows" if rows else ""
    budget = str(records.study.get("budget") or "").strip().rstrip(".")
    # A sentence of the study's own, so nothing is made of it but the end of ours.
    tuned = f" Tuning: {budget}." if budget else " How its hyperparameters were tuned is not recorded."
    return f"Measured{where} with {each} per method.{tuned}"


def _rows(records: Records, split: str) -> int:
    return max((len(run.result.rows[split].ids) for run in records.runs if split in run.result.rows), default=0)


def _planned(records: Records) -> list[str]:
    """Labels that the study was to have."""
    return list(dict.fromkeys(str(variant["label"]) for variant in records.study.get("variants", ())))


def _judge(result: EvalResult) -> str:
    identity = result.settings.get("judge") or {}
    model = identity.get("model") or {}
    return str(model.get("model") or model.get("kind") or identity.get("kind") or "")


def _degraded(results: Mapping[str, EvalResult], label: str) -> bool:
    return any(True for _ in degraded(results[label], results.get("original")))


def _cell(records: Records, label: str, line: Line) -> MetricValue:
    cell: Any = cell_of(records.results[label], line)
    assert isinstance(cell, MetricValue)
    return cell


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
