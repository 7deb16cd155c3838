"""A study beside published results: our numbers of the same columns, and which orderings of labels hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

from atwu.evaluation.derive import seed_differences
from atwu.evaluation.result import EvalResult, MetricValue
from atwu.experiments.published import PublishedTable, published_table
from atwu.experiments.study.orderings import Interval, Orderings, orderings
from atwu.report.records import Records, read_records
from atwu.report.values import Line, cell_of

METRICS: Mapping[str, tuple[Line | None, Literal["up", "down"]]] = {
    "UQ": (("overall", "UQ"), "up"),
    "FQ": (("overall", "FQ"), "up"),
    "RD": (("overall", "RD"), "down"),
    "ES_delta": (("overall", "ES_delta_floored"), "up"),  # published tables have the floor
    "N_delta": (("overall", "N_delta_official"), "up"),
    "auroc": (None, "up"),
}
"""Column of published tables -> our line, and which way is better; the line of `auroc` is that of the label's own score."""


def set_beside(folder: Path, table: str | None = None) -> tuple[Records, PublishedTable]:
    """A study that was run, and the published table to set it beside, which is the one that it names where none is given.

    Raises:
        ValueError: it names none, or there is no such table.
    """
    records = read_records([folder])
    name = table or records.study.get("published")
    if name is None:
        raise ValueError("this study names no published table to compare with; give one with --table.")
    return records, published_table(str(name))


def line_of(metric: str, label: str) -> Line:
    """Our line of a published column."""
    return METRICS[metric][0] or ("forget", f"auroc_{label}")


def value_of(records: Records, metric: str, label: str) -> MetricValue | None:
    """Our number of a published column, mean over seeds."""
    return cell_of(records.results[label], line_of(metric, label))


def compared(records: Records, table: PublishedTable) -> dict[str, Orderings]:
    """Our orderings of methods beside the published ones; labels that only one side has are left out.

    Returns:
        Metric -> orderings, for every metric that both sides have on at least two common labels.
    """
    found: dict[str, Orderings] = {}
    for metric, (_, direction) in METRICS.items():
        if metric not in table.metrics:
            continue
        published = {label: value for label, value in table.column(metric).items() if label in records.labels}
        ours = {label: cell.value for label in published if (cell := value_of(records, metric, label)) is not None}
        known = {label: value for label, value in ours.items() if value is not None}
        if len(known) < 2:
            continue

        def difference(first: str, second: str, metric: str = metric) -> Interval | None:
            return _difference(records, first, second, metric)

        found[metric] = orderings(known, published, difference, direction=direction)
    return found


def _difference(records: Records, first: str, second: str, metric: str) -> Interval | None:
    """Paired over rows, and over the seeds that both have."""
    line, (one, other) = METRICS[metric][0], records.paired(first, second)
    if line is None:
        line = _OWN_SCORE
        one = [_own_score(result, line_of(metric, first)) for result in one]
        other = [_own_score(result, line_of(metric, second)) for result in other]
    estimate = seed_differences(one, other, list(records.references.values())).get(line) if one else None
    if estimate is None:
        return None
    low, high = estimate.interval() or (float("nan"), float("nan"))
    return estimate.value, low, high


_OWN_SCORE: Line = ("forget", "auroc_own")


def _own_score(result: EvalResult, line: Line) -> EvalResult:
    """Only the line of a label's own score, under a name that all labels share."""
    split, metric = line
    rows = result.rows[split]
    return replace(
        result,
        sets={split: {_OWN_SCORE[1]: result.sets[split][metric]}},
        rows={split: replace(rows, metrics={_OWN_SCORE[1]: rows.metrics[metric]})},
    )
