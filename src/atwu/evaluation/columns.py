"""Names of evaluation sets, and `Column`: name, definition, range and direction of one number in a result."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

from atwu._names import source_location

_T = TypeVar("_T")
Direction = Literal["up", "down", "none"]
"""Which way is better."""
FORGET, RETAIN, HOLDOUT = "forget", "retain", "holdout"
INSTRUCTIONS, GENERAL_TEXT, TASKS = "instructions", "general_text", "tasks"
RWKU, LUME, MUSE = PROBE_SETS = ("rwku", "lume", "muse")
FORGET_OR_RETAIN = "forget or retain"
"""Matches the forget set, the retain set and every extra retain set."""
OVERALL = "overall"
"""Name of the group of values that need several sets or a reference model."""
SPECIAL_SETS = (HOLDOUT, INSTRUCTIONS, GENERAL_TEXT, *PROBE_SETS, TASKS)
"""Sets with their own metrics; every other set is a forget or retain set."""
POOL = "pool"
"""All retain rows, if the retain set is a part of them."""
RESERVED_SET_NAMES = (FORGET, RETAIN, *SPECIAL_SETS, OVERALL, POOL)
"""Names that further retain sets cannot have."""


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    """Key in the result, such as `J_P`; may hold one placeholder, as in `auroc_{score}`."""
    formula: Callable[..., Any]
    """Function that computes it."""
    title: str
    """Short name for table heads; may hold the placeholder of `name`."""
    meaning: str
    """Definition in one phrase, without a full stop."""
    sets: tuple[str, ...] = (FORGET_OR_RETAIN,)
    """Sets it is recorded on, or `OVERALL`."""
    direction: Direction | None = None
    """Which way is better; None: lower on the forget set, higher on retain sets."""
    range: tuple[float | None, float | None] = (0.0, 1.0)
    """Smallest and largest possible value; None: unbounded."""
    digits: int = 3
    """Decimals to print."""
    shown: bool = True
    """False for values that only serve as input of other columns."""
    of: tuple[tuple[str, str], ...] = ()
    """(set, column) pairs whose means its formula takes; empty for values that the metric records or derives itself."""
    lost: Callable[[str, float, float | None], str | None] | None = None
    """Function of (name, value, value of the original model) that returns a warning if the model is degraded."""

    def field(self, name: str) -> str | None:
        """Return the placeholder's value in `name`: "" for a column without placeholder, None if the name does not
        match."""
        # A column such as `auroc_{score}` stands for one column per weighting.
        before, brace, rest = self.name.partition("{")
        if not brace and name == self.name:
            return ""
        if not brace:
            return None
        after = rest.partition("}")[2]
        match = re.fullmatch(rf"{re.escape(before)}(.+){re.escape(after)}", name)
        if match is None:
            return None
        return match[1]

    def on(self, split: str) -> bool:
        return split in self.sets or (FORGET_OR_RETAIN in self.sets and split not in (*SPECIAL_SETS, OVERALL))

    def direction_on(self, split: str) -> Direction:
        if self.direction is not None:
            return self.direction
        by_set: dict[str, Direction] = {FORGET: "down", HOLDOUT: "none"}
        return by_set.get(split, "up")

    @property
    def where(self) -> str:
        """File and function of the formula, such as `atwu/evaluation/metrics/memorization.py:extraction_strength`."""
        return source_location(self.formula)


AggregateColumn = partial(Column, sets=(OVERALL,))
Percent = partial(Column, range=(0.0, 100.0), digits=1)


def apply_known(formula: Callable[..., _T | None], *columns: Iterable[Any]) -> list[_T | None]:
    """Apply a formula row by row to columns of equal length; None where a row lacks one of its inputs."""
    rows = zip(*columns, strict=True)
    return [None if any(value is None for value in row) else formula(*row) for row in rows]
