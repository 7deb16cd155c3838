"""Relearning attack: a few gradient steps on a few rows, and how much of the other forgotten rows comes back.

Unlearned models often give back far more than what they are shown (Lynch et al. 2024, "Eight Methods to Evaluate Robust
Unlearning in LLMs"; Hu et al. 2025, "Unlearning or Obfuscating? Jogging the Memory of Unlearned LLMs via Benign
Relearning"), so recovery is measured on rows that were not shown and do not overlap with those that were.
"""

from __future__ import annotations

import dataclasses
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from atwu.data.collate import collate_rows
from atwu.data.encode import EncodedRow
from atwu.data.schema import Example
from atwu.evaluation.attacks.secrets import says, secrets_of
from atwu.evaluation.attacks.weights import restored
from atwu.methods.losses.reduction import token_mean
from atwu.methods.losses.retain import nll
from atwu.modeling.forward import forward_tokens

FloatArray = NDArray[np.float64]

CLIP = 1.0
"""Largest gradient norm of a step."""


@contextmanager
def relearned(
    model: nn.Module,
    rows: Sequence[EncodedRow],
    *,
    steps: int,
    learning_rate: float,
    batch_size: int = 8,
    seed: int = 0,
) -> Iterator[None]:
    """Fine-tune every weight of the model on the answers of some rows; on leaving, the model is as it was.

    AdamW without weight decay, constant learning rate, gradient norm at most 1, no dropout. Half-precision weights get
    float32 copies for the optimiser, since small steps would vanish in their rounding. The model is left in eval mode
    inside. Equal arguments give equal weights.

    Args:
        model: causal language model, on its device.
        rows: what the attacker has: forget rows, or retain rows alone.
        steps: optimiser steps >= 0; more bring back more.
        learning_rate: > 0.
        batch_size: rows per step, at most all there are.
        seed: decides the order of the rows.

    Raises:
        ValueError: no rows, or a number out of range.
        FloatingPointError: loss or gradient is not finite; the model is restored.
    """
    if not rows:
        raise ValueError("nothing to relearn from: give at least one row.")
    if steps < 0 or learning_rate <= 0 or batch_size < 1:
        raise ValueError(
            "relearning needs steps >= 0, learning_rate > 0 and batch_size >= 1; "
            f"got {steps}, {learning_rate:g} and {batch_size}."
        )
    bare = [dataclasses.replace(row, token_labels=None) for row in rows]
    order = _order(len(bare), min(batch_size, len(bare)), seed)
    with restored(model):
        model.eval()
        with torch.enable_grad():
            _descend(model, ([bare[index] for index in next(order)] for _ in range(steps)), learning_rate)
        yield


def spread_rows(rows: Sequence[Example], count: int, seed: int) -> tuple[int, ...]:
    """Indices of at most `count` rows drawn at random, spread evenly over subjects, in ascending order."""
    rng = random.Random(f"attack_rows/{seed}")
    subjects: dict[object, list[int]] = defaultdict(list)
    for index in rng.sample(range(len(rows)), len(rows)):
        subject = rows[index].subject
        subjects[index if subject is None else subject].append(index)
    turns = [(turn, place, index) for place, group in enumerate(subjects.values()) for turn, index in enumerate(group)]
    return tuple(sorted(index for _, _, index in sorted(turns)[:count]))


def attack_rows(forget: Sequence[Example], count: int, seed: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Choose the forget rows that an attacker is shown, spread evenly over subjects.

    A row that overlaps with a shown one is in neither set, since it would be learned anew rather than come back: a
    repeated row, or one of the same subject with a secret that the shown row tells or asks about, or the reverse.

    Args:
        forget: the forget set.
        count: rows to show, from 1 on.
        seed: decides which.

    Returns:
        Indices of shown rows and of held-out rows, each in ascending order.

    Raises:
        ValueError: count is out of range or leaves no row held out.
    """
    if not 1 <= count < len(forget):
        raise ValueError(f"count must be from 1 to {len(forget) - 1} for {len(forget)} forget rows, got {count}.")
    shown = spread_rows(forget, count, seed)
    held_out = [
        index
        for index, row in enumerate(forget)
        if index not in shown and not any(_overlap(row, forget[other]) for other in shown)
    ]
    if not held_out:
        raise ValueError(f"{count} of {len(forget)} forget rows shown leave none to be held out; show fewer.")
    return shown, tuple(held_out)


@overload
def recovered(before: float, after: float, original: float) -> float: ...
@overload
def recovered(before: FloatArray, after: FloatArray, original: FloatArray) -> FloatArray: ...
def recovered(
    before: float | FloatArray, after: float | FloatArray, original: float | FloatArray
) -> float | FloatArray:
    """Share of the lost knowledge that an attack brings back: `(after - before) / (original - before)`.

    Args:
        before: a metric that is high for remembered rows, on the unlearned model; a number or an array.
        after: the same on the attacked model.
        original: the same on the starting model.

    Returns:
        0 for nothing, 1 for everything; below 0 or above 1 where the attack lowers or exceeds. NaN where nothing had
        been lost.
    """
    before, after, original = (np.asarray(value, dtype=np.float64) for value in (before, after, original))
    lost = original - before
    share = (after - before) / np.where(lost > 0, lost, np.nan)
    return share if share.ndim else float(share)


def _overlap(one: Example, other: Example) -> bool:
    if (one.question, one.answer) == (other.question, other.answer):
        return True
    if one.subject is None or one.subject != other.subject:
        return False
    return any(
        says(f"{second.question}\n{second.answer}", secret)
        for first, second in ((one, other), (other, one))
        for secret in secrets_of(first)
        if secret != first.subject
    )


def _order(count: int, size: int, seed: int) -> Iterator[list[int]]:
    """Batches of equal size from one shuffled round of all rows after the other."""
    generator = torch.Generator().manual_seed(seed)
    waiting: list[int] = []
    while True:
        while len(waiting) < size:
            waiting += torch.randperm(count, generator=generator).tolist()
        yield waiting[:size]
        waiting = waiting[size:]


def _descend(model: nn.Module, batches: Iterator[list[EncodedRow]], learning_rate: float) -> None:
    weights = [weight.requires_grad_() for weight in model.parameters() if weight.is_floating_point()]
    device = weights[0].device
    trained = [w if w.dtype.itemsize >= 4 else w.detach().float().requires_grad_() for w in weights]
    optimizer = torch.optim.AdamW(trained, lr=learning_rate, weight_decay=0.0)
    for step, rows in enumerate(batches, start=1):
        batch = {name: tensor.to(device) for name, tensor in collate_rows(rows).items()}
        (out,) = forward_tokens(model, [batch])
        loss = token_mean(nll(out.logps), out.mask)
        loss.backward()
        for weight, copy in zip(weights, trained, strict=True):
            if copy is not weight and weight.grad is not None:
                copy.grad, weight.grad = weight.grad.float(), None
        norm = nn.utils.clip_grad_norm_(trained, CLIP)
        if not torch.isfinite(loss.detach() + norm):
            raise FloatingPointError(
                f"relearning: loss or gradient is not finite at step {step} with learning rate {learning_rate:g}; "
                "lower it."
            )
        optimizer.step()
        optimizer.zero_grad()
        for weight, copy in zip(weights, trained, strict=True):
            if copy is not weight:
                weight.data.copy_(copy.data)
