"""Supervised linear probe: how well a linear layer, trained with labels, detects labelled tokens in hidden states.

Takes rows with `forget_spans`; returns the AUROC per layer and position, on rows of subjects the probe was not trained
on. A learned scorer is the same linear layer trained without labels, so the probe is an upper reference (ATWU paper,
appendix): compare held-out AUROC with a scorer on new rows, training AUROC with a scorer on its own rows.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from atwu._extras import require
from atwu._files import versions
from atwu._names import lookup
from atwu._progress import progress_bar
from atwu.benchmarks.base import LoadedRows
from atwu.data.arrays import FloatArray
from atwu.data.encode import EncodedRow, Encoder
from atwu.data.schema import Example
from atwu.evaluation.metrics.score_auroc import SampleAuroc, per_sample_auroc
from atwu.evaluation.teacher_forced import token_batches
from atwu.modeling.batches import TokenBatch, lay_out
from atwu.modeling.layers import eval_mode, unwrap
from atwu.modeling.load import model_fingerprint

logger = logging.getLogger(__name__)

PROBE_SCHEMA = "atwu.probe/1"
ProbePosition = Literal["own", "pred", "both"]
POSITIONS: tuple[ProbePosition, ...] = get_args(ProbePosition)
"""State after the token (own), state that predicts it (pred), and both concatenated."""
Fold: TypeAlias = "tuple[NDArray[np.intp], NDArray[np.intp]]"
"""Indices of the rows to train on and of the rows held out."""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    layer: int
    """0 for the embeddings, k for decoder layer k; the last one is after the final norm."""
    position: ProbePosition
    auroc: SampleAuroc
    """Held-out AUROC per answer, one value per probed row, in order."""
    train_auroc: float | None
    """Mean AUROC over folds and the answers trained on; far above `auroc` if the probe overfits. None if no answer
    outside a fold has both classes."""
    rows: int
    tokens: int
    """Number of answer tokens of these rows, without terminal tokens."""


def probe(
    model: nn.Module,
    tokenizer: Any,
    examples: Sequence[Example],
    *,
    layers: Sequence[int] | None = None,
    positions: Sequence[ProbePosition] = POSITIONS,
    folds: int = 5,
    seed: int = 0,
    l2: float = 1e-2,
    batch_tokens: int = 4096,
    max_length: int = 512,
    system: str | None = None,
    progress: bool = True,
) -> list[ProbeResult]:
    """Cross-validate a linear probe on each requested layer and position, in that order.

    The model runs once over the rows. Selecting the best layer by its held-out AUROC makes that value slightly
    optimistic.

    Args:
        layers: Layer numbers as in transformers' hidden states, negative ones from the end; None: all.
        folds: Number of folds >= 2; rows of one subject share a fold, rows without subject are their own group. With
            fewer subjects than folds, each subject is held out once.
        seed: Seed of the assignment of subjects to folds.
        l2: Weight of the ridge penalty >= 0; larger values reduce overfitting.
    """
    for position in positions:
        lookup("position", position, dict.fromkeys(POSITIONS))
    if folds < 2:
        raise ValueError(f"folds must be at least 2, got {folds}: a probe is tested on rows it was not trained on.")
    annotated = labelled_rows(examples)
    # A probe that had seen other rows of a subject could recognise its names.
    splits = subject_folds([example.subject for example in annotated], folds=folds, seed=seed)
    encoded = Encoder(tokenizer, max_length=max_length, system=system).encode_rows(annotated, what="probe rows")
    for warning in encoded.warnings:
        logger.warning(warning)
    # The terminal token is never labelled and trivial to detect.
    rows = [dataclasses.replace(row, labels=row.text_labels) for row in encoded.rows]
    labels = [np.array(row.counted(row.token_labels)) for row in rows if row.token_labels is not None]
    if not any(0 < row.sum() < len(row) for row in labels):
        raise ValueError(
            f"none of the {len(rows)} answers has both labelled and unlabelled tokens; give forget_spans that mark "
            "only a part of the answer."
        )
    states = read_states(model, rows, layers=layers, batch_tokens=batch_tokens, progress=progress)
    results = []
    count = len(states.states) * len(set(positions))
    with progress_bar(total=count, desc="fit probes", unit="probe", shown=progress, leave=False) as bar:
        for layer in states.states:
            for position in dict.fromkeys(positions):
                features = [row.numpy() for row in states.features(layer, position)]
                held_out, train = cross_validate(features, labels, splits, l2=l2)
                results.append(ProbeResult(layer, position, held_out, train, len(rows), sum(map(len, labels))))
                bar.update()
    return results


def probe_record(
    results: Sequence[ProbeResult], *, model: str, network: nn.Module, rows: LoadedRows, settings: Mapping[str, Any]
) -> dict[str, Any]:
    plain = [dataclasses.asdict(result) for result in results]
    for record in plain:
        del record["auroc"]["values"]
    return {
        "schema": PROBE_SCHEMA,
        "model": model,
        "fingerprint": model_fingerprint(network),
        "data": {"source": rows.source, "fingerprint": rows.fingerprint, "rows": len(rows.rows)},
        "settings": dict(settings),
        "results": plain,
        "versions": versions(),
    }


def labelled_rows(examples: Sequence[Example]) -> list[Example]:
    rows = [example for example in examples if example.forget_spans is not None]
    if not rows:
        raise ValueError(
            f"none of the {len(examples)} rows has forget_spans, the labels of the probe; add the column with "
            "[start, end] character positions of the labelled parts of the answer."
        )
    return rows


def subject_folds(subjects: Sequence[str | None], *, folds: int, seed: int) -> list[Fold]:
    """Distribute rows over folds, at most one per subject, such that no subject is in two folds.

    None is a subject of its own.
    """
    # An index stands for a row without a subject, which no text can equal.
    names = [index if subject is None else subject for index, subject in enumerate(subjects)]
    groups = {name: number for number, name in enumerate(dict.fromkeys(names))}
    if len(groups) < 2:
        raise ValueError(
            f"all {len(subjects)} labelled rows are about one subject; a probe is tested on subjects it was not "
            "trained on, so add rows of another subject."
        )
    selection = require("sklearn.model_selection", extra="probe")
    splitter = selection.GroupKFold(min(folds, len(groups)), shuffle=True, random_state=seed)
    return list(splitter.split(names, groups=[groups[name] for name in names]))


def cross_validate(
    features: Sequence[FloatArray], labels: Sequence[NDArray[np.int_]], folds: Sequence[Fold], *, l2: float
) -> tuple[SampleAuroc, float | None]:
    """Return the held-out AUROC of every row, and the mean AUROC on training rows.

    Args:
        features: One array per row, shape (tokens, hidden).
        labels: One array per row, 0 or 1 per token, shape (tokens,).
    """
    lengths = [len(row) for row in labels]
    states, targets = np.concatenate(features), np.concatenate(labels)
    row_of_token = np.repeat(np.arange(len(lengths)), lengths)
    scores: list[FloatArray] = [np.empty(0)] * len(features)
    trained_on: list[float] = []
    for number, (train, held_out) in enumerate(folds, start=1):
        inside = np.isin(row_of_token, train)
        classes = np.unique(targets[inside])
        if len(classes) < 2:
            raise ValueError(
                f"outside fold {number} all {inside.sum()} tokens have label {classes[0]}; both classes must occur in "
                "several subjects: add rows, or use another seed or more folds."
            )
        fitted = fit_probe(states[inside], targets[inside], l2=l2)
        values = np.split(fitted.decision_function(states), np.cumsum(lengths)[:-1])
        for row in held_out:
            scores[row] = values[row]
        trained = per_sample_auroc([values[row] for row in train], [labels[row] for row in train])
        trained_on += [value for value in trained.values if value is not None]
    trained_auroc = None
    if trained_on:
        trained_auroc = sum(trained_on) / len(trained_on)
    return per_sample_auroc(scores, labels), trained_auroc


def fit_probe(features: FloatArray, labels: NDArray[np.int_], *, l2: float) -> Any:
    """Fit logistic regression: mean binary cross-entropy + l2/2 |w|^2, on features scaled to mean 0 and deviation 1.

    L-BFGS finds the optimum, so there is no learning rate and no seed; the published probe uses one epoch of SGD instead.

    Args:
        features: Shape (tokens, hidden).
        labels: 0 or 1, shape (tokens,).
        l2: Weight of the penalty >= 0; the bias is not penalized.

    Returns:
        A pipeline of scikit-learn; its `decision_function` is larger for tokens predicted as labelled.
    """
    strength = np.inf
    if l2:
        strength = 1 / (l2 * len(labels))  # scikit-learn sums the entropies, and weighs them instead of the penalty
    logistic = require("sklearn.linear_model", extra="probe").LogisticRegression(C=strength, tol=1e-6, max_iter=1000)
    scaler = require("sklearn.preprocessing", extra="probe").StandardScaler()
    return require("sklearn.pipeline", extra="probe").make_pipeline(scaler, logistic).fit(features, labels)


@dataclass(frozen=True, slots=True)
class TokenStates:
    """Hidden states of the answer tokens of some rows; states shared by tokens are stored once."""

    states: Mapping[int, Tensor]
    """Layer -> float32 on the CPU, shape (slots, hidden)."""
    own: tuple[Tensor, ...]
    """Per row, the slot of each answer token's own state, shape (tokens,)."""
    pred: tuple[Tensor, ...]
    """Per row, the slot of the state before each answer token, shape (tokens,)."""

    def features(self, layer: int, position: ProbePosition) -> list[Tensor]:
        """Return the probe's input per row, shape (tokens, hidden), or (tokens, 2 * hidden) for `both`."""
        states = self.states[layer]
        if position == "own":
            return [states[slots] for slots in self.own]
        if position == "pred":
            return [states[slots] for slots in self.pred]
        return [
            torch.cat([states[own], states[before]], dim=1) for own, before in zip(self.own, self.pred, strict=True)
        ]


