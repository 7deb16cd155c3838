"""A part of a set that looks like the whole: which rows are measured when there are more than an evaluation takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from atwu.data.schema import Example

T = TypeVar("T")

MOST_ROWS = 400
"""Most forget rows and most retain rows that are measured, as in the ATWU paper's evaluation."""


def evenly_spaced(rows: Sequence[T], count: int | None) -> tuple[T, ...]:
    """At most `count` rows, evenly spaced, so that every part of a set ordered by subject is there."""
    if count is None or count >= len(rows):
        return tuple(rows)
    return tuple(rows[index * len(rows) // count] for index in range(count))


def rows_to_measure(rows: Sequence[Example]) -> Sequence[Example]:
    """At most `MOST_ROWS` of the rows, evenly spaced."""
    return evenly_spaced(rows, MOST_ROWS)
