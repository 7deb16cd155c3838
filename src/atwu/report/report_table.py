"""What a report shows of its records: the metrics of the headline table, its caption and notes.

Tables of methods always state the tuning budget, which a fair comparison requires.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from atwu.evaluation.columns import OVERALL
from atwu.report.merge_studies import NO_BUDGET, reasons
from atwu.report.metric_labels import HEADLINE, LEADING_METRICS
from atwu.report.metric_table import Table, format_range
from atwu.report.report_records import Records
from atwu.report.table_values import Mark, MetricKey
from atwu.training.model_card import public_text

_LONGEST = 100
"""Maximum number of characters of a reason in a caption."""


def report_table(records: Records, keys: Sequence[MetricKey] | None = None) -> Table:
    """Return some metrics of a report; those of `headline_metrics` by default."""
    return records.table.only(headline_metrics(records) if keys is None else keys)


def headline_metrics(records: Records) -> list[MetricKey]:
    """Metrics of the headline table, the most important one first.

    These are the paper's panel, then utility, membership inference, learned scores and RWKU's difference; all metrics
    if none of these is available.
    """
    there, decisive = records.table.keys, leading_metric(records)
    panel = [key for group in HEADLINE for key in [key for key in group if key in there][:1]] or there
    return sorted(panel, key=lambda key: key != decisive)


def leading_metric(records: Records) -> MetricKey | None:
    """The metric that ranks methods; None if no metric has a direction."""
    frame = records.table.frame
    ranked = frame[~frame.reference & (frame.direction != "none")]
    there = set(zip(ranked.set, ranked.metric, strict=True))
    return next((key for key in (*LEADING_METRICS, *records.table.keys) if key in there), None)


def report_caption(records: Records, table: Table, marks: Mapping[Mark, str], **shown: bool) -> list[str]:
    """Caption of a report's table: `Table.caption` with its title, rows, missing runs, and the tuning budget."""
    counts = {split: part.n for split, part in table.frame.groupby("set")}
    sets = dict.fromkeys(split for split, _ in table.keys if split in counts and split != OVERALL)
    rows = [f"{split} n={format_range(counts[split])}" for split in sets]
    asked = [
        count
        for each in records.results.values()
        for count in each.settings.get("questions_per_row", {}).get("forget", ())
    ]
    rows += [f"prompts per question: {format_range(asked)}"] if asked else []
    rows.append(f"seeds: {format_range([len(records.of(label)) for label in records.labels])}")
    left = left_out(records)
    return [
        records.title.rstrip("."),
        f"Rows: {', '.join(rows)}",
        *table.caption(marks, **shown),
        *([str(records.study["progress"])] if records.study.get("progress") else []),
        *([f"Left out: {format_reasons(left.items())}"] if left else []),
        f"Tuning budget: {str(records.study.get('budget') or NO_BUDGET).rstrip('.')}",
    ]


def degradation_notes(table: Table) -> list[str]:
    """One sentence per degraded general ability of a method in the table."""
    lost = table.frame[table.frame.lost != ""]
    return [f"{label}: {sentence}" for label, sentence in zip(lost.label, lost.lost, strict=True)]


def left_out(records: Records) -> dict[str, str]:
    """Failed runs and unsupported methods, with the reason in `study.json`."""
    found = reasons(records.study, "failed") | reasons(records.study, "left_out")
    return {name: public_text(" ".join(reason.split())).rstrip(".") for name, reason in found.items()}


def format_reasons(left: Iterable[tuple[str, str]]) -> str:
    """Format `left_out` in one line: `atwu-s1 (diverged), dpo (needs questions)`."""
    short = (
        (name, reason if len(reason) <= _LONGEST else f"{reason[: _LONGEST - 1].rstrip()}…") for name, reason in left
    )
    return ", ".join(f"{name} ({reason})" if reason else name for name, reason in short)
