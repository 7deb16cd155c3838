"""The score that each weighting gives every token of a row, on whatever model read the rows: for AUROC and heat maps.

Left out is `uniform`, which is constant. Scores lie in [0, 1].
Counts are those of the rows given, so scores of a part of the forget or retain set are not those of the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from atwu.data.encode import EncodedRow
from atwu.data.schema import Example
from atwu.evaluation.auxiliary import AuxiliaryLogps
from atwu.evaluation.teacher_forced import FloatArray, TokenRow
from atwu.methods.part import FixedWeighting
from atwu.methods.seen import BeforeTraining
from atwu.methods.table import METHODS
from atwu.methods.weightings import fixed, live

Need = Literal["scorer", "labels", "retain", "auxiliary"]

NEEDS: Mapping[Need, str] = {
    "scorer": "needs a learned scorer; use a model folder that has one",
    "labels": "needs secret-token labels; give rows that all have forget_spans",
    "retain": "compares with retain answers; give retain rows",
    "auxiliary": "compares two auxiliary models; use the folder of a su_llm run whose auxiliary models are still there",
}
"""What some scores cannot do without -> what an error says about it."""


@dataclass(frozen=True, slots=True)
class ScoreContext:
    """What scores may look at. The first three are of the same rows in the same order."""

    tokens: Sequence[TokenRow]
    """What the model says about the rows."""
    encoded: Sequence[EncodedRow]
    examples: Sequence[Example]
    retain: Sequence[EncodedRow] | None = None
    """Rows whose answers are counted."""
    retain_text: Sequence[Example] | None = None
    """The same rows as text."""
    auxiliary: AuxiliaryLogps | None = None
    """What SU-LLM's two models say about the rows."""

    @property
    def there(self) -> frozenset[Need]:
        """Which needs are met."""
        met: dict[Need, bool] = {
            "scorer": all(row.scores is not None for row in self.tokens),
            "labels": all(row.token_labels is not None for row in self.encoded),
            "retain": bool(self.retain and self.retain_text),
            "auxiliary": self.auxiliary is not None,
        }
        return frozenset(need for need, yes in met.items() if yes)

    def before_training(self) -> BeforeTraining:
        """The same as training's weightings take it; the model that read the rows is the starting model."""
        return BeforeTraining(
            forget=self.encoded,
            retain=self.retain,
            forget_text=self.examples,
            retain_text=self.retain_text,
            ref_logps=lambda: [row.logps for row in self.tokens],
            logps_of=lambda name: list(getattr(self.auxiliary, name)),
        )


Compute = Callable[[ScoreContext], list[FloatArray]]
"""One array of shape (counted tokens,) per row."""


@dataclass(frozen=True, slots=True)
class InducedScore:
    """One entry of the table."""

    of: Compute
    needs: tuple[Need, ...] = ()


def _per_row(function: Callable[[TokenRow], FloatArray]) -> Compute:
    return lambda context: [function(row) for row in context.tokens]


def _of_logps(function: Callable[[Tensor], Tensor]) -> Compute:
    # A log-probability of 0 may come out a rounding error above it, and its probability above 1.
    return _per_row(lambda row: function(torch.as_tensor(row.logps).clamp(max=0)).numpy())


def _fixed(weighting: FixedWeighting) -> Compute:
    return lambda context: list(weighting.once(context.before_training()))


def _entropy(row: TokenRow) -> FloatArray:
    largest = row.entropy.max(initial=0.0)
    return row.entropy / largest if largest > 0 else np.ones_like(row.entropy)


def _learned(row: TokenRow) -> FloatArray:
    if row.scores is None:
        raise ValueError(f"the score 'scorer' {NEEDS['scorer']}.")
    return row.scores


_SATIMP = METHODS["satimp"].defaults

SCORES: Mapping[str, InducedScore] = {
    "scorer": InducedScore(_per_row(_learned), ("scorer",)),
    "saturation": InducedScore(_of_logps(lambda logps: live.saturation(logps, beta=1.0))),
    "importance": InducedScore(_of_logps(lambda logps: live.importance(logps, beta2=1.0))),
    "satimp": InducedScore(_of_logps(lambda logps: live.satimp(logps, beta1=_SATIMP["beta1"], beta2=_SATIMP["beta2"]))),
    "entropy": InducedScore(_per_row(_entropy)),
    "logprob_mask": InducedScore(_fixed(fixed.LogprobMask())),
    "model_difference": InducedScore(
        _fixed(fixed.ModelDifference(auxiliary_forget="forget", auxiliary_retain="retain")), ("auxiliary",)
    ),
    "ngram_difference": InducedScore(_fixed(fixed.NgramDifference()), ("retain",)),
    "nouns": InducedScore(_fixed(fixed.Nouns(noun_finder="simple"))),
    "rarity": InducedScore(_fixed(fixed.Rarity()), ("retain",)),
    "word_rarity": InducedScore(_fixed(fixed.WordRarity()), ("retain",)),
    "rare_nouns": InducedScore(_fixed(fixed.RareNouns(noun_finder="simple")), ("retain",)),
    "labels": InducedScore(_fixed(fixed.Labels()), ("labels",)),
}
"""Scores by name. The exponents of saturation and importance are left out, as they do not change the order of tokens;
satimp has those of its method. Entropy is that at temperature 1, relative to the row's largest."""


def available(there: Collection[Need]) -> list[str]:
    """Names of the scores whose needs are met."""
    return [name for name, score in SCORES.items() if set(score.needs) <= set(there)]


def check_scores(names: Iterable[str], there: Collection[Need]) -> None:
    """Whether scores can be computed.

    Raises:
        ValueError: an unknown score, or one whose needs are not met; says what to give.
    """
    for name in names:
        if name not in SCORES:
            raise ValueError(f"unknown score {name!r}; choose from {', '.join(SCORES)}.")
        for need in SCORES[name].needs:
            if need not in there:
                raise ValueError(f"the score {name!r} {NEEDS[need]}.")


def token_scores(context: ScoreContext, names: Iterable[str]) -> dict[str, list[FloatArray]]:
    """Score every counted token.

    Returns:
        Name -> one array of shape (counted tokens,) per row, values in [0, 1].

    Raises:
        ValueError: as `check_scores`.
    """
    names = list(names)
    check_scores(names, context.there)
    return {name: SCORES[name].of(context) for name in names}