@torch.no_grad()
def read_states(
    model: nn.Module,
    rows: Sequence[EncodedRow],
    *,
    layers: Sequence[int] | None = None,
    batch_tokens: int = 4096,
    progress: bool = False,
) -> TokenStates:
    """Run the model once and keep the states at and before the counted tokens.

    Args:
        layers: Layers to keep, negative ones from the end; None: all.
    """
    inner = unwrap(model)
    body = getattr(inner, "base_model", inner)  # without the output layer: no logits are needed
    kept: dict[int, list[Tensor]] = {}
    own: list[Tensor] = [torch.empty(0)] * len(rows)
    pred = list(own)
    slots = 0
    with (
        eval_mode(model),
        progress_bar(total=len(rows), desc="read states", unit="row", shown=progress, leave=False) as bar,
    ):
        for batch, tensors in token_batches(model, rows, batch_tokens):
            tokens = TokenBatch.of(tensors)
            arranged = lay_out([tokens], packed=False)
            hidden_states = body(
                input_ids=arranged.input_ids,
                attention_mask=arranged.attention_mask,
                position_ids=arranged.position_ids,
                output_hidden_states=True,
                # A cache of keys and values would be built and never read.
                use_cache=False,
            ).hidden_states
            if not kept:
                kept = {layer: [] for layer in layer_numbers(layers, len(hidden_states))}
            # The state after a token predicts the next one, so most states are needed twice, and kept once.
            needed, places = torch.unique(torch.cat([*arranged.own, *arranged.predicting]), return_inverse=True)
            for layer, parts in kept.items():
                parts.append(hidden_states[layer].flatten(0, 1)[needed].float().cpu())
            sizes = tokens.mask.sum(dim=1).tolist()
            at, before = (places.cpu() + slots).chunk(2)
            for index, row_own, row_pred in zip(batch, at.split(sizes), before.split(sizes), strict=True):
                own[index], pred[index] = row_own, row_pred
            slots += len(needed)
            bar.update(len(batch))
    return TokenStates({layer: torch.cat(kept.pop(layer)) for layer in list(kept)}, tuple(own), tuple(pred))


def layer_numbers(layers: Sequence[int] | None, count: int) -> list[int]:
    """Return distinct layer numbers from 0, in ascending order."""
    if layers is None:
        return list(range(count))
    wrong = [layer for layer in layers if not -count <= layer < count]
    if wrong or not layers:
        got = "none"
        if wrong:
            got = str(wrong[0])
        raise ValueError(f"layers must be from 0 (embeddings) to {count - 1} (final states) for this model, got {got}.")
    return sorted({layer % count for layer in layers})
