"""Result tables of the ATWU paper and of benchmarks, and how a study compares with one of them.

The tables are CSV files in `published/`, one row per method or variant. ES and ROUGE-L are fractions; J, FQ, RD, UQ,
MMLU and win rates are percentages, as in our own results. The paper's final runs use one seed. Tables of benchmarks
name their source. An empty cell means that no number was published. Compared are numbers of the same columns, and
pairwise orderings of methods: an ordering is a pair of labels whose published numbers differ; agreement over all labels
is Kendall's tau-b.
"""

from __future__ import annotations

import csv
import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.table import Table
from rich.text import Text
from scipy.stats import kendalltau

from atwu._names import lookup
from atwu.evaluation.columns import MUSE, OVERALL, TASKS, Direction
from atwu.evaluation.intervals import RowMetrics, difference, mean_of
from atwu.evaluation.registry import value_range
from atwu.evaluation.result import ARROWS, MetricValue, format_interval, format_number
from atwu.report.metric_table import MISSING_CELL, MetricKey, cell_of
from atwu.report.report_records import Records
from atwu.report.table_writers import titled_table

PUBLISHED_FOLDER = Path(__file__).with_name("published")
_DEGRADED = "(!)"


@dataclass(frozen=True, slots=True)
class PublishedTable:
    name: str
    title: str
    notes: tuple[str, ...]
    """Caveats of the comparison."""
    metrics: tuple[str, ...]
    rows: Mapping[str, Mapping[str, float]]
    """Label -> metric -> number. Labels are names of methods, of variants, or `original`, the original model."""
    degraded: frozenset[tuple[str, str]]
    """(label, metric) marked as materially degraded: MMLU lower by more than 2 points, repetitiveness higher by more
    than 5 %, win rate below 45.
    """


def published_tables() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in PUBLISHED_FOLDER.glob("*.csv")))


@functools.cache
def published_table(name: str) -> PublishedTable:
    lookup("published table", name, dict.fromkeys(published_tables()))
    lines = (PUBLISHED_FOLDER / f"{name}.csv").read_text(encoding="utf-8").splitlines()
    # Title and notes stand in the file itself, as lines that begin with #.
    title, *notes = [line.removeprefix("#").strip() for line in lines if line.startswith("#")]
    reader = csv.DictReader(line for line in lines if not line.startswith("#"))
    rows: dict[str, dict[str, float]] = {}
    degraded = set()
    for line in reader:
        label = line.pop("label")
        rows[label] = {metric: float(cell.removesuffix(_DEGRADED)) for metric, cell in line.items() if cell}
        degraded |= {(label, metric) for metric, cell in line.items() if cell.endswith(_DEGRADED)}
    metrics = tuple(reader.fieldnames or ())[1:]
    return PublishedTable(name, title, tuple(notes), metrics, rows, frozenset(degraded))


COMPARED_METRICS: Mapping[str, tuple[MetricKey | None, Direction]] = {
    "UQ": (("overall", "UQ"), "up"),
    "FQ": (("overall", "FQ"), "up"),
    "RD": (("overall", "RD"), "down"),
    "ES_delta": (("overall", "ES_delta_floored"), "up"),  # published tables use values with a floor
    "N_delta": (("overall", "N_delta_official"), "up"),
    **{name: ((MUSE, name), "down") for name in ("verbmem", "knowmem_forget")},
    "knowmem_retain": ((MUSE, "knowmem_retain"), "up"),
    **{f"lume_{name}": ((OVERALL, f"lume_{name}"), "up") for name in ("final", "task_aggregate", "mia_score")},
    **{name: ((TASKS, name), "down") for name in ("wmdp_bio", "wmdp_cyber")},
    "mmlu": ((TASKS, "mmlu"), "up"),
    "auroc": (None, "up"),
}
"""Published column -> our set and metric, and which direction is better; for `auroc` it is the label's own score."""

