"""One result out of several runs of a method that differ in their seed: means over seeds, with two kinds of spread.

The interval resamples subjects, with the same draws for every seed, and is that of the mean over these seeds. The spread
over seeds stands beside it; it is what another training run would change.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from atwu._cache import short_hash
from atwu.evaluation.derive import derivations
from atwu.evaluation.differences import overall_differences, set_differences
from atwu.evaluation.intervals import Estimate, combine
from atwu.evaluation.numbers import Numbers, Sides
from atwu.evaluation.result import EvalResult, MetricValue


def over_seeds(results: Sequence[EvalResult], *, references: Iterable[EvalResult] = (), name: str) -> EvalResult:
    """Average results of one method over its seeds.

    Args:
        results: one per seed, on the same rows and settings.
        references: results of the starting and the retain-only model, as they were given to `evaluate`.
        name: how the average calls itself.

    Returns:
        A result without row values. Every metric that any seed has is there: value and interval are those of the seeds that
        have it, `seeds` counts them, and `seed_std` is the sample deviation over them.

    Raises:
        ValueError: no results, or results on different rows.
    """
    if not results:
        raise ValueError("nothing to average: give one result per seed.")
    first = results[0]
    for other in results[1:]:
        if any(rows.ids != first.rows[split].ids for split, rows in other.rows.items() if split in first.rows):
            raise ValueError(f"{first.model} and {other.model} were measured on different rows and cannot be averaged.")
    known = {result.fingerprint: Numbers(result.rows) for result in references}
    numbers = [Numbers(result.rows) for result in results]
    sets: dict[str, dict[str, MetricValue]] = {}
    for split in dict.fromkeys(split for result in results for split in result.sets):
        shown = [result.sets.get(split, {}) for result in results]
        sets[split] = {}
        for metric in dict.fromkeys(metric for metrics in shown for metric in metrics):
            estimates = [side.mean(split, metric) if side.has(split, metric) else None for side in numbers]
            sets[split][metric] = _mean([metrics.get(metric) for metrics in shown], estimates)
    derived = [
        derivations(
            Sides(
                side,
                original=known.get(result.references.get("original", "")),
                retain_only=known.get(result.references.get("retain-only", "")),
            )
        )
        for result, side in zip(results, numbers, strict=True)
    ]
    overall = {
        metric: _mean(
            [result.overall.get(metric) for result in results],
            [found[metric].estimate if metric in found else None for found in derived],
        )
        for metric in dict.fromkeys(metric for result in results for metric in result.overall)
    }
    return dataclasses.replace(
        first,
        model=name,
        fingerprint=short_hash([result.fingerprint for result in results]),
        sets=sets,
        overall=overall,
        rows={},
        curves={},
        cost=_summed([result.cost for result in results]),
        warnings=tuple(dict.fromkeys(warning for result in results for warning in result.warnings)),
    )


def _mean(cells: Sequence[MetricValue | None], found: Sequence[Estimate | None]) -> MetricValue:
    """Mean over the seeds that have a value; one cell and one estimate per seed."""
    there = [(cell, estimate) for cell, estimate in zip(cells, found, strict=True) if cell is not None]
    there = [pair for pair in there if pair[0].value is not None] or there
    values = [cell for cell, _ in there]
    numbers = [value.value for value in values if value.value is not None]
    estimates = [estimate for _, estimate in there if estimate is not None]
    interval = None
    if len(estimates) == len(there) and values[0].clusters > 1 and np.size(estimates[0].draws) > 1:
        interval = combine(lambda *parts: np.mean(parts, axis=0), *estimates).interval()
    return dataclasses.replace(
        values[0],
        value=float(np.mean(numbers)) if numbers else None,
        n=min(value.n for value in values),
        std=None,
        low=interval[0] if interval else None,
        high=interval[1] if interval else None,
        unscored=sum(value.unscored for value in values),
        seeds=len(numbers),
        seed_std=float(np.std(numbers, ddof=1)) if len(numbers) > 1 else None,
    )


def _summed(costs: Sequence[Mapping[str, float | None]]) -> dict[str, float]:
    return {key: sum(cost.get(key) or 0 for cost in costs) for key in costs[0]}


def seed_differences(
    first: Sequence[EvalResult], second: Sequence[EvalResult], references: Sequence[EvalResult]
) -> dict[tuple[str, str], Estimate]:
    """First minus second, mean over pairs of runs with the same seed, with paired intervals.

    Args:
        first: results of one method, one per seed.
        second: results of the other, with the same seeds in the same order.
        references: results of the starting and the retain-only model.

    Returns:
        (set, metric) -> difference; the set of derived metrics is `overall`.

    Raises:
        ValueError: different numbers of seeds, or different rows.
    """
    pairs = []
    for one, other in zip(first, second, strict=True):
        derived = overall_differences(one, other, references)
        pairs.append(set_differences(one, other) | {("overall", name): found for name, found in derived.items()})
    shared = [line for line in pairs[0] if all(line in pair for pair in pairs)]
    return {line: combine(lambda *parts: np.mean(parts, axis=0), *(pair[line] for pair in pairs)) for line in shared}
