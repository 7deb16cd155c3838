"""Verdicts on the answers to several wordings of a question, into one value per row: worst case and average.

J_P, J_ICR, J_W and J_AVG (the ATWU paper) are the plain means of these values over the rows that have one. A missing
verdict counts neither as right nor as wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

Verdicts: TypeAlias = Sequence[Sequence[bool | None]]
"""Per row, one verdict for each wording of its question; None where unscored. Rows may have different numbers."""


def worst(*tables: Verdicts) -> list[float | None]:
    """1.0 where any wording brings the fact out, else 0.0; lower is better on forget rows.

    J_P takes the plain queries, J_ICR those with in-context demonstrations, J_W both tables together. A maximum can only
    grow with the number of wordings, so compare at equal numbers.

    Args:
        tables: verdicts on the same rows under different conditions.

    Returns:
        One value per row; None where nothing was judged.

    Raises:
        ValueError: no table, or tables with different numbers of rows.
    """
    return [float(any(verdicts)) if verdicts else None for verdicts in _rows(tables)]


def average(*tables: Verdicts) -> list[float | None]:
    """Share of the wordings that bring the fact out (J_AVG on the plain queries); higher is better on retain rows.

    Args and result as for `worst`.
    """
    return [sum(verdicts) / len(verdicts) if verdicts else None for verdicts in _rows(tables)]


def unscored(*tables: Verdicts) -> int:
    """Answers without a verdict, over all rows and tables."""
    return sum(verdict is None for table in tables for row in table for verdict in row)


def _rows(tables: Sequence[Verdicts]) -> Iterator[list[bool]]:
    """The verdicts there are on each row, over all tables."""
    sizes = [len(table) for table in tables]
    if len(set(sizes)) != 1:
        raise ValueError(f"tables of verdicts must be about the same rows, got {sizes} rows.")
    for parts in zip(*tables, strict=True):
        yield [verdict for part in parts for verdict in part if verdict is not None]