OUTCOMES = ("holds", "holds, within noise", "open", "reversed, within noise", "reversed")
"""What becomes of a published ordering here. `open`: our numbers are equal or were not compared; `within noise`: the
interval includes 0, or there is no interval."""
Interval = tuple[float, float, float]
"""Difference with the ends of its paired interval; the ends are NaN without an interval."""


def metric_key(metric: str, label: str) -> MetricKey:
    return COMPARED_METRICS[metric][0] or ("forget", f"auroc_{label}")


def published_value(records: Records, metric: str, label: str) -> MetricValue | None:
    """Return our value of a published column, mean over seeds."""
    return cell_of(records.results[label], metric_key(metric, label))


def compare_orderings(records: Records, table: PublishedTable) -> dict[str, Orderings]:
    """Compare orderings of methods with the published ones, for metrics with values of two common labels or more."""
    compared: dict[str, Orderings] = {}
    for metric, (_, direction) in COMPARED_METRICS.items():
        published = {
            label: row[metric] for label, row in table.rows.items() if metric in row and label in records.labels
        }
        cells = {label: published_value(records, metric, label) for label in published}
        ours = {label: cell.value for label, cell in cells.items() if cell is not None and cell.value is not None}
        if len(ours) > 1:
            compared[metric] = orderings(ours, published, partial(_difference, records, metric), direction=direction)
    return compared


def _difference(records: Records, metric: str, first: str, second: str) -> Interval | None:
    """Paired over rows, and over the common seeds."""
    key, (split, theirs) = metric_key(metric, first), metric_key(metric, second)
    if key == (split, theirs):
        estimate = records.differences(first, second).get(key)
    else:  # each label has its own score
        both = zip(*records.paired(first, second), strict=True)
        pairs = [(RowMetrics(a.rows), RowMetrics(b.rows)) for a, b in both]
        within = value_range(key[1], key[0])
        gaps = [difference((a, *key), (b, split, theirs), within) for a, b in pairs]
        estimate = mean_of(*gaps) if gaps else None
    if estimate is None:
        return None
    low, high = estimate.interval() or (math.nan, math.nan)
    return estimate.value, low, high


@dataclass(frozen=True, slots=True)
class Ordering:
    """A pair of labels that the published table orders."""

    better: str
    """Label with the better published number."""
    worse: str
    published: float
    ours: Interval | None
    outcome: str
    """One of `OUTCOMES`."""


@dataclass(frozen=True, slots=True)
class Orderings:
    """All pairs of common labels whose published numbers differ."""

    pairs: tuple[Ordering, ...]
    tau: float | None
    """Kendall's tau-b between both tables; None with fewer than two labels, or if one table is constant."""
    reading: str


def orderings(
    ours: Mapping[str, float],
    published: Mapping[str, float],
    differences: Callable[[str, str], Interval | None],
    *,
    direction: Direction,
) -> Orderings:
    """Compare the orderings of one metric; `differences` returns our paired difference of two labels, if there is one."""
    labels = [
        label for label in published if label in ours and math.isfinite(ours[label]) and math.isfinite(published[label])
    ]
    pairs = []
    for first, second in itertools.combinations(labels, 2):
        # Equal published numbers say nothing about an order.
        gap = published[first] - published[second]
        if gap == 0:
            continue
        better, worse = second, first
        if (gap > 0) == (direction == "up"):
            better, worse = first, second
        difference = differences(better, worse)
        outcome = outcome_of(difference, direction=direction)
        pairs.append(Ordering(better, worse, published[better] - published[worse], difference, outcome))
    counts = Counter(pair.outcome for pair in pairs)
    ranks = [ours[label] for label in labels], [published[label] for label in labels]
    tau = None
    if len(labels) > 1:
        # Variant b allows for ties, which rounded published numbers have.
        statistic = float(kendalltau(*ranks, variant="b").statistic)
        if math.isfinite(statistic):  # NaN if one table is constant
            tau = statistic
    if not pairs:
        return Orderings((), tau, "No two labels are both ordered in the published table and evaluated here.")
    counted = ", ".join(f"{outcome} {counts[outcome]}" for outcome in OUTCOMES if outcome in counts)
    reading = f"published orderings {len(pairs)}: {counted}"
    if tau is not None:
        reading += f"; Kendall's tau {tau:.2f}"
    best, *others = sorted(labels, key=lambda label: published[label], reverse=direction == "up")
    if published[best] != published[others[0]]:
        if direction == "up":
            ahead = [label for label in others if ours[label] > ours[best]]
        else:
            ahead = [label for label in others if ours[label] < ours[best]]
        reading += f"; published best: {best}, number {1 + len(ahead)} of {len(labels)} here"
    return Orderings(tuple(pairs), tau, reading)


