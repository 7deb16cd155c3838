"""Scores in [0, 1] that each token weighting assigns to the tokens of rows, for AUROC and heat maps.

Weightings without a score, such as the constant `uniform`, are left out. Frequencies are counted on the given rows, so
scores of a subset differ from those of the full forget or retain set.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from atwu._file_reading import read_json
from atwu._manifest import RECORD_NAME
from atwu._names import lookup
from atwu.data.arrays import FloatArray
from atwu.data.encode import EncodedRow
from atwu.data.pairing import collate_rows
from atwu.data.schema import Example
from atwu.evaluation.teacher_forced import TokenRow, read_tokens
from atwu.methods.component import FixedWeighting, Weighting, options_of_component
from atwu.methods.component_inputs import PrecomputeContext, WeightingContext
from atwu.methods.component_registry import WEIGHTINGS, load_plugins
from atwu.methods.method_table import METHODS
from atwu.methods.weightings.model_based import LearnedScores
from atwu.modeling.batches import TokenBatch
from atwu.modeling.forward import TokenOutputs

SIMPLE_NOUNS = "simple"
"""Noun finder that needs no spaCy model."""
_SETTINGS = {"auxiliary_forget": "forget", "auxiliary_retain": "retain"}
"""Settings passed to every weighting that has them; the auxiliary models are keys of `AuxiliaryLogps`."""
_AT_ONCE = 1024
"""Rows that are padded to a common length."""


AuxiliaryLogps = Mapping[str, Sequence[FloatArray]]
"""`forget` and `retain` -> log-probabilities under that model, one array of shape (tokens,) per row."""


@dataclass(frozen=True, slots=True)
class AuxiliaryModels:
    """Paths or Hub names of the two models; SU-LLM selects the tokens on which they disagree."""

    forget: str
    retain: str

    def logps(self, rows: Sequence[EncodedRow], *, device: Any, batch_tokens: int = 4096) -> AuxiliaryLogps:
        from atwu.modeling.load import load_model

        return {
            role: [row.logps for row in read_tokens(load_model(name).to(device), rows, batch_tokens=batch_tokens)]
            for role, name in (("forget", self.forget), ("retain", self.retain))
        }


def find_auxiliary_models(folder: str | Path) -> AuxiliaryModels | None:
    """Return the auxiliary models recorded in a run folder; None if it used none or they no longer exist."""
    file = Path(folder).expanduser() / RECORD_NAME
    if not file.is_file():
        return None
    record = read_json(file)
    for key in ("recipe", "settings"):
        if not isinstance(record, dict):  # of another program
            return None
        record = record.get(key)
    return auxiliary_models_of(record)


def auxiliary_models_of(settings: Any) -> AuxiliaryModels | None:
    """Return the auxiliary models named in a recipe's settings; None if it names none or they no longer exist."""
    if not isinstance(settings, dict):
        return None
    names = []
    for role in ("forget", "retain"):
        name = settings.get(f"auxiliary_{role}")
        if not isinstance(name, str):
            return None
        # OWNER/NAME is a name on the Hub, but a path that is gone if OWNER is a folder.
        on_hub = re.fullmatch(r"[\w.-]+/[\w.-]+", name) is not None and not Path(name).parent.is_dir()
        if not on_hub and not Path(name).is_dir():
            return None
        names.append(name)
    return AuxiliaryModels(*names)


@dataclass(frozen=True, slots=True)
class ScoreInputs:
    """What is at hand besides rows as text and a model."""

    scorer: bool = False
    labels: bool = False
    retain: bool = False
    auxiliary: bool = False

    def missing(self, weighting: Weighting) -> str | None:
        """Return what an error says about an input that a weighting lacks; None if it has all."""
        if isinstance(weighting, LearnedScores) and not self.scorer:
            return "needs a learned scorer; use a model folder that has one"
        if weighting.reads_labels and not self.labels:
            return "needs labelled tokens; give rows that all have forget_spans"
        if isinstance(weighting, FixedWeighting) and weighting.auxiliary:
            # Auxiliary models replace the retain rows that they were trained on.
            if self.auxiliary:
                return None
            return "compares two auxiliary models; use the folder of a su_llm run whose auxiliary models still exist"
        if weighting.reads_retain and not self.retain:
            return "compares with retain answers; give retain rows"
        return None


