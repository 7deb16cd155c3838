"""Token weights that are computed once, before training, and never change.

Each function takes everything there is about the forget set and gives one array of shape (counted tokens,) per row. What is
expensive (log-probabilities of other models) is asked for by a call, so that only the weighting that uses it pays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from atwu.data.encode import EncodedRow
from atwu.data.schema import IGNORE_INDEX
from atwu.methods.weightings.masks import below_mean, differing
from atwu.methods.weightings.ngrams import NgramTable
from atwu.methods.weightings.nouns import NounFinder, noun_mask
from atwu.methods.weightings.rarity import TokenCounts

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FixedWeights:
    """What a fixed weighting may look at."""

    forget: Sequence[EncodedRow]
    retain: Sequence[EncodedRow] | None
    answers: Sequence[str] | None
    """Text of each forget answer."""
    ref_logps: Callable[[], list[FloatArray]]
    """Per forget row, log-probabilities of its counted tokens under the starting model."""
    auxiliary_logps: Callable[[Literal["forget", "retain"]], list[FloatArray]]
    """The same under the auxiliary model fine-tuned on that set."""
    noun_finder: Callable[[], NounFinder]


def labels(given: FixedWeights) -> list[FloatArray]:
    """1 on tokens that touch a forget span."""
    return [_counted(row, row.token_labels or ()) for row in given.forget]


def logprob_mask(given: FixedWeights) -> list[FloatArray]:
    """SEUL's mask on the starting model (Wang et al. 2025)."""
    return [below_mean(logps) for logps in given.ref_logps()]


def model_difference(given: FixedWeights) -> list[FloatArray]:
    """SU-LLM's mask: where the two auxiliary models disagree (Wan et al. 2025)."""
    pairs = zip(given.auxiliary_logps("forget"), given.auxiliary_logps("retain"), strict=True)
    return [differing(np.exp(first), np.exp(second)) for first, second in pairs]


def ngram_difference(given: FixedWeights) -> list[FloatArray]:
    """SU-Ngram's mask: where forget and retain trigrams disagree (Wan et al. 2025)."""
    first, second = NgramTable.of(given.forget), NgramTable.of(given.retain or ())
    return [differing(first.probabilities(row), second.probabilities(row)) for row in given.forget]


def nouns(given: FixedWeights) -> list[FloatArray]:
    """FUNDIAL's mask: tokens of noun phrases (Dong et al. 2025)."""
    finder = given.noun_finder()
    return [noun_mask(row, answer, finder) for row, answer in zip(given.forget, given.answers or (), strict=True)]


def rarity(given: FixedWeights) -> list[FloatArray]:
    """Tokens that retain answers hardly use, by rank in the answer."""
    counts = TokenCounts.of(given.retain or ())
    return [counts.rarity(row) for row in given.forget]


def _counted(row: EncodedRow, values: Sequence[float]) -> FloatArray:
    return np.array([v for v, label in zip(values, row.labels, strict=True) if label != IGNORE_INDEX], dtype=np.float64)
