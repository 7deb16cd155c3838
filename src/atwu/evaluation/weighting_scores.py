"""The score that each weighting gives every token of a row, on whatever model read the rows: for AUROC and heat maps.

Left out is what says of itself that it is no score: `uniform`, which is constant. Scores lie in [0, 1].
Counts are those of the rows given, so scores of a part of the forget or retain set are not those of the whole.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from atwu._names import lookup
from atwu.data.arrays import FloatArray
from atwu.data.collate import collate_rows
from atwu.data.encode import EncodedRow
from atwu.data.schema import Example
from atwu.evaluation.auxiliary_logps import AuxiliaryLogps
from atwu.evaluation.teacher_forced import TokenRow
from atwu.methods.component import NEEDS, FixedWeighting, Weighting
from atwu.methods.component_inputs import PrecomputeContext, WeightingContext
from atwu.methods.component_options import options_of_component
from atwu.methods.components import WEIGHTINGS
from atwu.methods.method_table import METHODS
from atwu.methods.plugins import load_plugins
from atwu.methods.weightings.learned import LearnedScores
from atwu.modeling.batches import TokenBatch
from atwu.modeling.forward import TokenOutputs

MISSING_REASONS = {
    "scorer": "needs a learned scorer; use a model folder that has one",
    "labels": "needs secret-token labels; give rows that all have forget_spans",
    "retain": "compares with retain answers; give retain rows",
    "auxiliary_models": "compares two auxiliary models; use the folder of a su_llm run whose auxiliary models are still "
    "there",
}
"""What a weighting needs, where it may be missing -> what an error says about it."""

_SETTINGS = {"noun_finder": "simple", "auxiliary_forget": "forget", "auxiliary_retain": "retain"}
"""Settings that scores are made with, of every weighting that takes them; the models are fields of `AuxiliaryLogps`."""
_AT_ONCE = 1024
"""Rows that are padded to one length."""


def met(*, scorer: bool = False, labels: bool = False, retain: bool = False, auxiliary: bool = False) -> frozenset[str]:
    """The needs of weightings that are met by rows as text and a model that reads them, and by what else is there."""
    further = {
        "scorer": scorer,
        "labels": labels,
        "retain": retain,
        "retain_text": retain,
        "auxiliary_models": auxiliary,
    }
    return frozenset({"text", "original_logps", "noun_finder", *(need for need, yes in further.items() if yes)})


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
    def there(self) -> frozenset[str]:
        """Which needs are met."""
        return met(
            scorer=all(row.scores is not None for row in self.tokens),
            labels=all(row.token_labels is not None for row in self.encoded),
            retain=bool(self.retain and self.retain_text),
            auxiliary=self.auxiliary is not None,
        )

    def precompute_context(self) -> PrecomputeContext:
        """The same as training's weightings take it; the model that read the rows is the starting model."""
        return PrecomputeContext(
            forget=self.encoded,
            retain=self.retain,
            forget_text=self.examples,
            retain_text=self.retain_text,
            ref_logps=lambda: [row.logps for row in self.tokens],
            logps_of=lambda name: list(getattr(self.auxiliary, name)),
        )

    def in_steps(self) -> Iterator[WeightingContext]:
        """The same as weightings take it that look at the model in every step, some rows after the other, in float64 and
        without hidden states."""
        labelled = all(row.token_labels is not None for row in self.encoded)
        for start in range(0, len(self.encoded), _AT_ONCE):
            few = slice(start, start + _AT_ONCE)
            rows = [row if labelled else dataclasses.replace(row, token_labels=None) for row in self.encoded[few]]
            yield _seen(self.tokens[few], TokenBatch.of(collate_rows(rows)))


def _seen(tokens: Sequence[TokenRow], batch: TokenBatch) -> WeightingContext:
    def spread(values: Iterable[FloatArray]) -> torch.Tensor:
        given = torch.as_tensor(np.concatenate([*values]))
        return given.new_zeros(batch.mask.shape).masked_scatter(batch.mask, given)

    none = torch.empty(0)
    out = TokenOutputs(
        # A log-probability of 0 may come out a rounding error above it, and its probability above 1.
        logps=spread(row.logps for row in tokens).clamp(max=0),
        mask=batch.mask,
        predictions=None,
        entropy=spread(row.entropy for row in tokens),
        variance=None,
        states=none,
        own=none,
        predicting=none,
    )
    return WeightingContext(out, batch)


def scored_weightings() -> dict[str, Weighting]:
    """The weightings that have a score, by name, learned ones first.

    Their numbers are those of the method of their name, if there is one, else their defaults; entropy is that at
    temperature 1.
    """
    load_plugins()
    found = {}
    for name in sorted(WEIGHTINGS, key=lambda name: not issubclass(WEIGHTINGS[name], LearnedScores)):
        made = WEIGHTINGS[name]
        if made.is_score:
            values = {**_SETTINGS, **(METHODS[name].defaults if name in METHODS else {})}
            taken = {option.name for option in options_of_component(made)}
            found[name] = made(**{key: value for key, value in values.items() if key in taken})
    return found


def available(there: Collection[str]) -> list[str]:
    """Names of the scores whose needs (`met`) are met."""
    return [name for name, weighting in scored_weightings().items() if not _missing(weighting, there)]


def check_scores(names: Iterable[str], there: Collection[str]) -> None:
    """Whether scores can be computed.

    Raises:
        ValueError: an unknown score, or one whose needs (`met`) are not met; says what to give.
    """
    every = scored_weightings()
    for name in names:
        for need in _missing(lookup("score", name, every), there):
            raise ValueError(
                f"the score {name!r} {MISSING_REASONS.get(need) or f'needs {NEEDS[need]}, which no score has'}."
            )


def token_scores(context: ScoreContext, names: Iterable[str]) -> dict[str, list[FloatArray]]:
    """Score every counted token.

    Returns:
        Name -> one array of shape (counted tokens,) per row, values in [0, 1].

    Raises:
        ValueError: as `check_scores`.
    """
    names = list(dict.fromkeys(names))
    check_scores(names, context.there)
    every = scored_weightings()
    found: dict[str, list[FloatArray]] = {name: [] for name in names}
    looking = {}
    for name in names:
        weighting = every[name]
        if isinstance(weighting, LearnedScores):
            found[name] += [row.scores for row in context.tokens if row.scores is not None]
        elif isinstance(weighting, FixedWeighting):
            found[name] += weighting.precompute(context.precompute_context())
        else:
            looking[name] = weighting
    for seen in context.in_steps() if looking else ():
        for name, weighting in looking.items():
            found[name] += _rows(weighting.weights(seen), seen.mask)
    return found


def _missing(weighting: Weighting, there: Collection[str]) -> list[str]:
    # Auxiliary models stand for the rows that they were trained on.
    spared = "retain" if "auxiliary_models" in weighting.needs else None
    return [need for need in weighting.needs if need not in there and need != spared]


def _rows(weights: torch.Tensor, mask: torch.Tensor) -> list[FloatArray]:
    """Row by row; what is above 1, as shares of a row are, counts relative to the row's largest."""
    found = [row[counted] for row, counted in zip(weights.double().numpy(), mask.numpy(), strict=True)]
    return [row / max(1.0, row.max(initial=0.0)) for row in found]
