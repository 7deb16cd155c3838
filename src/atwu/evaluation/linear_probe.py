"""Supervised linear probe: how well one linear layer, shown the labels, finds the secret in a model's hidden states.

Takes rows with `forget_spans`; gives, per layer and kind of state, the AUROC on rows of subjects the probe was not trained
on. A learned scorer is the same linear layer trained without labels, so the probe says what it could reach (the ATWU paper,
appendix): held-out for a scorer on rows it never saw, train for one on its own rows.
"""

from __future__ import annotations

import dataclasses
import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from atwu._files import versions
from atwu._progress import bar_of
from atwu.data.encode import EncodedRow, Encoder
from atwu.data.schema import Example
from atwu.evaluation.auroc import SampleAuroc, per_sample_auroc
from atwu.evaluation.token_states import POSITIONS, ProbePosition, read_states
from atwu.modeling.fingerprint import model_fingerprint

if TYPE_CHECKING:
    from atwu.benchmarks.sources import LoadedRows

logger = logging.getLogger(__name__)

PROBE_SCHEMA = "atwu.probe/1"


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What a linear layer finds in one layer's states."""

    layer: int
    """0 for the embeddings, k for decoder layer k; the last one is taken after the final norm."""
    position: ProbePosition
    auroc: SampleAuroc
    """Per answer, by the probe that was not trained on its subject; one value per probed row, in order."""
    train_auroc: float | None
    """Mean over folds and the answers trained on; far above `auroc` when the probe learned its rows by heart.
    None if no answer outside a fold has both kinds of tokens."""
    rows: int
    """Rows with forget_spans."""
    tokens: int
    """Answer tokens of these rows, without terminal tokens."""


@dataclass(frozen=True, slots=True)
class LinearProbe:
    """`<w, (h - mean) / deviation> + b`; larger for tokens that look secret. Vectors have shape (hidden,)."""

    mean: Tensor
    deviation: Tensor
    weight: Tensor
    bias: Tensor
    """Scalar."""

    def __call__(self, features: Tensor) -> Tensor:
        """Scores (logits) of states, shape (tokens,)."""
        return (features - self.mean) / self.deviation @ self.weight + self.bias


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
    """Cross-validate a linear probe on every asked for layer and position.

    The model runs once over the rows. Choosing the best layer by its held-out AUROC makes that one number a little
    optimistic.

    Args:
        layers: layer numbers as in transformers' hidden states, negative ones from the end; None for all of them.
        folds: parts for cross-validation, at least 2; rows of one subject stay together, rows without subject stand alone. With
            fewer subjects than folds each subject is held out once.
        seed: decides which subjects share a fold.
        l2: weight of the ridge penalty, >= 0; larger keeps a probe from learning its rows by heart.

    Returns:
        One result per layer and position, in that order.

    Raises:
        ValueError: no row has forget_spans or both kinds of tokens, too few subjects or folds, or an unknown
            layer or position.
    """
    check_positions(positions)
    if folds < 2:
        raise ValueError(f"folds must be at least 2, got {folds}: a probe is tested on rows it was not trained on.")
    annotated = labelled_rows(examples)
    fold_of_row = subject_folds([example.subject for example in annotated], folds=folds, seed=seed)
    encoded = Encoder(tokenizer, max_length=max_length, system=system).encode_rows(annotated, what="probe rows")
    for warning in encoded.warnings:
        logger.warning(warning)
    # Not at the terminal token, which is no secret and easy to tell.
    rows = [dataclasses.replace(row, labels=row.text_labels) for row in encoded.rows]
    labels = [_labels(row) for row in rows]
    if not any(0 < int(row.sum()) < len(row) for row in labels):
        raise ValueError(
            f"none of the {len(rows)} answers has both secret and other tokens; "
            "give forget_spans that mark a part of the answer."
        )
    read = read_states(model, rows, layers=layers, batch_tokens=batch_tokens, progress=progress)
    device = next(model.parameters()).device
    results = []
    count = len(read.states) * len(set(positions))
    with bar_of(total=count, desc="fit probes", unit="probe", shown=progress, leave=False) as bar:
        for layer in read.states:
            for position in dict.fromkeys(positions):
                features = [row.to(device) for row in read.features(layer, position)]
                held_out, train = cross_validate(features, labels, fold_of_row, l2=l2)
                results.append(ProbeResult(layer, position, held_out, train, len(rows), sum(map(len, labels))))
                bar.update()
    return results


