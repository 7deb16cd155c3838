"""The records of finished runs, which a report is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from atwu.evaluation.aggregate import mean_over_seeds, seed_differences
from atwu.evaluation.intervals import Estimate
from atwu.evaluation.result import EvalResult
from atwu.evaluation.weight_trace import Trace
from atwu.report.metric_table import Table, table_of
from atwu.report.table_values import REFERENCE_MODELS, MetricKey

EVAL_NAME = "eval.json"
STUDY_NAME = "study.json"


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run: an unlearned and evaluated model."""

    label: str
    """Name in tables; equal for runs that differ only in their seed."""
    seed: int | None
    folder: Path | None
    result: EvalResult
    run: Mapping[str, Any] | None = None
    """`run.json`: method, config, data, versions, seconds, memory."""
    log: tuple[Mapping[str, Any], ...] = ()
    """Lines of `log.jsonl`: losses and score statistics by optimizer step."""
    trace: Trace | None = None
    """Word scores during the run."""


@dataclass(frozen=True)
class Records:
    """Everything that a report shows."""

    title: str
    references: Mapping[str, EvalResult]
    """`original` and `retain-only`, if they were evaluated."""
    runs: tuple[RunRecord, ...]
    study: Mapping[str, Any] = field(default_factory=dict)
    """`study.json`: setting, variants, seeds, tuning budget, command; `progress` if the study is not finished.

    For several studies, as merged by `atwu.report.merge_studies`.
    """

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels in the order of the study."""
        return tuple(dict.fromkeys(run.label for run in self.runs))

    def of(self, label: str) -> tuple[RunRecord, ...]:
        """The runs of a label, by seed."""
        return tuple(sorted((run for run in self.runs if run.label == label), key=lambda run: run.seed or 0))

    def shared_seeds(self, first: str, second: str) -> list[int | None]:
        """Seeds for which both labels have a run."""
        other = {run.seed for run in self.of(second)}
        return [run.seed for run in self.of(first) if run.seed in other]

    def paired(self, first: str, second: str) -> list[list[EvalResult]]:
        """The results of two labels over their common seeds; a reference model is paired with every seed."""
        one, other = ({run.seed: run.result for run in self.of(label)} for label in (first, second))
        if first in self.references:
            one = dict.fromkeys(other or [None], self.references[first])
        if second in self.references:
            other = dict.fromkeys(one, self.references[second])
        return [[results[seed] for seed in one if seed in other] for results in (one, other)]

    def differences(self, first: str, second: str) -> dict[MetricKey, Estimate]:
        """First minus second, every metric, over their common seeds; either may be a reference. Empty without common
        seeds.

        Raises:
            ValueError: they were evaluated on different rows.
        """
        mine, other = self.paired(first, second)
        return seed_differences(mine, other, list(self.references.values())) if mine else {}

    def difference(self, first: str, second: str, key: MetricKey) -> Estimate | None:
        """One metric of `differences`; None without common seeds, or if the rows differ."""
        try:
            return self.differences(first, second).get(key)
        except ValueError:
            return None

    @cached_property
    def results(self) -> dict[str, EvalResult]:
        """References, then every label averaged over its seeds, as in tables."""
        found = {role: self.references[role] for role in REFERENCE_MODELS if role in self.references}
        for label in self.labels:
            runs = self.of(label)
            found[label] = (
                runs[0].result
                if len(runs) == 1
                else mean_over_seeds(
                    [run.result for run in runs], references=list(self.references.values()), name=label
                )
            )
        return found

    @cached_property
    def table(self) -> Table:
        """All metrics of all models."""
        return table_of(self.results, runs={label: len(self.of(label)) for label in self.labels})
