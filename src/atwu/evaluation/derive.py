"""Numbers that need several sets or a second model: differences, FQ, RD, UQ, model utility, forget quality, privleak, recovery.

Every metric derives its own from row values, with the same draws on every side, so intervals of differences are paired.
"""

from __future__ import annotations

import numpy as np

from atwu.evaluation.columns import OVERALL
from atwu.evaluation.numbers import Derivation, Sides
from atwu.evaluation.panel import all_metrics, find_column
from atwu.evaluation.result import MetricValue


def derivations(sides: Sides) -> dict[str, Derivation]:
    """Every such number that these sides allow, in the order of the panel."""
    return {name: found for metric in all_metrics().values() for name, found in metric.derive(sides)}


def overall(sides: Sides) -> dict[str, MetricValue]:
    """The same as they are reported."""
    return {name: _value(name, found, sides) for name, found in derivations(sides).items()}


def _value(name: str, found: Derivation, sides: Sides) -> MetricValue:
    """With the smallest counts of what it was made from; with fewer than two clusters there is no interval."""
    this, estimate = sides.this, found.estimate
    column = find_column(name, OVERALL)
    if column is None:
        raise ValueError(f"{name!r} was derived, and no metric has such a column on {OVERALL!r}.")
    clusters = min(this.weights(split).clusters for split, _ in found.used)
    low, high = (estimate.interval() if clusters > 1 else None) or (None, None)
    return MetricValue(
        value=float(estimate.value) if np.isfinite(estimate.value) else None,
        n=min(this.count(*pair) for pair in found.used) if found.rows is None else found.rows,
        direction=column[1].direction_on(OVERALL),
        low=low,
        high=high,
        clusters=clusters,
        unscored=sum(this.rows[split].unscored.get(name, 0) for split, name in found.used),
        digits=column[1].digits,
    )
