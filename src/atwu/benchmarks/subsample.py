"""Choose an evenly spaced subset of rows for evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from atwu.data.schema import Example

_T = TypeVar("_T")

MOST_ROWS = 400
"""Maximum number of evaluated rows per set, as in the evaluation of the ATWU paper."""


def evenly_spaced(rows: Sequence[_T], count: int | None) -> tuple[_T, ...]:
    """Return at most `count` rows, evenly spaced, so that every part of a set ordered by subject is represented."""
    if count is None or count >= len(rows):
        return tuple(rows)
    return tuple(rows[index * len(rows) // count] for index in range(count))


def rows_to_measure(rows: Sequence[Example]) -> Sequence[Example]:
    """Return at most `MOST_ROWS` rows, evenly spaced."""
    return evenly_spaced(rows, MOST_ROWS)
