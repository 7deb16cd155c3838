"""Sets of rows, and the columns that a metric records on them: their names, how to read them, where they are computed."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from atwu._names import place_of

if TYPE_CHECKING:
    from atwu.evaluation.result import Direction

FORGET, RETAIN, HOLDOUT = "forget", "retain", "holdout"
INSTRUCTIONS, GENERAL_TEXT, RWKU, TASKS = "instructions", "general_text", "rwku", "tasks"
FORGET_OR_RETAIN = "forget or retain"
"""Stands for any set of rows to forget or to keep."""
OVERALL = "overall"
"""Where numbers are that need several sets or a second model."""
SPECIAL_SETS = (HOLDOUT, INSTRUCTIONS, GENERAL_TEXT, RWKU, TASKS)
"""Sets with a purpose of their own; every other one holds rows to forget or to keep."""
RESERVED_SET_NAMES = (FORGET, RETAIN, *SPECIAL_SETS, OVERALL, "pool")
"""Names that further sets cannot have."""


@dataclass(frozen=True, slots=True)
class Column:
    """One number of a result."""

    name: str
    """Its key, such as `J_P`; one field such as `{score}` stands for any word."""
    formula: Callable[..., Any] | str
    """The function that computes it, or `module:function` where importing it is slow."""
    title: str
    """Short name for the head of a column; may hold the field of `name`."""
    meaning: str
    """What it measures, in one sentence without a full stop."""
    sets: tuple[str, ...] = (FORGET_OR_RETAIN,)
    """Sets it is recorded on, or `OVERALL`."""
    direction: Direction | None = None
    """Which way is better; None: down on forget rows, up on rows to keep."""
    range: tuple[float | None, float | None] = (0.0, 1.0)
    """Smallest and largest possible value; None for no bound."""
    digits: int = 3
    """Decimals worth printing."""
    shown: bool = True
    """False for values that only serve other columns."""
    lost: Callable[[str, float, float | None], str | None] | None = None
    """Takes name, value and the starting model's; gives a sentence if a general ability was materially lost."""

    def field(self, name: str) -> str | None:
        """What the field of this column is in a name; empty for a column without one, None if the name is another's."""
        before, brace, rest = self.name.partition("{")
        if not brace:
            return "" if name == self.name else None
        after = rest.partition("}")[2]
        found = re.fullmatch(rf"{re.escape(before)}(.+){re.escape(after)}", name)
        return found.group(1) if found else None

    def on(self, split: str) -> bool:
        """Whether it can be on a set."""
        return split in self.sets or (FORGET_OR_RETAIN in self.sets and split not in (*SPECIAL_SETS, OVERALL))

    def direction_on(self, split: str) -> Direction:
        """Which way is better on a set."""
        return self.direction or ("down" if split == FORGET else "none" if split == HOLDOUT else "up")

    @property
    def where(self) -> str:
        """File and function of its formula, `atwu/evaluation/metrics/memorization.py:extraction_strength`."""
        if not isinstance(self.formula, str):
            return place_of(self.formula)
        module, _, function = self.formula.partition(":")
        return f"{module.replace('.', '/')}.py:{function}"


AggregateColumn = partial(Column, sets=(OVERALL,))
"""A column that needs several sets or a second model."""
Percent = partial(Column, range=(0.0, 100.0), digits=1)
"""A column in percent."""
