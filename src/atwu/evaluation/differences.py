"""Differences between two models on the same rows, with paired intervals."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from atwu.evaluation.derive import derivations
from atwu.evaluation.intervals import Estimate, combine
from atwu.evaluation.numbers import Numbers, Sides
from atwu.evaluation.result import EvalResult


def set_differences(first: EvalResult, second: EvalResult) -> dict[tuple[str, str], Estimate]:
    """First minus second of every metric that both have on a set, by (set, metric).

    Raises:
        ValueError: the two were measured on different rows.
    """
    found = {}
    one, other = Numbers(first.rows), Numbers(second.rows)
    for split, metrics in first.sets.items():
        for metric in metrics:
            if one.has(split, metric) and other.has(split, metric):
                _check_rows(first, second, split)
                both = np.where(np.isfinite(other.values(split, metric)), one.values(split, metric), np.nan)
                mine = one.weights(split).mean(both)
                found[split, metric] = combine(np.subtract, mine, other.mean(split, metric, where=both))
    return found


def overall_differences(first: EvalResult, second: EvalResult, references: Iterable[EvalResult]) -> dict[str, Estimate]:
    """First minus second of every derived metric that both have.

    Args:
        first: a result.
        second: a result on the same rows.
        references: results among which the starting and the retain-only model of the two are looked for.

    Raises:
        ValueError: the two were measured on different rows.
    """
    by_fingerprint = {result.fingerprint: Numbers(result.rows) for result in references}
    for split in sorted(first.rows.keys() & second.rows.keys()):
        _check_rows(first, second, split)

    def sides(result: EvalResult) -> Sides:
        found = {role: by_fingerprint.get(name) for role, name in result.references.items()}
        return Sides(Numbers(result.rows), original=found.get("original"), retain_only=found.get("retain-only"))

    one, other = derivations(sides(first)), derivations(sides(second))
    return {name: combine(np.subtract, one[name].estimate, other[name].estimate) for name in one if name in other}


def _check_rows(first: EvalResult, second: EvalResult, split: str) -> None:
    if first.rows[split].ids != second.rows[split].ids:
        raise ValueError(
            f"{first.model} and {second.model} were measured on different {split} rows and cannot be compared row by "
            "row; evaluate them again on the same rows."
        )
