"""Conditional relative frequencies of counted tokens, counted once on a set of rows: a predictor without a model.

Two tables, of the forget and of the retain set, give the n-gram form of selective unlearning (Wan et al. 2025): pass
their probabilities of a row to `masks.differing`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from atwu.data.encode import EncodedRow
from atwu.data.schema import IGNORE_INDEX

Context = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NgramTable:
    """How often each counted token follows its n - 1 previous tokens.

    Contexts reach into prompt and template; targets are counted tokens. Nearer than n - 1 tokens to the start of a row
    the context is what there is, under a key of its own.
    """

    n: int
    """Length of an n-gram, its last token included."""
    continuations: Mapping[Context, Mapping[int, int]]
    """Context ids -> target id -> occurrences."""

    @classmethod
    def of(cls, rows: Iterable[EncodedRow], n: int = 3) -> NgramTable:
        """Count the n-grams of a set.

        Args:
            rows: encoded rows, in any order.
            n: length of an n-gram >= 1; 1 ignores the context.

        Raises:
            ValueError: `n` is below 1.
        """
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}.")
        counts: dict[Context, Counter[int]] = {}
        for row in rows:
            for context, target in _ngrams(row, n):
                counts.setdefault(context, Counter())[target] += 1
        return cls(n=n, continuations=counts)

    def probabilities(self, row: EncodedRow) -> NDArray[np.float64]:
        """`count(context, x_t) / count(context)` of each counted token, 0 where the context was never seen.

        Returns:
            Values in [0, 1], shape (counted tokens,).
        """
        values = []
        for context, target in _ngrams(row, self.n):
            seen = self.continuations.get(context)
            values.append(seen.get(target, 0) / sum(seen.values()) if seen else 0.0)
        return np.array(values, dtype=np.float64)


def _ngrams(row: EncodedRow, n: int) -> Iterator[tuple[Context, int]]:
    for index, label in enumerate(row.labels):
        if label != IGNORE_INDEX:
            yield row.input_ids[max(index - n + 1, 0) : index], label
