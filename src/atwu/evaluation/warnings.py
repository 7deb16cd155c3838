"""Marks and warnings in words: what would otherwise be read too kindly."""

from __future__ import annotations

from collections.abc import Iterator

from atwu.evaluation.columns import FORGET, RETAIN
from atwu.evaluation.registry import all_metrics
from atwu.evaluation.result import EvalResult

FEW_CLUSTERS = 10
"""With fewer subjects a bootstrap interval is noticeably too narrow."""

Degraded = tuple[str, str, str]
"""Set, metric, sentence."""


def degraded(result: EvalResult, original: EvalResult | None) -> Iterator[Degraded]:
    """General abilities that were materially lost."""
    for metric in all_metrics().values():
        for column in metric.columns:
            if column.lost is None:
                continue
            for split, values in result.sets.items():
                for name, value in values.items():
                    if not column.on(split) or column.field(name) is None or value.value is None:
                        continue
                    before = None if original is None else original.sets.get(split, {}).get(name)
                    sentence = column.lost(name, value.value, None if before is None else before.value)
                    if sentence is not None:
                        yield split, name, sentence


def warnings(result: EvalResult, original: EvalResult | None, retain_only: EvalResult | None = None) -> Iterator[str]:
    """One sentence for everything that a reader must not overlook."""
    measured = result.settings.get("metrics", ())
    for role, other in (("original", original), ("retain-only", retain_only)):
        for name, metric in all_metrics().items():
            if other is None or metric.needs_reference is None or metric.needs_reference[0] != role or name not in measured:
                continue
            wanted = metric.reference_metrics or (name,)
            if not set(wanted) & set(other.settings.get("metrics", wanted)):
                missing = metric.needs_reference[1]
                yield f"{missing} cannot be told: the {role} result lacks the metrics {' and '.join(wanted)}."
    for _, _, sentence in degraded(result, original):
        yield sentence
    for metric in all_metrics().values():
        yield from metric.warnings(result, original)
    for split, metrics in result.sets.items():
        for name, value in metrics.items():
            if value.unscored:
                yield f"{split}: {value.unscored} answers are unscored in {name}; they count neither way."
    nameless = [split for split in (FORGET, RETAIN) if _nameless(result, split)]
    if nameless:
        yield (
            f"{' and '.join(nameless)}: rows name no subject, so intervals take them for independent; they are too narrow if "
            "several rows are about one (give a column 'subject')."
        )
    for split in (FORGET, RETAIN):
        clusters = max((value.clusters for value in result.sets.get(split, {}).values()), default=0)
        if 1 < clusters < FEW_CLUSTERS:
            yield f"{split}: intervals rest on {clusters} subjects only and are too narrow."
        elif clusters == 1:
            yield one_subject(split)


def one_subject(split: str) -> str:
    """What is said of a set that has a single subject."""
    return f"{split}: all rows are about one subject, so its numbers have no intervals."


def _nameless(result: EvalResult, split: str) -> bool:
    rows = result.rows.get(split)
    return rows is not None and len(rows.ids) > 1 and rows.subjects == rows.ids
