"""The type `Records`: finished runs that a report is made from, and what its tables show: metrics, caption and notes.

`read_records.py` reads it from folders. Tables of methods always state the tuning budget, which a fair comparison requires.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from atwu.evaluation.aggregate import mean_over_seeds, seed_differences
from atwu.evaluation.columns import OVERALL
from atwu.evaluation.intervals import Estimate
from atwu.evaluation.result import EvalResult
from atwu.evaluation.word_scores import Trace
from atwu.report.metric_table import (
    DATA,
    HEADLINE,
    LEADING_METRICS,
    REFERENCE_MODELS,
    Mark,
    MetricKey,
    Table,
    format_range,
    table_of,
)
from atwu.training.model_card import public_text

EVAL_NAME = "eval.json"
STUDY_NAME = "study.json"
NO_BUDGET = "not stated"


@dataclass(frozen=True, slots=True)
class RunRecord:
    label: str
    """Name in tables; equal for runs that differ only in their seed."""
    seed: int | None
    folder: Path | None
    result: EvalResult
    run: Mapping[str, Any] | None = None
    """`run.json`: method, config, data, versions, seconds, memory."""
    trace: Trace | None = None


@dataclass(frozen=True)
class Records:
    title: str
    references: Mapping[str, EvalResult]
    runs: tuple[RunRecord, ...]
    study: Mapping[str, Any] = field(default_factory=dict)
    """`study.json`: setting, variants, seeds, tuning budget, command; `progress` if the study is not finished."""

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(run.label for run in self.runs))

    def of(self, label: str) -> tuple[RunRecord, ...]:
        return tuple(sorted((run for run in self.runs if run.label == label), key=lambda run: run.seed or 0))

    def paired(self, first: str, second: str) -> list[list[EvalResult]]:
        """The results of two labels over their common seeds; a reference model is paired with every seed."""
        one, other = ({run.seed: run.result for run in self.of(label)} for label in (first, second))
        # A reference model was not trained with a seed, so it stands for every seed of the other label.
        if first in self.references:
            one = dict.fromkeys(other or [None], self.references[first])
        if second in self.references:
            other = dict.fromkeys(one, self.references[second])
        return [[results[seed] for seed in one if seed in other] for results in (one, other)]

    def differences(self, first: str, second: str) -> dict[MetricKey, Estimate]:
        """First minus second, every metric, over their common seeds; either may be a reference. ValueError for other rows."""
        mine, other = self.paired(first, second)
        if mine:
            return seed_differences(mine, other, list(self.references.values()))
        return {}

    def difference(self, first: str, second: str, key: MetricKey) -> Estimate | None:
        """One metric of `differences`; None without common seeds, or if the rows differ."""
        try:
            return self.differences(first, second).get(key)
        except ValueError:
            return None

    @property
    def single_results(self) -> list[tuple[str, EvalResult]]:
        """Name and result of every reference and of every run."""
        return [*self.references.items(), *((run.label, run.result) for run in self.runs)]

    @property
    def prompts(self) -> str:
        """Number of prompts per forget question, as a range; empty if not recorded."""
        settings = [result.settings.get("questions_per_row", {}) for _, result in self.single_results]
        counts = [count for prompts in settings for count in prompts.get("forget", ())]
        if not counts:
            return ""
        return format_range(counts)

    @cached_property
    def results(self) -> dict[str, EvalResult]:
        """References, then every label averaged over its seeds, as in tables."""
        results = {role: self.references[role] for role in REFERENCE_MODELS if role in self.references}
        references = list(self.references.values())
        for label in self.labels:
            first, *others = (run.result for run in self.of(label))
            results[label] = first
            if others:
                results[label] = mean_over_seeds([first, *others], references=references, name=label)
        return results

    @cached_property
    def table(self) -> Table:
        return table_of(self.results)

    def to_pandas(self) -> pd.DataFrame:
        """All numbers of all models, one per row, means over seeds: label, set, metric, value, low, high and more."""
        return self.table.frame[list(DATA)]

    def _repr_html_(self) -> str:
        table = report_table(self)
        cells = table.cells(lambda cell: f"{cell.number} {cell.interval}".strip())
        cells.columns = [head.text for head in table.heads]
        return str(cells.rename_axis("method").to_html())


def report_table(records: Records) -> Table:
    return records.table.only(headline_metrics(records))


def headline_metrics(records: Records) -> list[MetricKey]:
    """Metrics of the headline table (all, if it has none of them), the one that ranks methods first."""
    measured, decisive = records.table.keys, leading_metric(records)
    panel = []
    for group in HEADLINE:
        panel += [key for key in group if key in measured][:1]
    return sorted(panel or measured, key=lambda key: key != decisive)


def leading_metric(records: Records) -> MetricKey | None:
    """The metric that ranks methods; None if no metric has a direction."""
    frame = records.table.frame
    ranked = frame[~frame.reference & (frame.direction != "none")]
    measured = set(zip(ranked.set, ranked.metric, strict=True))
    return next((key for key in (*LEADING_METRICS, *records.table.keys) if key in measured), None)


def report_caption(records: Records, table: Table, marks: Mapping[Mark, str], *, intervals: bool = True) -> list[str]:
    """Caption of a report's table: `Table.caption` with its title, rows, missing runs, and the tuning budget."""
    counts = {split: part.n for split, part in table.frame.groupby("set")}
    sets = dict.fromkeys(split for split, _ in table.keys if split in counts and split != OVERALL)
    rows = [f"{split} n={format_range(counts[split])}" for split in sets]
    if records.prompts:
        rows.append(f"prompts per question: {records.prompts}")
    rows.append(f"seeds: {format_range([len(records.of(label)) for label in records.labels])}")
    notes = [records.title.rstrip("."), f"Rows: {', '.join(rows)}", *table.caption(marks, intervals=intervals)]
    notes += [str(records.study.get("progress") or ""), format_left_out(records)]
    return [*filter(None, notes), f"Tuning budget: {str(records.study.get('budget') or NO_BUDGET).rstrip('.')}"]


def degradation_notes(table: Table) -> list[str]:
    """One sentence per degraded general ability of a method in the table."""
    lost = table.frame[table.frame.lost != ""]
    return [f"{label}: {sentence}" for label, sentence in zip(lost.label, lost.lost, strict=True)]


def models_by_warning(results: Iterable[tuple[str, EvalResult]]) -> dict[str, list[str]]:
    """Return each warning once, with the models it applies to."""
    models: dict[str, dict[str, None]] = {}
    for name, result in results:
        for warning in result.warnings:
            models.setdefault(warning, {})[name] = None
    return {warning: list(names) for warning, names in models.items()}


def left_out(records: Records) -> dict[str, str]:
    """Failed runs and unsupported methods, with the reason in `study.json`."""
    missing = {**records.study.get("failed", {}), **records.study.get("left_out", {})}
    return {name: public_text(" ".join(reason.split())).rstrip(".") for name, reason in missing.items()}


def format_left_out(records: Records) -> str:
    """Format `left_out` in one sentence: `Left out: atwu-s1 (diverged), dpo (needs questions)`; empty if there is none."""
    entries = []
    for name, reason in left_out(records).items():
        if len(reason) > 100:  # the page lists it whole
            reason = f"{reason[:99].rstrip()}…"
        if reason:
            name = f"{name} ({reason})"
        entries.append(name)
    if not entries:
        return ""
    return f"Left out: {', '.join(entries)}"
