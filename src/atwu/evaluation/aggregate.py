"""Compute values that need several sets or a reference model, differences of models, and means over seeds.

The values are FQ, RD, UQ, model utility, privleak and others. All are computed from row values with the same bootstrap
draws for every model, so intervals of differences are paired. The interval of a mean over seeds resamples subjects, not
seeds. The standard deviation over seeds is reported separately and shows how much another training run would change the
value.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from atwu._cache import short_hash
from atwu.evaluation.columns import OVERALL, TASKS, Column
from atwu.evaluation.intervals import (
    AggregateMetric,
    Estimate,
    ModelComparison,
    RowMetrics,
    ValueRange,
    difference,
    mean_of,
    subtract,
)
from atwu.evaluation.registry import all_metrics, column_of, value_range
from atwu.evaluation.result import EvalResult, MetricValue, RowValues


def aggregate_metrics(sides: ModelComparison) -> dict[str, AggregateMetric]:
    """Return every aggregate metric that these models allow, in table order."""
    return {name: value for metric in all_metrics().values() for name, value in metric.derive(sides)}


def overall(sides: ModelComparison) -> dict[str, MetricValue]:
    """Return the aggregate metrics as values of a result, with the smallest row and subject counts of their inputs."""
    this, values = sides.this, {}
    for name, metric in aggregate_metrics(sides).items():
        value = None
        if np.isfinite(metric.estimate.value):
            value = float(metric.estimate.value)
        rows = metric.rows
        if rows is None:
            rows = min(this.count(*pair) for pair in metric.used)
        values[name] = _metric_value(
            metric.estimate,
            _column(name, OVERALL),
            OVERALL,
            value=value,
            n=rows,
            clusters=min(this.resampler_of(split).clusters for split, _ in metric.used),
            unscored=sum(this.rows[split].unscored.get(column, 0) for split, column in metric.used),
        )
    return values


def values_by_set(this: RowMetrics) -> dict[str, dict[str, MetricValue]]:
    """Return mean, standard deviation and interval of each shown column, by set and name."""
    shown: dict[str, dict[str, MetricValue]] = {}
    for split, rows in this.rows.items():
        for name in rows.metrics:
            column = _column(name, split)
            values = this.values(split, name)
            known = values[np.isfinite(values)]
            value, std = None, None
            if known.size:
                value, std = float(known.mean()), float(known.std())
            if column.shown:
                shown.setdefault(split, {})[name] = _metric_value(
                    this.mean(split, name),
                    column,
                    split,
                    value=value,
                    n=int(known.size),
                    std=std,
                    clusters=this.resampler_of(split).clusters,
                    skipped=len(values) - int(known.size),
                    unscored=rows.unscored.get(name, 0),
                )
    return shown


def _column(name: str, split: str) -> Column:
    column = column_of(name, split)
    if column is None:
        raise ValueError(f"{name!r} was measured, but no metric has a column of this name on {split!r}.")
    return column


def _metric_value(estimate: Estimate, column: Column, split: str, **more: Any) -> MetricValue:
    low, high = estimate.bounded(column.range).interval() or (None, None)
    return MetricValue(direction=column.direction_on(split), low=low, high=high, digits=column.digits, **more)


def compare_models(
    rows: Mapping[str, RowValues],
    original: EvalResult | None = None,
    retain_only: EvalResult | None = None,
    tasks: Mapping[str, MetricValue] | None = None,
) -> ModelComparison:
    scores = {name: score.value for name, score in (tasks or {}).items() if score.value is not None}
    before, without = (None if result is None else RowMetrics(result.rows) for result in (original, retain_only))
    return ModelComparison(RowMetrics(rows), original=before, retain_only=without, tasks=scores)


def model_comparison(result: EvalResult, references: Sequence[EvalResult]) -> ModelComparison:
    """Collect the row metrics of a result and of those of its reference models that are in `references`."""
    known = {other.fingerprint: other for other in references}
    original, retain_only = (known.get(result.references.get(role, "")) for role in ("original", "retain-only"))
    return compare_models(result.rows, original, retain_only, result.sets.get(TASKS))


def paired_differences(
    first: EvalResult, second: EvalResult, references: Sequence[EvalResult] = ()
) -> dict[tuple[str, str], Estimate]:
    """Return first minus second for every metric that both have, by (set, metric); aggregates by (`overall`, metric)."""
    # Rows are paired by their place, so they must be the same.
    for split in sorted(first.rows.keys() & second.rows.keys()):
        if first.rows[split].ids != second.rows[split].ids:
            raise ValueError(
                f"{first.model} and {second.model} were measured on different {split} rows, so differences cannot be "
                "paired; evaluate them again on the same rows."
            )
    one, other = (model_comparison(result, references) for result in (first, second))
    differences = {}
    for split, metrics in first.sets.items():
        for metric in metrics:
            if one.this.has(split, metric) and other.this.has(split, metric):
                pair = (one.this, split, metric), (other.this, split, metric)
                differences[split, metric] = difference(*pair, value_range(metric, split))
    mine, theirs = aggregate_metrics(one), aggregate_metrics(other)
    for name in mine:
        if name in theirs:
            bounds = value_range(name, OVERALL)
            differences[OVERALL, name] = subtract(mine[name].estimate, theirs[name].estimate, bounds)
    return differences


def mean_over_seeds(results: Sequence[EvalResult], *, references: Sequence[EvalResult] = (), name: str) -> EvalResult:
    """Average the results of one method over its seeds.

    Returns:
        A result without row values that holds every metric of any seed. Values and intervals are means over the seeds
        that have the metric, `seeds` is their number, and `seed_std` the sample standard deviation over them.
    """
    # One model may stand for several seeds, such as one that is not trained.
    first, distinct = results[0], {result.fingerprint for result in results}
    for other in results[1:]:
        if any(rows.ids != first.rows[split].ids for split, rows in other.rows.items() if split in first.rows):
            raise ValueError(f"{first.model} and {other.model} were measured on different rows and cannot be averaged.")
    sides = [model_comparison(result, references) for result in results]
    derived = [aggregate_metrics(side) for side in sides]

    def estimates(split: str, metric: str) -> list[Estimate | None]:
        if split == OVERALL:
            return [aggregates[metric].estimate if metric in aggregates else None for aggregates in derived]
        return [side.this.mean(split, metric) if side.this.has(split, metric) else None for side in sides]

    def means(split: str, shown: Sequence[Mapping[str, MetricValue]]) -> dict[str, MetricValue]:
        values = {}
        for metric in dict.fromkeys(metric for metrics in shown for metric in metrics):
            cells = [metrics.get(metric) for metrics in shown]
            values[metric] = _mean(cells, estimates(split, metric), value_range(metric, split))
        return values

    splits = dict.fromkeys(split for result in results for split in result.sets)
    fingerprint = first.fingerprint
    if len(distinct) > 1:
        fingerprint = short_hash([result.fingerprint for result in results])
    return dataclasses.replace(
        first,
        model=name,
        fingerprint=fingerprint,
        sets={split: means(split, [result.sets.get(split, {}) for result in results]) for split in splits},
        overall=means(OVERALL, [result.overall for result in results]),
        rows={},
        cost={
            key: sum(result.cost.get(key) or 0 for result in results)
            for key in dict.fromkeys(key for result in results for key in result.cost)
        },
        warnings=tuple(dict.fromkeys(warning for result in results for warning in result.warnings)),
    )


def _mean(
    cells: Sequence[MetricValue | None],
    estimates: Sequence[Estimate | None],
    within: ValueRange,
) -> MetricValue:
    """Average the seeds that have a value; one cell and one estimate per seed."""
    there = [(cell, estimate) for cell, estimate in zip(cells, estimates, strict=True) if cell is not None]
    # A metric that is undefined for every seed keeps its cell, with the counts.
    there = [pair for pair in there if pair[0].value is not None] or there
    values = [cell for cell, _ in there]
    numbers = [value.value for value in values if value.value is not None]
    known = [estimate for _, estimate in there if estimate is not None]
    interval = None
    # A seed without row values would be in the mean and not in its interval.
    if len(known) == len(there):
        interval = mean_of(*known).bounded(within).interval()
    low, high = interval or (None, None)
    mean, seed_std = None, None
    if numbers:
        mean = float(np.mean(numbers))
    if len(numbers) > 1:
        seed_std = float(np.std(numbers, ddof=1))
    return dataclasses.replace(
        values[0],
        value=mean,
        n=min(value.n for value in values),
        std=None,
        low=low,
        high=high,
        unscored=sum(value.unscored for value in values),
        seeds=len(numbers),
        seed_std=seed_std,
    )


def seed_differences(
    first: Sequence[EvalResult], second: Sequence[EvalResult], references: Sequence[EvalResult]
) -> dict[tuple[str, str], Estimate]:
    """Return `paired_differences`, averaged over pairs of runs in the same order of seeds, with paired intervals."""
    pairs = [paired_differences(one, other, references) for one, other in zip(first, second, strict=True)]
    # A metric that one pair lacks would be averaged over other seeds than its neighbours in the table.
    shared = [line for line in pairs[0] if all(line in pair for pair in pairs)]
    return {line: mean_of(*(pair[line] for pair in pairs)) for line in shared}


def mean_over_studies(studies: Sequence[Estimate]) -> Estimate:
    """Average a value over studies with different rows; each study has equal weight.

    Draws depend on the number of subjects, so two studies of ten subjects would be correlated. Permuting the draws of
    each study makes them independent, and its clusters are its own.
    """
    # Seeded by its place, so that equal studies give equal intervals.
    shuffled = [
        dataclasses.replace(
            study,
            draws=np.random.default_rng(place).permutation(study.draws),
            alike={(place, *name): values for name, values in study.alike.items()},
        )
        for place, study in enumerate(studies)
    ]
    return dataclasses.replace(mean_of(*shuffled), clusters=sum(study.clusters for study in studies))
