"""Agreement of a judge with labels given by people, or of two judges with each other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from atwu.judge.verdicts import Verdict

_Z = 1.959963984540054
"""97.5 % quantile of the normal distribution."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often verdicts equal labels. Unscored verdicts count nowhere but in `unscored`."""

    n: int
    """Scored verdicts."""
    unscored: int
    accuracy: float | None
    """Share of scored verdicts that equal their label; None without any."""
    interval: tuple[float, float] | None
    """95 % interval of the accuracy (Wilson 1927), which takes the cases as independent."""
    kappa: float | None
    """Agreement beyond chance (Cohen 1960): 1 perfect, 0 as by chance; None when both sides give one and the same label."""
    false_positives: int
    """Judged correct, labelled wrong."""
    false_negatives: int
    """Judged wrong, labelled correct."""
    kinds: Mapping[str, Agreement] = field(default_factory=dict)
    """The same for each kind of case, in alphabetical order; empty when no kinds are known."""


def agreement(labels: Sequence[bool], verdicts: Sequence[Verdict], *, kinds: Sequence[str] | None = None) -> Agreement:
    """Compare verdicts with labels.

    Args:
        labels: True where a person says the answer states the fact.
        verdicts: the judge's, in the same order.
        kinds: kind of each case, for the breakdown.

    Raises:
        ValueError: different lengths.
    """
    return _compare(labels, [verdict.correct for verdict in verdicts], kinds)


def agreement_between(
    first: Sequence[Verdict], second: Sequence[Verdict], *, kinds: Sequence[str] | None = None
) -> Agreement:
    """Compare two judges; the first stands for the labels. A case that either leaves unscored is unscored.

    Raises:
        ValueError: different lengths.
    """
    return _compare([verdict.correct for verdict in first], [verdict.correct for verdict in second], kinds)


def wilson_interval(successes: int, n: int) -> tuple[float, float]:
    """95 % interval of a share: `(p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n)` (Wilson 1927).

    Args:
        successes: count in [0, n].
        n: number of trials > 0.
    """
    share, z2 = successes / n, _Z * _Z
    centre, spread = share + z2 / (2 * n), _Z * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    low, high = (centre - spread) / (1 + z2 / n), (centre + spread) / (1 + z2 / n)
    return max(0.0, low), min(1.0, high)


def _compare(labels: Sequence[bool | None], verdicts: Sequence[bool | None], kinds: Sequence[str] | None) -> Agreement:
    if len(labels) != len(verdicts) or (kinds is not None and len(kinds) != len(labels)):
        counts = f"{len(labels)} labels, {len(verdicts)} verdicts"
        raise ValueError(f"{counts}{'' if kinds is None else f', {len(kinds)} kinds'}: one of each per case is needed.")
    pairs = [(a, b) for a, b in zip(labels, verdicts, strict=True) if a is not None and b is not None]
    n = len(pairs)
    agreed = sum(a == b for a, b in pairs)
    parts: dict[str, Agreement] = {}
    for kind in sorted(set(kinds or ())):
        chosen = [place for place, other in enumerate(kinds or ()) if other == kind]
        parts[kind] = _compare([labels[place] for place in chosen], [verdicts[place] for place in chosen], None)
    return Agreement(
        n=n,
        unscored=len(labels) - n,
        accuracy=agreed / n if n else None,
        interval=wilson_interval(agreed, n) if n else None,
        kappa=_kappa(pairs),
        false_positives=sum(b and not a for a, b in pairs),
        false_negatives=sum(a and not b for a, b in pairs),
        kinds=parts,
    )


def _kappa(pairs: Sequence[tuple[bool, bool]]) -> float | None:
    """`(observed - expected) / (1 - expected)`, expected from the two shares of True."""
    if not pairs:
        return None
    n = len(pairs)
    first, second = (sum(pair[side] for pair in pairs) for side in (0, 1))
    expected = (first * second + (n - first) * (n - second)) / (n * n)
    observed = sum(a == b for a, b in pairs) / n
    return None if expected == 1 else (observed - expected) / (1 - expected)
