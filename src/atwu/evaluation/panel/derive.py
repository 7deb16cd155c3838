"""Metrics that need several sets or a second model: differences, FQ, RD, UQ, model utility, forget quality, privleak, recovery.

Everything is computed from row values, with the same draws on every side, so intervals of differences are paired.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from atwu.benchmarks.rwku.tables import ProbeKind
from atwu.evaluation.attacks.relearn import recovered
from atwu.evaluation.intervals import Estimate, FloatArray, combine
from atwu.evaluation.membership import attack_auc, privleak
from atwu.evaluation.panel.membership import ATTACKS
from atwu.evaluation.panel.numbers import Numbers, metric_value
from atwu.evaluation.panel.rwku import COLUMNS, FLAVOURS
from atwu.evaluation.panel.session import FORGET, HOLDOUT, RETAIN, RWKU
from atwu.evaluation.relative import fq, rd, uq
from atwu.evaluation.result import Direction, MetricValue
from atwu.evaluation.rwku import forget_all, n_delta, neighbour_all
from atwu.evaluation.utility import forget_quality, model_utility


@dataclass(frozen=True, slots=True)
class Sides:
    """The evaluated model and those it is compared with."""

    this: Numbers
    original: Numbers | None = None
    retain_only: Numbers | None = None


@dataclass(frozen=True, slots=True)
class Derivation:
    """A derived number, and the (set, metric) pairs of the evaluated model it was made from."""

    estimate: Estimate
    used: tuple[tuple[str, str], ...]
    direction: Direction
    digits: int = 3
    rows: int | None = None
    """Rows it rests on, where that is not the smallest count of `used`."""


Found = tuple[str, Derivation]


def derivations(sides: Sides) -> dict[str, Derivation]:
    """Every such metric that these sides allow, in the order of the panel."""
    return {name: found for derive in DERIVATIONS for name, found in derive(sides)}


def overall(sides: Sides) -> dict[str, MetricValue]:
    """The same as they are reported, each with the smallest counts of what it was made from."""
    this = sides.this
    return {
        name: metric_value(
            found.estimate,
            n=min(this.count(*pair) for pair in found.used) if found.rows is None else found.rows,
            clusters=min(this.weights(split).clusters for split, _ in found.used),
            unscored=sum(this.rows[split].unscored.get(metric, 0) for split, metric in found.used),
            direction=found.direction,
            digits=found.digits,
        )
        for name, found in derivations(sides).items()
    }


def _differences(sides: Sides) -> Iterator[Found]:
    """Kept minus left: what remains of the retain set above what remains of the forget set."""
    for name, metric in (("ES_delta", "extraction_strength"), ("ES_delta_floored", "extraction_strength_floored")):
        used = [(RETAIN, metric), (FORGET, metric)]
        if all(sides.this.has(*pair) for pair in used):
            estimate = combine(np.subtract, *(sides.this.mean(*pair) for pair in used))
            yield name, Derivation(estimate, tuple(used), "up")


def _relative(sides: Sides) -> Iterator[Found]:
    """FQ, RD and UQ in percent, relative to the starting model."""
    first, second = (FORGET, "J_W"), (RETAIN, "J_AVG")
    original = sides.original
    if original is None:
        return
    parts = []
    table: tuple[tuple[str, Any, tuple[str, str], Direction], ...]
    table = (("FQ", fq, first, "up"), ("RD", rd, second, "down"))
    for name, function, used, direction in table:
        if sides.this.has(*used) and original.has(*used):
            both = sides.this.values(*used) + original.values(*used)  # rows with a verdict on either side
            estimate = combine(function, sides.this.mean(*used, where=both), original.mean(*used, where=both))
            parts.append(estimate)
            yield name, Derivation(_percent(estimate), (used,), direction, 1, rows=int(np.isfinite(both).sum()))
    if len(parts) == 2:
        yield "UQ", Derivation(_percent(combine(uq, *parts)), (first, second), "up", 1)


def _percent(estimate: Estimate) -> Estimate:
    return combine(lambda share: 100 * share, estimate)


def _utility(sides: Sides) -> Iterator[Found]:
    """Harmonic mean of probability, ROUGE and truth ratio over the sets that are kept (TOFU's model utility)."""
    used = []
    for split in sides.this.rows:
        if split == FORGET:
            continue
        probability = "probability" if split == RETAIN else "probability_with_options"
        parts = [(split, metric) for metric in (probability, "rouge_l_recall", "truth_ratio")]
        if all(sides.this.has(*part) for part in parts):
            used += parts
    if used:
        estimate = combine(lambda *parts: model_utility(parts), *(sides.this.mean(*part) for part in used))
        yield "model_utility", Derivation(estimate, tuple(used), "up")


def _forget_quality(sides: Sides) -> Iterator[Found]:
    """TOFU's forget quality: are truth ratios those of a model that never saw the forget set?"""
    metric = "truth_ratio_raw"
    if sides.retain_only is None or not (sides.this.has(FORGET, metric) and sides.retain_only.has(FORGET, metric)):
        return
    mine, other = (side.values(FORGET, metric) for side in (sides.this, sides.retain_only))
    found = forget_quality(mine[np.isfinite(mine)], other[np.isfinite(other)])
    table: tuple[tuple[str, float, Direction], ...] = (
        ("forget_quality_p", found.p_value, "up"),
        ("forget_quality_log10_p", float(np.log10(max(found.p_value, 1e-300))), "up"),
        ("forget_quality_distance", found.statistic, "down"),
    )
    for name, value, direction in table:
        without_draws = Estimate(value, np.full(1, np.nan))  # a p-value has no sampling interval of its own
        yield name, Derivation(without_draws, ((FORGET, metric),), direction)


_CERTAIN = 1 - 1e-6


def _membership(sides: Sides) -> Iterator[Found]:
    """Area under the curve of every attack, and privleak against the retain-only model (Shi et al. 2024)."""
    for attack in (*ATTACKS, "reference"):
        scores = _attack_scores(sides, attack)
        if scores is None:
            continue
        area = _area(sides.this, *scores)
        metric = "mia_loss" if attack == "reference" else f"mia_{attack}"
        used = (FORGET, metric), (HOLDOUT, metric)
        yield f"mia_auc_{attack}", Derivation(area, used, "none")
        if attack == "reference":
            continue
        other = None if sides.retain_only is None else _attack_scores(Sides(sides.retain_only), attack)
        if sides.retain_only is not None and other is None:
            continue  # it was given to be compared with, and does not have the scores
        ideal = Estimate(0.5, np.full_like(area.draws, 0.5)) if other is None else _area(sides.this, *other)
        # A draw in which the ideal itself is perfectly attacked says nothing about a distance to it.
        ideal = Estimate(ideal.value, np.where(ideal.draws < _CERTAIN, ideal.draws, np.nan))
        leak = combine(privleak, area, ideal)
        yield f"privleak_{attack}", Derivation(leak, used, "none", 1)


def _attack_scores(sides: Sides, attack: str) -> tuple[FloatArray, FloatArray] | None:
    metric = "mia_loss" if attack == "reference" else f"mia_{attack}"
    if not all(sides.this.has(split, metric) for split in (FORGET, HOLDOUT)):
        return None
    forget, holdout = (sides.this.values(split, metric) for split in (FORGET, HOLDOUT))
    if attack != "reference":
        return forget, holdout
    other = sides.retain_only
    if other is None or not all(other.has(split, metric) for split in (FORGET, HOLDOUT)):
        return None
    return forget - other.values(FORGET, metric), holdout - other.values(HOLDOUT, metric)


def _area(numbers: Numbers, forget: FloatArray, holdout: FloatArray) -> Estimate:
    weights = numbers.weights(FORGET).weights, numbers.weights(HOLDOUT).weights
    return Estimate(float(attack_auc(forget, holdout)), np.asarray(attack_auc(forget, holdout, weights)))


def _recovery(sides: Sides) -> Iterator[Found]:
    """Share of what was forgotten that an attack brings back, on the rows it was not shown."""
    if sides.original is None:
        return
    for name in sides.this.rows[FORGET].metrics if FORGET in sides.this.rows else ():
        metric, _, attack = name.partition("@")
        if not attack or not all(side.has(FORGET, metric) for side in (sides.this, sides.original)):
            continue
        after = sides.this.values(FORGET, name)
        estimate = combine(
            recovered,
            sides.this.mean(FORGET, metric, where=after),
            sides.this.mean(FORGET, name),
            sides.original.mean(FORGET, metric, where=after),
        )
        yield f"recovered_{name}", Derivation(_percent(estimate), ((FORGET, name),), "down", 1)


def _rwku(sides: Sides) -> Iterator[Found]:
    """Means over RWKU's kinds of probes, and neighbours minus targets (Jin et al. 2024)."""
    for flavour in FLAVOURS:
        used = {kind: (RWKU, f"{kind}_{flavour}") for kind in COLUMNS}
        if not all(sides.this.has(*pair) for pair in used.values()):
            continue
        means = {kind: sides.this.mean(*pair) for kind, pair in used.items()}
        targets: tuple[ProbeKind, ...] = ("fb", "qa", "aa")
        near: tuple[ProbeKind, ...] = ("neighbour_fb", "neighbour_qa")
        table: tuple[tuple[str, Any, tuple[ProbeKind, ...], Direction], ...] = (
            ("forget_all", forget_all, targets, "down"),
            ("neighbour_all", neighbour_all, near, "up"),
            ("N_delta", n_delta, (*targets, *near), "up"),
        )
        for name, function, kinds, direction in table:
            estimate = combine(function, *(means[kind] for kind in kinds))
            yield f"{name}_{flavour}", Derivation(estimate, tuple(used[kind] for kind in kinds), direction)


DERIVATIONS: tuple[Callable[[Sides], Iterator[Found]], ...] = (
    _differences,
    _relative,
    _utility,
    _forget_quality,
    _membership,
    _recovery,
    _rwku,
)
