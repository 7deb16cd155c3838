"""N-gram tables: conditional relative frequencies of counted tokens in a set of rows.

Tables of the forget and the retain set give the n-gram variant of selective unlearning (Wan et al. 2025): pass both
probabilities of a row to `masks.differing`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from atwu.data.arrays import FloatArray
from atwu.data.encode import EncodedRow
from atwu.data.schema import IGNORE_INDEX

N = 3
"""Length of an n-gram, including the predicted token."""
Context = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NgramTable:
    """Counts of each counted token after its N - 1 previous tokens.

    Contexts include prompt and template tokens; predicted tokens are counted tokens. At the start of a row contexts are
    shorter and have their own keys.
    """

    continuations: Mapping[Context, Mapping[int, int]]
    """Context ids -> target id -> occurrences."""

    @classmethod
    def of(cls, rows: Iterable[EncodedRow]) -> NgramTable:
        """Count the n-grams of a set of rows, in any order."""
        counts: dict[Context, Counter[int]] = {}
        for row in rows:
            for context, target in _ngrams(row):
                counts.setdefault(context, Counter())[target] += 1
        return cls(counts)

    def probabilities(self, row: EncodedRow) -> FloatArray:
        """`count(context, x_t) / count(context)` of each counted token, 0 for an unknown context.

        Returns:
            Values in [0, 1], shape (counted tokens,).
        """
        values = []
        for context, target in _ngrams(row):
            followers = self.continuations.get(context)
            values.append(followers.get(target, 0) / sum(followers.values()) if followers else 0.0)
        return np.array(values, dtype=np.float64)


def _ngrams(row: EncodedRow) -> Iterator[tuple[Context, int]]:
    for index, label in enumerate(row.labels):
        if label != IGNORE_INDEX:
            yield row.input_ids[max(index - N + 1, 0) : index], label
