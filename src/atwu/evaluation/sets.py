"""Load the rows of an evaluation: named sets, from any accepted source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from typing import Any

from atwu.benchmarks.probes import BenchmarkProbes
from atwu.data.schema import Example
from atwu.evaluation.columns import FORGET, HOLDOUT, RESERVED_SET_NAMES, RETAIN, SPECIAL_SETS
from atwu.training.training_rows import RowsInput, text_rows

Sets = Mapping[str, Sequence[Example]]


@dataclass(frozen=True, slots=True)
class EvaluationRows:
    """Rows that a model is evaluated on."""

    sets: Sets
    """Set name -> rows."""
    pool: Sequence[Example]
    """All retain rows, also those not in the evaluated subset."""
    apart: tuple[str, ...] = SPECIAL_SETS
    """Names of the sets that are neither forget nor retain sets."""
    warnings: list[str] = field(default_factory=list)

    @property
    def every(self) -> Sets:
        """All sets and the pool."""
        return {**self.sets, **({"pool": self.pool} if self.pool else {})}

    def with_metric_rows(self, own: Mapping[str, Any]) -> EvaluationRows:
        """Add the sets that ship with metrics."""
        sets = {**self.sets, **{split: tuple(rows) for split, rows in own.items()}}
        return replace(self, sets=sets, apart=(*self.apart, *own))


def load_evaluation_rows(
    forget: RowsInput | None,
    retain: RowsInput | None,
    holdout: RowsInput | None,
    *,
    extra_retain: Mapping[str, RowsInput],
    pool: RowsInput | None,
    probes: BenchmarkProbes | None,
) -> EvaluationRows:
    """Load the rows given to `evaluate`; None and empty sources are left out."""
    if reserved := sorted(set(extra_retain) & set(RESERVED_SET_NAMES)):
        raise ValueError(
            f"extra retain set {reserved[0]!r} has a reserved name; choose a name other than "
            f"{', '.join(RESERVED_SET_NAMES)}."
        )
    odd: list[str] = []
    given = {FORGET: forget, RETAIN: retain, **extra_retain, HOLDOUT: holdout}
    sets = {split: found for split, rows in given.items() if (found := _examples(rows, split, odd))}
    if probes is not None:
        sets[probes.name] = probes.rows
    return EvaluationRows(sets, _examples(pool, "pool", odd) or sets.get(RETAIN, ()), warnings=odd)


def _examples(rows: RowsInput | None, split: str, odd: list[str]) -> Sequence[Example]:
    """Load one set as text and append its warnings to `odd`; an empty tuple without rows."""
    if rows is None or (isinstance(rows, Sized) and not len(rows)):
        return ()
    given = text_rows(rows, what=split)
    odd += [f"{split}: {note}" for note in given.warnings]
    return given.examples or ()
