"""Conditional relative frequencies of counted tokens, counted once on a set of rows: a predictor without a model.

Two tables, of the forget and of the retain set, give the n-gram form of selective unlearning (Wan et al. 2025): pass
their probabilities of a row to `masks.differing`.
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
"""Length of an n-gram, its last token included."""
Context = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NgramTable:
    """How often each counted token follows its N - 1 previous tokens.

    Contexts reach into prompt and template; targets are counted tokens. Nearer than N - 1 tokens to the start of a row
    the context is what there is, under a key of its own.
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
        """`count(context, x_t) / count(context)` of each counted token, 0 where the context was never seen.

        Returns:
            Values in [0, 1], shape (counted tokens,).
        """
        values = []
        for context, target in _ngrams(row):
            seen = self.continuations.get(context)
            values.append(seen.get(target, 0) / sum(seen.values()) if seen else 0.0)
        return np.array(values, dtype=np.float64)


def _ngrams(row: EncodedRow) -> Iterator[tuple[Context, int]]:
    for index, label in enumerate(row.labels):
        if label != IGNORE_INDEX:
            yield row.input_ids[max(index - N + 1, 0) : index], label