def outcome_of(difference: Interval | None, *, direction: Direction) -> str:
    """Classify our difference, published better minus published worse."""
    if difference is None or not math.isfinite(difference[0]) or difference[0] == 0:
        return "open"
    value, low, high = difference
    outcome = "reversed"
    if (value > 0) == (direction == "up"):
        outcome = "holds"
    # The interval excludes 0: our order is no chance of the rows.
    if low > 0 or high < 0:
        return outcome
    return f"{outcome}, within noise"  # also without an interval, whose ends are then NaN


def comparison_table(records: Records, published: PublishedTable) -> Table:
    """Table of our and the published numbers: a row per common label, a pair of columns per common metric."""
    labels = [label for label in records.results if label in published.rows]
    metrics = [metric for metric in COMPARED_METRICS if metric in published.metrics]
    place = (records.study.get("setting") or {}).get("name", records.title)
    table = Table(title=Text(f"{place} compared with: {published.title}"), title_justify="left", pad_edge=False)
    notes = list(published.notes)
    if "ES_delta" in metrics:
        notes.append("ES_delta uses values with a floor of one token in both.")
    table.caption = Text(" ".join([*notes, "Published runs use one seed."]))
    table.caption_justify = "left"
    table.add_column("", no_wrap=True)
    for metric in metrics:
        arrow = ARROWS[COMPARED_METRICS[metric][1]]
        table.add_column(Text(f"{metric}{arrow}\nhere"), justify="right", overflow="fold")
        table.add_column(Text(f"{metric}{arrow}\npublished"), justify="right", style="dim", overflow="fold")
    for label in labels:
        cells = []
        for metric in metrics:
            ours = theirs = MISSING_CELL
            cell = published_value(records, metric, label)
            if cell is not None:
                ours = f"{format_number(cell.value, cell.digits)} {format_interval(cell)}".strip()
            if metric in published.rows[label]:
                theirs = f"{published.rows[label][metric]:g}"
            if (label, metric) in published.degraded:
                theirs += f" {_DEGRADED}"
            cells += [ours, theirs]
        table.add_row(Text(label), *cells)
    return table


def not_compared(records: Records, published: PublishedTable) -> str:
    """Name the labels of a study that its comparison leaves out, and why; empty if there is none."""
    every = dict.fromkeys([*(variant["label"] for variant in records.study.get("variants", ())), *records.labels])
    reasons = {
        "no published numbers": [label for label in every if label not in published.rows],
        "no result": [label for label in every if label in published.rows and label not in records.results],
    }
    return "; ".join(f"{', '.join(labels)} ({why})" for why, labels in reasons.items() if labels)


def ordering_table(metric: str, compared: Orderings) -> Table:
    """Table of published orderings and whether they hold here, pair by pair."""
    title = f"{metric}: {compared.reading}"
    table = titled_table(title, ["published order", "verdict"], ["published difference", "our difference"])
    for pair in compared.pairs:
        value, low, high = pair.ours or (math.nan, math.nan, math.nan)
        ours = MISSING_CELL
        if not math.isnan(value):
            ours = f"{value:+.3g}"
        if not math.isnan(low):
            ours += f" [{low:+.3g}, {high:+.3g}]"
        style = "bold"
        if "noise" in pair.outcome or pair.outcome == "open":
            style = "dim"
        order = f"{pair.better} better than {pair.worse}"
        table.add_row(order, Text(pair.outcome, style), f"{pair.published:+.3g}", ours)
    return table
