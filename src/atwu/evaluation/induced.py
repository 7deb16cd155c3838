"""The score that each weighting gives every token of a row, on whatever model read the rows: for AUROC and heat maps.

Left out is what says of itself that it is no score: `uniform`, which is constant. Scores lie in [0, 1].
Counts are those of the rows given, so scores of a part of the forget or retain set are not those of the whole.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from atwu._names import lookup
from atwu.data.collate import collate_rows
from atwu.data.encode import EncodedRow
from atwu.data.schema import Example
from atwu.evaluation.auxiliary import AuxiliaryLogps
from atwu.evaluation.teacher_forced import FloatArray, TokenRow
from atwu.methods.needs import NEEDS
from atwu.methods.options import options_of
from atwu.methods.part import FixedWeighting, Weighting
from atwu.methods.parts import WEIGHTINGS
from atwu.methods.plugins import load_plugins
from atwu.methods.seen import BeforeTraining, TokensSeen
from atwu.methods.table import METHODS
from atwu.methods.weightings.learned import LearnedScores
from atwu.modeling.batches import TokenBatch
from atwu.modeling.forward import TokenOutputs

MISSING = {
    "scorer": "needs a learned scorer; use a model folder that has one",
    "labels": "needs secret-token labels; give rows that all have forget_spans",
    "retain": "compares with retain answers; give retain rows",
    "auxiliary_models": "compares two auxiliary models; use the folder of a su_llm run whose auxiliary models are still "
    "there",
}
"""What a weighting needs, where it may be missing -> what an error says about it."""

_SETTINGS = {"noun_finder": "simple", "auxiliary_forget": "forget", "auxiliary_retain": "retain"}
"""Settings that scores are made with, of every weighting that takes them; the models are fields of `AuxiliaryLogps`."""


def met(*, scorer: bool = False, labels: bool = False, retain: bool = False, auxiliary: bool = False) -> frozenset[str]:
    """The needs of weightings that are met by rows as text and a model that reads them, and by what else is there."""
    further = {
        "scorer": scorer,
        "labels": labels,
        "retain": retain,
        "retain_text": retain,
        "auxiliary_models": auxiliary,
    }
    return frozenset({"text", "starting_logps", "noun_finder", *(need for need, yes in further.items() if yes)})


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

    def in_a_step(self) -> TokensSeen:
        """The same as weightings take it that look at the model in every step, in float64 and without hidden states."""
        rows = self.encoded
        if any(row.token_labels is None for row in rows):
            rows = [dataclasses.replace(row, token_labels=None) for row in rows]
        batch = TokenBatch.of(collate_rows(rows))

        def spread(values: Iterable[FloatArray]) -> torch.Tensor:
            given = torch.as_tensor(np.concatenate([*values]))
            return given.new_zeros(batch.mask.shape).masked_scatter(batch.mask, given)

        none = torch.empty(0)
        out = TokenOutputs(
            # A log-probability of 0 may come out a rounding error above it, and its probability above 1.
            logps=spread(row.logps for row in self.tokens).clamp(max=0),
            mask=batch.mask,
            predictions=None,
            entropy=spread(row.entropy for row in self.tokens),
            variance=None,
            states=none,
            own=none,
            predicting=none,
        )
        return TokensSeen(out, batch)


def scored_weightings() -> dict[str, Weighting]:
    """The weightings that have a score, by name, learned ones first.

    Their numbers are those of the method of their name, if there is one, else their defaults; entropy is that at
    temperature 1.
    """
    load_plugins()
    found = {}
    for name in sorted(WEIGHTINGS, key=lambda name: not issubclass(WEIGHTINGS[name], LearnedScores)):
        made = WEIGHTINGS[name]
        if made.scored:
            values = {**_SETTINGS, **(METHODS[name].defaults if name in METHODS else {})}
            taken = {option.name for option in options_of(made)}
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
            raise ValueError(f"the score {name!r} {MISSING.get(need) or f'needs {NEEDS[need]}, which no score has'}.")


def token_scores(context: ScoreContext, names: Iterable[str]) -> dict[str, list[FloatArray]]:
    """Score every counted token.

    Returns:
        Name -> one array of shape (counted tokens,) per row, values in [0, 1].

    Raises:
        ValueError: as `check_scores`.
    """
    names = list(names)
    check_scores(names, context.there)
    every, seen = scored_weightings(), functools.cache(context.in_a_step)
    return {name: _scores(every[name], context, seen) for name in names}


def _missing(weighting: Weighting, there: Collection[str]) -> list[str]:
    # Auxiliary models stand for the rows that they were trained on.
    spared = "retain" if "auxiliary_models" in weighting.needs else None
    return [need for need in weighting.needs if need not in there and need != spared]


def _scores(weighting: Weighting, context: ScoreContext, in_a_step: Callable[[], TokensSeen]) -> list[FloatArray]:
    if isinstance(weighting, LearnedScores):
        return [row.scores for row in context.tokens if row.scores is not None]
    if isinstance(weighting, FixedWeighting):
        return weighting.once(context.before_training())
    seen = in_a_step()
    weights = weighting.weights(seen).double().numpy()
    rows = [row[counted] for row, counted in zip(weights, seen.mask.numpy(), strict=True)]
    # What is above 1, as shares of a row are, counts relative to the row's largest.
    return [row / max(1.0, row.max(initial=0.0)) for row in rows]
