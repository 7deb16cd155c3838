"""Which orderings of a published table hold in our results: every pair of labels, and Kendall's tau-b over all of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from scipy.stats import kendalltau

Outcome = Literal["holds", "holds, within noise", "open", "reversed, within noise", "reversed"]
Interval = tuple[float, float, float]
"""Difference, and the ends of its paired interval; NaN ends where there is none."""
Differences = Callable[[str, str], Interval | None]
"""First label minus second; None where they were not compared."""

OUTCOMES: tuple[Outcome, ...] = ("holds", "holds, within noise", "open", "reversed, within noise", "reversed")
_SAYS: Mapping[Outcome, tuple[str, str]] = {
    "holds": ("holds beyond noise", "hold beyond noise"),
    "holds, within noise": ("holds within noise", "hold within noise"),
    "open": ("is open", "are open"),
    "reversed, within noise": ("is reversed within noise", "are reversed within noise"),
    "reversed": ("is reversed beyond noise", "are reversed beyond noise"),
}


@dataclass(frozen=True, slots=True)
class Ordering:
    """Two labels of which the published table puts one ahead."""

    better: str
    """Ahead in the published table."""
    worse: str
    published: float
    """Published number of `better` minus that of `worse`."""
    ours: Interval | None
    """The same of ours, with its paired interval."""
    outcome: Outcome
    """`open`: ours are equal, or were not compared; `within noise`: the interval includes 0, or there is none."""


@dataclass(frozen=True, slots=True)
class Orderings:
    """All pairs of labels that both tables have and whose published numbers differ."""

    pairs: tuple[Ordering, ...]
    counts: Mapping[Outcome, int]
    tau: float | None
    """Kendall's tau-b between both tables; None with fewer than two labels, or where one table is all equal."""
    reading: str
    """One sentence."""


def orderings(
    ours: Mapping[str, float],
    published: Mapping[str, float],
    differences: Differences,
    *,
    direction: Literal["up", "down"],
) -> Orderings:
    """Compare the orderings of one metric.

    Args:
        differences: our paired difference of two labels, first minus second.
    """
    labels = [
        label for label in published if label in ours and math.isfinite(ours[label]) and math.isfinite(published[label])
    ]
    pairs = []
    for first, second in itertools.combinations(labels, 2):
        gap = published[first] - published[second]
        if gap == 0:
            continue
        better, worse = (first, second) if (gap > 0) == (direction == "up") else (second, first)
        found = differences(better, worse)
        pairs.append(
            Ordering(better, worse, published[better] - published[worse], found, outcome_of(found, direction=direction))
        )
    counts = {outcome: sum(pair.outcome == outcome for pair in pairs) for outcome in OUTCOMES}
    tau = _tau([ours[label] for label in labels], [published[label] for label in labels])
    leader = _leader(labels, ours, published, up=direction == "up")
    return Orderings(tuple(pairs), counts, tau, _reading(counts, tau, leader))


def outcome_of(difference: Interval | None, *, direction: Literal["up", "down"]) -> Outcome:
    """What our difference, published better minus published worse, says of that ordering."""
    if difference is None or not math.isfinite(difference[0]) or difference[0] == 0:
        return "open"
    value, low, high = difference
    agrees = (value > 0) == (direction == "up")
    if low > 0 or high < 0:
        return "holds" if agrees else "reversed"
    return "holds, within noise" if agrees else "reversed, within noise"


def _tau(ours: list[float], published: list[float]) -> float | None:
    if len(ours) < 2:
        return None
    tau = float(kendalltau(ours, published, variant="b").statistic)
    return tau if math.isfinite(tau) else None


def _leader(
    labels: list[str], ours: Mapping[str, float], published: Mapping[str, float], *, up: bool
) -> tuple[str, int, int] | None:
    """The published best, its place in our table and the length of that; None where two share the lead or none has it."""
    sign = 1 if up else -1
    order = sorted(labels, key=lambda label: -sign * published[label])
    if len(order) < 2 or published[order[0]] == published[order[1]]:
        return None
    place = 1 + sum(sign * ours[label] > sign * ours[order[0]] for label in labels)
    return order[0], place, len(labels)


def _reading(counts: Mapping[Outcome, int], tau: float | None, leader: tuple[str, int, int] | None) -> str:
    total = sum(counts.values())
    if not total:
        return "No two labels are ordered by the published table and measured here."
    parts = []
    for outcome, count in counts.items():
        if count:
            one, many = _SAYS[outcome]
            parts.append(f"{count} {one if count == 1 else many}")
    text = f"Of {total} published ordering{'s' * (total > 1)} {', '.join(parts)}"
    if tau is not None:
        text += f" (Kendall's tau {tau:.2f})"
    if leader is not None:
        name, place, length = leader
        text += f"; {name}, the published best, is {'best' if place == 1 else f'number {place} of {length}'} here"
    return text + "."
