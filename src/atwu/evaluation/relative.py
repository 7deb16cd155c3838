"""Judge scores relative to the starting model: forgetting FQ, retain degradation RD, their difference UQ; win rate.

FQ, RD and UQ (the ATWU paper) take means over rows and are no means themselves; they work on numbers and, element by
element, on arrays such as bootstrap draws. FQ is not TOFU's forget quality, which is a p-value (`utility`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T", float, NDArray[np.float64])


def fq(j_w: T, j_w_original: T) -> T:
    """Forgetting: share of the worst-case knowledge that is gone, `max(0, 1 - J_W / J_W_original)`.

    Range [0, 1], higher is better; NaN where the starting model knew nothing.

    Args:
        j_w: J_W on the forget rows after unlearning, on any scale.
        j_w_original: the same of the starting model, same rows and variants, same scale.
    """
    return _lost(j_w, j_w_original)


def rd(j_avg: T, j_avg_original: T) -> T:
    """Retain degradation: share of the retained knowledge that was lost, `max(0, 1 - J_AVG / J_AVG_original)`.

    Range [0, 1], lower is better; NaN where the starting model knew nothing.

    Args:
        j_avg: J_AVG on the retain rows after unlearning, on any scale.
        j_avg_original: the same of the starting model, same rows and variants, same scale.
    """
    return _lost(j_avg, j_avg_original)


def uq(fq: T, rd: T) -> T:
    """What forgetting gained over what it cost, `max(0, FQ - RD)`. Range [0, 1], higher is better.

    Take FQ and RD unrounded and as fractions; a NaN in either gives NaN.
    """
    result: T = np.maximum(0.0, fq - rd)
    return result


@dataclass(frozen=True, slots=True)
class WinRate:
    """How often the second of two answers is rated higher."""

    value: float
    """`100 (wins + ties / 2) / (wins + ties + losses)`, in [0, 100]; NaN when nothing was scored."""
    wins: int
    ties: int
    losses: int
    unscored: int
    """Comparisons without a rating on both sides; they are in no denominator."""


def win(first: float | None, second: float | None) -> float | None:
    """100 when the second rating is higher, 50 on a tie, 0 when lower; None when either rating is missing.

    A win rate is the plain mean of these over the instructions that have one.
    """
    if first is None or second is None:
        return None
    return 50.0 + 50.0 * ((second > first) - (second < first))


def win_rate(first: Sequence[float | None], second: Sequence[float | None]) -> WinRate:
    """Win rate of the second model against the first, in percent.

    50 is parity; below 45 the ATWU paper calls the generations degraded, above 50 is no merit. Denominators leave
    unscored comparisons out, where counting them as losses would make an unreadable judge look like a bad model.

    Args:
        first: ratings of the starting model's answers, None where unscored, shape (instructions,).
        second: ratings of the unlearned model's answers to the same instructions.

    Raises:
        ValueError: the lengths differ.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} ratings against {len(second)}; give one pair per instruction.")
    results = [win(one, other) for one, other in zip(first, second, strict=True)]
    wins, ties, losses = (results.count(value) for value in (100.0, 50.0, 0.0))
    scored = wins + ties + losses
    return WinRate(
        value=100 * (wins + ties / 2) / scored if scored else math.nan,
        wins=wins,
        ties=ties,
        losses=losses,
        unscored=len(results) - scored,
    )


def _lost(now: T, before: T) -> T:
    """`max(0, 1 - now / before)`, NaN where `before` is 0."""
    was = np.asarray(before, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        lost: Any = np.where(was > 0, np.maximum(0.0, 1 - now / was), np.nan)
    if not np.ndim(lost):
        lost = float(lost)
    result: T = lost
    return result
