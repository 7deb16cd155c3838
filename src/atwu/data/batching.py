"""Rows grouped for passes where their order does not matter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def by_length(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Indices of rows of similar length together, longest first, at most `budget` tokens a batch (a longer row is alone)."""
    batch: list[int] = []
    used = 0
    for index in sorted(range(len(lengths)), key=lambda index: lengths[index], reverse=True):
        if batch and used + lengths[index] > budget:
            yield batch
            batch, used = [], 0
        batch.append(index)
        used += lengths[index]
    if batch:
        yield batch
