"""Which rows of a set are measured when there are more than an evaluation takes."""

from __future__ import annotations

from collections.abc import Sequence

from atwu.data.schema import Example
from atwu.data.spread import spread

MOST_ROWS = 400
"""Most forget rows and most retain rows that are measured, as in the ATWU paper's evaluation."""


def measured(rows: Sequence[Example]) -> tuple[Example, ...]:
    """At most `MOST_ROWS` of the rows, evenly spaced."""
    return spread(rows, MOST_ROWS)
