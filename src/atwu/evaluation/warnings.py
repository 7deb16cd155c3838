"""Warnings about a result: degraded generation, missing references, unscored answers, unreliable intervals."""

from __future__ import annotations

from collections.abc import Iterator

from atwu.evaluation.columns import FORGET, RETAIN
from atwu.evaluation.registry import all_metrics
from atwu.evaluation.result import EvalResult

FEW_CLUSTERS = 20
"""With fewer subjects, the width of an interval is itself uncertain."""

Degraded = tuple[str, str, str]
"""Set, metric, warning."""


def degraded(result: EvalResult, original: EvalResult | None) -> Iterator[Degraded]:
    """Yield the metrics that show a degraded model."""
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
    """Yield every warning about a result, one sentence each."""
    measured = result.settings.get("metrics", ())
    for role, other in (("original", original), ("retain-only", retain_only)):
        for name, metric in all_metrics().items():
            if (
                other is None
                or metric.needs_reference is None
                or metric.needs_reference[0] != role
                or name not in measured
            ):
                continue
            wanted = metric.reference_metrics or (name,)
            if not set(wanted) & set(other.settings.get("metrics", wanted)):
                missing = metric.needs_reference[1]
                yield f"{missing} not computed: the {role} result lacks the metric {' and '.join(wanted)}."
    for _, _, sentence in degraded(result, original):
        yield sentence
    for metric in all_metrics().values():
        yield from metric.warnings(result, original)
    for split, metrics in result.sets.items():
        for name, value in metrics.items():
            if value.unscored:
                yield f"{split}: {value.unscored} answers have no verdict in {name}; they are left out of its value."
    without_subjects = [split for split in (FORGET, RETAIN) if _has_no_subjects(result, split)]
    if without_subjects:
        yield (
            f"{' and '.join(without_subjects)}: rows have no subjects, so intervals treat them as independent; they are too "
            "narrow if several rows are about the same subject (add a column 'subject')."
        )
    for split in (each for each in (FORGET, RETAIN) if each not in without_subjects):
        clusters = max((value.clusters for value in result.sets.get(split, {}).values()), default=0)
        if 1 < clusters < FEW_CLUSTERS:
            yield f"{split}: intervals are based on only {clusters} subjects, so they are wide and cover 95 % only roughly."
        elif clusters == 1:
            yield one_subject(split)


def one_subject(split: str) -> str:
    """Return the warning for a set with a single subject."""
    return f"{split}: all rows are about one subject, so there are no intervals."


def _has_no_subjects(result: EvalResult, split: str) -> bool:
    rows = result.rows.get(split)
    return rows is not None and len(rows.ids) > 1 and rows.subjects == rows.ids