def probe_record(
    results: Sequence[ProbeResult], *, model: str, network: nn.Module, rows: LoadedRows, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """The results as JSON, without the values of single answers, and what they were made from."""
    plain = [dataclasses.asdict(result) for result in results]
    for each in plain:
        del each["auroc"]["values"]
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
    """The rows that can be probed.

    Raises:
        ValueError: there is none.
    """
    rows = [example for example in examples if example.forget_spans is not None]
    if not rows:
        raise ValueError(
            f"none of the {len(examples)} rows has forget_spans, the labels a probe learns from; add the column: "
            "[start, end] character positions of the answer that carry the secret."
        )
    return rows


def check_positions(positions: Sequence[str]) -> None:
    """Refuse unknown kinds of states, and none at all.

    Raises:
        ValueError: naming what is allowed.
    """
    unknown = [position for position in positions if position not in POSITIONS]
    if unknown or not positions:
        raise ValueError(f"position must be one of {', '.join(POSITIONS)}, got {unknown[0] if unknown else 'none'!r}.")


def subject_folds(subjects: Sequence[str | None], *, folds: int, seed: int) -> list[int]:
    """Deal subjects into folds.

    Args:
        subjects: one per row; None stands for a subject of its own.

    Returns:
        Fold of each row, from 0; no subject is in two folds, and the folds' numbers of subjects differ by at most 1.

    Raises:
        ValueError: fewer than 2 subjects.
    """
    names = [subject if subject is not None else index for index, subject in enumerate(subjects)]
    groups = list(dict.fromkeys(names))
    if len(groups) < 2:
        raise ValueError(
            f"all {len(subjects)} annotated rows are about one subject; a probe is tested on subjects it was not "
            "trained on, so add rows of at least one more."
        )
    random.Random(f"probe folds/{seed}").shuffle(groups)
    fold_of_group = {group: place % min(folds, len(groups)) for place, group in enumerate(groups)}
    return [fold_of_group[name] for name in names]


def cross_validate(
    features: Sequence[Tensor], labels: Sequence[Tensor], fold_of_row: Sequence[int], *, l2: float
) -> tuple[SampleAuroc, float | None]:
    """AUROC of every row by the probe that did not see its fold, and the mean AUROC on rows trained on.

    Args:
        features: for each row, shape (tokens, hidden).
        labels: for each row, 0 or 1 per token, shape (tokens,).

    Raises:
        ValueError: the rows outside some fold have tokens of one kind only.
    """
    scores: list[Tensor] = [torch.empty(0)] * len(features)
    trained_on: list[float] = []
    for fold in range(max(fold_of_row) + 1):
        train = [index for index, its_fold in enumerate(fold_of_row) if its_fold != fold]
        targets = torch.cat([labels[index] for index in train])
        if not 0 < int(targets.sum()) < len(targets):
            raise ValueError(
                f"outside fold {fold + 1} all {len(targets)} tokens have the label {int(targets.sum() > 0)}; secret and "
                "other tokens must come from several subjects: add rows, or use another seed or more folds."
            )
        fitted = fit_probe(torch.cat([features[index] for index in train]), targets, l2=l2)
        fitted_scores = [fitted(features[index]).cpu() for index in train]
        seen = per_sample_auroc(fitted_scores, [labels[index] for index in train])
        trained_on += [value for value in seen.values if value is not None]
        for index in set(range(len(features))) - set(train):
            scores[index] = fitted(features[index]).cpu()
    return per_sample_auroc(scores, labels), sum(trained_on) / len(trained_on) if trained_on else None


def fit_probe(features: Tensor, labels: Tensor, *, l2: float) -> LinearProbe:
    """Logistic regression: mean binary cross-entropy + l2/2 |w|^2, on features scaled to mean 0 and deviation 1.

    Solved by full-batch L-BFGS from zero, so the result is the optimum and needs neither a learning rate nor a seed; the
    published probe takes one epoch of SGD instead.

    Args:
        features: shape (tokens, hidden).
        labels: 0 or 1, shape (tokens,).
        l2: weight of the penalty, >= 0; the bias is free.
    """
    mean, deviation = features.mean(dim=0), features.std(dim=0, correction=0)
    deviation = torch.where(deviation > 0, deviation, 1.0)
    scaled = (features - mean) / deviation
    targets = labels.to(features)
    weight = torch.zeros(features.shape[1], dtype=features.dtype, device=features.device, requires_grad=True)
    bias = torch.zeros((), dtype=features.dtype, device=features.device, requires_grad=True)
    solver = torch.optim.LBFGS(
        [weight, bias],
        max_iter=500,
        tolerance_grad=1e-7,
        tolerance_change=1e-12,
        history_size=20,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        solver.zero_grad()
        value = F.binary_cross_entropy_with_logits(scaled @ weight + bias, targets) + l2 / 2 * weight.square().sum()
        value.backward()
        return value

    solver.step(loss)
    return LinearProbe(mean, deviation, weight.detach(), bias.detach())


def _labels(row: EncodedRow) -> Tensor:
    """Token labels of the counted tokens, shape (tokens,)."""
    assert row.token_labels is not None
    return torch.tensor(row.counted(row.token_labels), dtype=torch.long)
