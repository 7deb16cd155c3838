"""A part of a set that looks like the whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def spread(rows: Sequence[T], count: int | None) -> tuple[T, ...]:
    """At most `count` rows, evenly spaced, so that every part of a set ordered by subject is there."""
    if count is None or count >= len(rows):
        return tuple(rows)
    return tuple(rows[index * len(rows) // count] for index in range(count))
