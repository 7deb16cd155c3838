"""What a benchmark is: which rows are trained on, by source, and which are measured; and what one of its sources gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from atwu.data.schema import Example

if TYPE_CHECKING:
    from atwu.benchmarks.rwku.rwku_probes import RwkuProbes

Examples = Sequence[Example]


@dataclass(frozen=True, slots=True)
class SourceRows:
    """Rows of one source of a benchmark."""

    rows: Examples = field(repr=False)
    checked: tuple[str, ...]
    """What was counted and compared, one line each."""
    warnings: tuple[str, ...]
    """What a reader should know, one sentence each."""


def first_rows(name: str, rows: Examples, count: str | None) -> Examples:
    """The first rows, as many as the name of their source ends with; None for all.

    Raises:
        ValueError: not a number, or more than there are.
    """
    if count is None:
        return rows
    if not count.isdecimal() or not 1 <= int(count) <= len(rows):
        raise ValueError(f"{name!r}: its number of rows must be a whole number from 1 to {len(rows)}, got {count!r}.")
    return rows[: int(count)]


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Rows to unlearn and to keep, and rows to measure on."""

    name: str
    forget_source: str
    """Rows to remove, as `load_rows` reads them."""
    retain_source: str
    """Rows to keep during unlearning."""
    full_source: str
    """What a model that is trained for this benchmark learns."""
    retain_only_source: str
    """The same without anything about the forget set."""
    forget: Examples = field(repr=False)
    """Measured forget rows, with paraphrases, wrong answers and labels as far as there are any."""
    retain: Examples = field(repr=False)
    """Measured retain rows."""
    pool: Examples = field(repr=False)
    """Every retain row; demonstrations are drawn from it."""
    holdout: Examples = field(default=(), repr=False)
    """Rows that no model was trained on, for membership attacks."""
    extra_retain: Mapping[str, Examples] = field(default_factory=dict, repr=False)
    """Further rows that should be kept, by the name of their set."""
    probes: RwkuProbes | None = field(default=None, repr=False)
    """RWKU's own probes."""
    checked: tuple[str, ...] = ()
    """What was counted and verified when it was loaded, one line each."""
    paired_source: str | None = None
    """Rows to remove, each with a preferred answer, for methods that prefer one; None where `forget_source` serves all."""

    def removed(self, *, paired: bool) -> str:
        """Source of the rows that a method removes which prefers another answer, or does not."""
        return self.paired_source if paired and self.paired_source is not None else self.forget_source
