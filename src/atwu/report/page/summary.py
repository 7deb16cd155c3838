"""The paragraph at the top: who leads, by how much, whether that can be told from chance, and what it rests on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from markupsafe import Markup

from atwu.evaluation.intervals import Estimate
from atwu.evaluation.panel.seeds import seed_differences
from atwu.evaluation.panel.warn import degraded
from atwu.evaluation.result import EvalResult, MetricValue
from atwu.report.names import PANEL, line_name
from atwu.report.records import Records
from atwu.report.scored_row import printable
from atwu.report.table import left_out, spoken
from atwu.report.values import OVERALL, Line, cell_of, seeds_told, shown_number

FIRST = ((OVERALL, "UQ"), (OVERALL, "ES_delta"), (OVERALL, "N_delta_official"), (OVERALL, "N_delta_port"), *PANEL)
"""Lines by which methods are compared in words; the first that at least one of them has a value on."""
_TOLD = 2
"""Methods that share a place and each get a sentence."""


def leading_line(records: Records) -> Line | None:
    """The line of the summary; None when nothing with a direction was measured."""
    for line in FIRST:
        cells = [cell_of(records.results[label], line) for label in records.labels]
        if any(cell is not None and cell.direction != "none" for cell in cells):
            return line
    return None


def order(records: Records, line: Line) -> list[str]:
    """Labels from best to worst printed value; those without a value, or with one for some seeds only, are left out."""
    found = {label: cell_of(records.results[label], line) for label in records.labels}
    there = {label: cell for label, cell in found.items() if cell is not None}
    whole = [label for label, cell in there.items() if not seeds_told(cell, len(records.of(label)))]
    sign = -1 if any(cell.direction == "up" for cell in there.values()) else 1
    return sorted(whole, key=lambda label: sign * float(_printed(there[label])))


def difference(records: Records, first: str, second: str, line: Line) -> Estimate | None:
    """First minus second over the seeds that both have; None when there are none, or rows differ."""
    mine, other = ({run.seed: run.result for run in records.of(label)} for label in (first, second))
    seeds = shared_seeds(records, first, second)
    if not seeds:
        return None
    try:
        found = seed_differences(
            [mine[seed] for seed in seeds], [other[seed] for seed in seeds], list(records.references.values())
        )
    except ValueError:
        return None
    return found.get(line)


def shared_seeds(records: Records, first: str, second: str) -> list[int | None]:
    """Seeds that both have a run of."""
    other = {run.seed for run in records.of(second)}
    return [run.seed for run in records.of(first) if run.seed in other]


def summary(records: Records, *, focus: str) -> Markup:
    """The paragraph, escaped."""
    return Markup(" ").join(_sentences(records, focus))


def facts(records: Records) -> list[tuple[str, str]]:
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
    return [entry for entry in entries if entry]


def _sentences(records: Records, focus: str) -> Iterator[str]:
    line = leading_line(records)
    if line is None:
        yield "No metric with a direction was measured."
        return
    ranked = order(records, line)
    name = line_name(line)
    cells = {label: _cell(records, label, line) for label in ranked}
    if ranked:
        yield from _leaders(records, focus, line, ranked, cells)
    partial = [(label, told) for label in records.labels if (told := _seeds_told(records, label, line))]
    for label, told in partial:
        yield f"{label} is not ranked: it has {name} for {told}."
    lost = [label for label in records.labels if _degraded(records.results, label)]
    if lost:
        yield f"{_listed(lost)} lost general abilities (marked in the table)."
    left = left_out(records)
    missing = [label for label in _planned(records) if label not in records.labels and label not in left]
    if missing:
        yield f"No finished run of {_listed(missing)}."
    if records.study.get("progress"):
        yield f"{records.study['progress']}."
    if left:
        yield f"Left out: {spoken(left.items())}."
    yield _basis(records)


def _leaders(
    records: Records, focus: str, line: Line, ranked: Sequence[str], cells: Mapping[str, MetricValue]
) -> Iterator[str]:
    """Who is first and second by printed value, ties included, and where the method looked at is."""
    shown = {label: _printed(cells[label]) for label in ranked}
    tied = [label for label in ranked if shown[label] == shown[ranked[0]]]
    best, name = tied[0], line_name(line)
    if len(tied) == 1:
        yield _strong(best) + f" has the best {name}: {_told(cells[best])}."
    else:
        names = Markup(", ").join(map(_strong, tied[:-1]))
        yield names + " and " + _strong(tied[-1]) + f" share the best {name}: {shown[best]}."
    behind = [label for label in ranked if label not in tied]
    second = [label for label in behind if shown[label] == shown[behind[0]]]

    def verb(labels: Sequence[str]) -> str:
        number = 1 + list(shown.values()).index(shown[labels[0]])
        several = list(shown.values()).count(shown[labels[0]]) > 1
        if number == 2:
            return "comes second with" if not several else f"share{'s' * (len(labels) == 1)} second place with"
        return f"{'share' if len(labels) > 1 else 'shares' if several else 'is'} number {number} of {len(ranked)} with"

    told = second if len(second) <= _TOLD else []
    if second and not told:
        yield f"{_listed(second)} {verb(second)} {shown[second[0]]}."
    if focus in behind and focus not in told:
        told = [*told, focus]
    for label in told:
        yield _against(records, tied, label, line, cells[label], verb([label]))


def _against(records: Records, tied: Sequence[str], other: str, line: Line, cell: MetricValue, verb: str) -> Markup:
    best = tied[0]
    found = difference(records, best, other, line)
    start = _strong(other) + f" {verb} {shown_number(cell.value, cell.digits)}"
    interval = None if found is None else found.interval()
    if found is None or not math.isfinite(found.value) or interval is None:
        return start + "."
    low, high = (shown_number(end, cell.digits) for end in interval)
    apart = interval[0] > 0 or interval[1] < 0
    verdict = "excludes zero" if apart else "does not exclude zero, so these rows cannot tell the two apart"
    shown = shown_number(found.value, cell.digits)
    to = f" to {best}" if len(tied) > 1 else ""
    over = _over(records, best, other, line)
    return start + f"; the paired difference{to}{over} of {shown} [{low}, {high}] {verdict}."


def _over(records: Records, best: str, other: str, line: Line) -> str:
    """Which seeds a difference is over and both means over those, where one of the two has further seeds."""
    seeds = shared_seeds(records, best, other)
    if all(len(seeds) == len(records.of(label)) for label in (best, other)):
        return ""
    means = []
    for label in (best, other):
        cells = [cell_of(run.result, line) for run in records.of(label) if run.seed in seeds]
        values = [cell.value for cell in cells if cell is not None and cell.value is not None]
        means.append(shown_number(fmean(values), _cell(records, label, line).digits))
    which = f"seed{'s' if len(seeds) > 1 else ''} {_listed([str(seed) for seed in seeds])}"
    return f" over {which}, which both have ({' against '.join(means)}),"


def _strong(label: str) -> Markup:
    return Markup("<strong>{}</strong>").format(printable(label))


def _printed(cell: MetricValue) -> str:
    return shown_number(cell.value, cell.digits)


def _seeds_told(records: Records, label: str, line: Line) -> str:
    cell = cell_of(records.results[label], line)
    return seeds_told(cell, len(records.of(label))) if cell is not None else ""


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