@dataclass(frozen=True, slots=True)
class ScoreContext:
    """Inputs of token scores. The first three fields are about the same rows in the same order."""

    tokens: Sequence[TokenRow]
    encoded: Sequence[EncodedRow]
    examples: Sequence[Example]
    retain: Sequence[EncodedRow] | None = None
    """Rows whose answers are counted for frequencies."""
    retain_text: Sequence[Example] | None = None
    """The same rows as text."""
    auxiliary: AuxiliaryLogps | None = None
    """Log-probabilities under SU-LLM's auxiliary models."""
    noun_finder: str = SIMPLE_NOUNS
    """Noun finder of the weightings that have one (`atwu.methods.weightings.fixed_weights.noun_finder`)."""

    @property
    def inputs(self) -> ScoreInputs:
        return ScoreInputs(
            scorer=all(row.scores is not None for row in self.tokens),
            labels=all(row.token_labels is not None for row in self.encoded),
            retain=bool(self.retain and self.retain_text),
            auxiliary=self.auxiliary is not None,
        )

    def precompute_context(self) -> PrecomputeContext:
        """Return the inputs of precomputed weightings; the model that read the rows takes the role of the original
        model."""
        return PrecomputeContext(
            forget=self.encoded,
            retain=self.retain,
            forget_text=self.examples,
            retain_text=self.retain_text,
            ref_logps=lambda: [row.logps for row in self.tokens],
            logps_of=lambda name: list((self.auxiliary or {})[name]),
        )

    def in_steps(self) -> Iterator[WeightingContext]:
        """Yield the inputs of model-based weightings, in float64 and without hidden states, some rows at a time."""
        labelled = all(row.token_labels is not None for row in self.encoded)
        for start in range(0, len(self.encoded), _AT_ONCE):
            few = slice(start, start + _AT_ONCE)
            rows = list(self.encoded[few])
            if not labelled:  # a batch has labels of all rows or of none
                rows = [dataclasses.replace(row, token_labels=None) for row in rows]
            batch, none = TokenBatch.of(collate_rows(rows)), torch.empty(0)
            logps, entropy = (
                torch.as_tensor(np.concatenate([getattr(row, name) for row in self.tokens[few]]))
                for name in ("logps", "entropy")
            )
            blank = logps.new_zeros(batch.mask.shape)
            out = TokenOutputs(
                # Rounding may give a log-probability slightly above 0, and so a probability above 1.
                logps=blank.masked_scatter(batch.mask, logps).clamp(max=0),
                mask=batch.mask,
                predictions=None,
                entropy=blank.masked_scatter(batch.mask, entropy),
                variance=None,
                states=none,
                own=none,
                predicting=none,
            )
            yield WeightingContext(out, batch)


def scored_weightings(noun_finder: str = SIMPLE_NOUNS) -> dict[str, Weighting]:
    """Return the weightings that have a score, by name, learned ones first.

    Their options are those of the method with the same name, if there is one, else defaults; entropy is at temperature
    1.
    """
    load_plugins()
    weightings = {}
    for name in sorted(WEIGHTINGS, key=lambda name: not issubclass(WEIGHTINGS[name], LearnedScores)):
        weighting = WEIGHTINGS[name]
        if not weighting.is_score:
            continue
        values: dict[str, Any] = {**_SETTINGS, "noun_finder": noun_finder}
        if name in METHODS:
            values |= METHODS[name].defaults
        taken = {option.name for option in options_of_component(weighting)}
        weightings[name] = weighting(**{key: value for key, value in values.items() if key in taken})
    return weightings


def available(inputs: ScoreInputs) -> list[str]:
    return [name for name, weighting in scored_weightings().items() if inputs.missing(weighting) is None]


def check_scores(names: Iterable[str], inputs: ScoreInputs) -> None:
    every = scored_weightings()
    for name in names:
        missing = inputs.missing(lookup("score", name, every))
        if missing is not None:
            raise ValueError(f"score {name!r} {missing}.")


def token_scores(context: ScoreContext, names: Iterable[str]) -> dict[str, list[FloatArray]]:
    """Score every counted token.

    Returns:
        Name -> one array of shape (counted tokens,) per row, values in [0, 1].
    """
    names = list(dict.fromkeys(names))
    check_scores(names, context.inputs)
    every = scored_weightings(context.noun_finder)
    scores: dict[str, list[FloatArray]] = {name: [] for name in names}
    # Weightings that read the model go over the rows together, in one pass for all.
    model_based = {}
    for name in names:
        weighting = every[name]
        if isinstance(weighting, LearnedScores):
            scores[name] += [row.scores for row in context.tokens if row.scores is not None]
        elif isinstance(weighting, FixedWeighting):
            scores[name] += weighting.precompute(context.precompute_context())
        else:
            model_based[name] = weighting
    if not model_based:
        return scores
    for inputs in context.in_steps():
        for name, weighting in model_based.items():
            weights = weighting.weights(inputs).double().numpy()
            rows = (row[counted] for row, counted in zip(weights, inputs.mask.numpy(), strict=True))
            scores[name] += [row / max(1.0, row.max(initial=0.0)) for row in rows]  # shares of a row may be above 1
    return scores
