"""Relearning attack: fine-tune on a few rows for a few steps, and measure recovery on other forget rows.

Unlearned models often recover far more than what they are fine-tuned on (Lynch et al. 2024, "Eight Methods to Evaluate
Robust Unlearning in LLMs"; Hu et al. 2025, "Unlearning or Obfuscating? Jogging the Memory of Unlearned LLMs via Benign
Relearning"), so recovery is measured on rows that do not overlap with the fine-tuning rows.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, ClassVar

from atwu.data.schema import Example
from atwu.evaluation.columns import FORGET
from atwu.evaluation.metric import MetricSetting
from atwu.evaluation.metrics.memorization import row_extraction_strength
from atwu.evaluation.metrics.weight_attacks import WeightAttack, attack_columns
from atwu.evaluation.questions import labelled_parts, says

if TYPE_CHECKING:
    from torch import nn

    from atwu.data.encode import EncodedRow
    from atwu.evaluation.session import Session

CLIP = 1.0
"""Maximum gradient norm."""
MIN_RELEARNED_STRENGTH = 0.9
"""Extraction strength on its own training rows below which a relearning attack counts as too weak."""


@contextmanager
def relearned(
    model: nn.Module,
    rows: Sequence[EncodedRow],
    *,
    steps: int,
    learning_rate: float,
    batch_size: int = 8,
    seed: int = 0,
    lora_r: int | None = None,
) -> Iterator[None]:
    """Fine-tune the model on the answers of some rows; restore it on leaving.

    AdamW without weight decay, constant learning rate, gradient norm at most 1, no dropout. Half-precision weights get
    float32 copies for the optimizer, since small steps would be lost in rounding. Inside, the model is in eval mode.
    Deterministic.

    Args:
        steps: Optimizer steps >= 0; more steps recover more.
        learning_rate: Learning rate > 0.
        batch_size: Rows per step, at most all rows.
        lora_r: Rank of LoRA adapters to train instead of all weights, which needs far less memory.

    Raises:
        ValueError: `lora_r` on a model that has adapters.
        FloatingPointError: Loss or gradient is not finite; the model is restored.
    """
    import torch
    from torch.utils.data import BatchSampler, RandomSampler

    from atwu.modeling.layers import restored

    bare = [dataclasses.replace(row, token_labels=None) for row in rows]
    size, generator = min(batch_size, len(bare)), torch.Generator().manual_seed(seed)
    drawn = RandomSampler(bare, num_samples=size * max(1, steps), generator=generator)  # permutation after permutation
    order = itertools.islice(BatchSampler(drawn, size, drop_last=True), steps)
    with restored(model) if lora_r is None else _adapted(model, lora_r, seed):
        model.eval()
        trained = [weight for weight in model.parameters() if weight.is_floating_point()]
        if lora_r is not None:
            trained = [weight for weight in trained if weight.requires_grad]
        with torch.enable_grad():
            _descend(model, trained, ([bare[index] for index in batch] for batch in order), learning_rate)
        yield


@contextmanager
def _adapted(model: nn.Module, rank: int, seed: int) -> Iterator[None]:
    """Attach new LoRA adapters and remove them on leaving; the model's own weights do not change."""
    from atwu.modeling.adapters import Lora, attach
    from atwu.modeling.layers import restored_modes

    trainable = [(weight, weight.requires_grad) for weight in model.parameters()]
    with restored_modes(model):
        adapted = attach(model, Lora(rank), seed=seed)
        try:
            yield
        finally:
            adapted.unload()
            for weight, before in trainable:
                weight.requires_grad_(before)


def check_memory(model: nn.Module) -> None:
    """Check that full fine-tuning fits into memory, counting only gradients and optimizer state."""
    from rich.filesize import decimal

    from atwu.modeling.device import free_memory

    weights = [weight for weight in model.parameters() if weight.is_floating_point()]
    device = weights[0].device
    # A gradient, two moments, and for half precision a float32 copy with a gradient of its own.
    needed = sum(
        weight.nbytes + (2 + 2 * (weight.itemsize < 4)) * weight.numel() * max(4, weight.itemsize) for weight in weights
    )
    needed += sum(weight.nbytes for weight in weights) * (device.type == "cpu")  # the copy to restore from
    if needed > (free := free_memory(device)):
        raise ValueError(
            f"the relearning attack trains all weights, which needs at least {decimal(int(needed))} on {device}, but "
            f"only {decimal(int(free))} are free; train adapters with --relearn-lora-r 16 (relearn_lora_r=16)."
        )


def spread_rows(rows: Sequence[Example], count: int, seed: int) -> tuple[int, ...]:
    """Return indices of at most `count` random rows, spread evenly over subjects, in ascending order."""
    rng = random.Random(f"attack_rows/{seed}")
    subjects: dict[object, list[int]] = defaultdict(list)
    for index in rng.sample(range(len(rows)), len(rows)):
        subject = rows[index].subject
        subjects[index if subject is None else subject].append(index)
    turns = [(turn, place, index) for place, group in enumerate(subjects.values()) for turn, index in enumerate(group)]
    return tuple(sorted(index for _, _, index in sorted(turns)[:count]))


def attack_rows(forget: Sequence[Example], count: int, seed: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Choose the forget rows that the attack trains on, spread evenly over subjects, and the rows it is measured on.

    A row that overlaps with a training row is in neither set, since it would be learned anew: a duplicate, or a row of
    the same subject with a key token that occurs in the training row, or the reverse.

    Returns:
        Indices of training rows and of held-out rows, each in ascending order.
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
        raise ValueError(f"training on {count} of {len(forget)} forget rows leaves none held out; use fewer.")
    return shown, tuple(held_out)


class Relearning(WeightAttack):
    name = "relearning"
    about = "Relearning attack: forget rows after a few fine-tuning steps on forget rows or on retain rows"
    cost = "two short fine-tuning runs, and one answer and judge call per question of a forget row after each"
    settings = (
        MetricSetting(
            "relearn_rows",
            int,
            8,
            "Training rows of the relearning attacks: forget rows in one attack, retain rows in the other.",
            least=1,
        ),
        MetricSetting("relearn_steps", int, 30, "Training steps of the relearning attacks.", least=1),
        MetricSetting(
            "relearn_learning_rate",
            float,
            2e-5,
            "Learning rate of the relearning attacks (AdamW). A small model trained from scratch needs about 3e-4; too "
            "low a rate makes the attack meaningless.",
            above=0,
        ),
        MetricSetting(
            "relearn_lora_r",
            int,
            None,
            "LoRA rank of the relearning attacks, instead of training all weights; saves memory and needs a higher "
            "learning rate.",
            least=1,
        ),
    )
    uses = ("max_new_tokens", "paraphrases", "seed")
    needs_reference = ("original", "the recovery after relearning")
    words: ClassVar = {"relearn_forget": "relearning on forget rows", "relearn_retain": "relearning on retain rows"}
    columns = attack_columns(words)

    def __init__(self, session: Session) -> None:
        """Choose the training rows; at most half of the forget set."""
        from atwu.modeling.adapters import adapters_of

        super().__init__(session)
        if session.config.relearn_lora_r is None:
            check_memory(session.model)
        elif adapters_of(session.model) is not None:
            raise ValueError(
                f"relearn_lora_r={session.config.relearn_lora_r} trains adapters, but the model has unmerged ones; "
                "leave --relearn-lora-r out to train all weights, or merge the adapters first."
            )
        forget, count, seed = session.sets[FORGET], session.config.relearn_rows, session.config.seed
        self._trained_on: tuple[int, ...] = ()
        self._held_out: tuple[int, ...] = ()
        try:
            self._trained_on, self._held_out = attack_rows(forget, min(count, len(forget) // 2), seed=seed)
        except ValueError as error:
            session.warnings.append(f"no relearning attack on forget rows: {error}")
        self._retain = spread_rows(session.pool, count, seed=seed)

    def prepare(self) -> None:
        """Run every attack; warn about an attack that did not learn its own training rows."""
        super().prepare()
        weak = [strength for strength in self._learned if strength < MIN_RELEARNED_STRENGTH]
        if weak:
            self.session.warnings.append(
                f"relearning attack too weak: the extraction strength of its training rows is only {min(weak):.2f}, so "
                "its recovery is no upper bound; raise --relearn-learning-rate or --relearn-steps."
            )

    def attacks(self) -> Mapping[str, tuple[AbstractContextManager[None], Sequence[int]]]:
        session, config = self.session, self.session.config
        train = partial(
            relearned,
            session.model,
            steps=config.relearn_steps,
            learning_rate=config.relearn_learning_rate,
            seed=config.seed,
            lora_r=config.relearn_lora_r,
        )
        self._learned: list[float] = []
        found: dict[str, tuple[AbstractContextManager[None], Sequence[int]]] = {}
        if self._trained_on:
            forget = [session.encoded(FORGET)[index] for index in self._trained_on]
            found["relearn_forget"] = (self._checked(train(forget), forget), self._held_out)
        if self._retain:
            pool = session.encoded_pool()
            retain = [pool[index] for index in self._retain]
            found["relearn_retain"] = (train(retain), range(len(session.sets[FORGET])))
        return found

    @contextmanager
    def _checked(self, training: AbstractContextManager[None], rows: Sequence[EncodedRow]) -> Iterator[None]:
        """Train, then record the extraction strength of the training rows."""
        with training:
            read = self.session.read(rows, label="read relearned rows")
            self._learned.append(fmean(row_extraction_strength(row) or 0.0 for row in read))
            yield


def _overlap(one: Example, other: Example) -> bool:
    if (one.question, one.answer) == (other.question, other.answer):
        return True
    if one.subject is None or one.subject != other.subject:
        return False
    return any(
        says(f"{second.question}\n{second.answer}", secret)
        for first, second in ((one, other), (other, one))
        for secret in labelled_parts(first)
        if secret != first.subject
    )


def _descend(
    model: nn.Module, weights: Sequence[nn.Parameter], batches: Iterator[list[EncodedRow]], learning_rate: float
) -> None:
    import torch
    from torch import nn

    from atwu.data.pairing import collate_rows
    from atwu.methods.losses.reduction import token_mean
    from atwu.modeling.forward import forward_tokens

    for weight in weights:
        weight.requires_grad_()
    device = weights[0].device
    trained = [w if w.dtype.itemsize >= 4 else w.detach().float().requires_grad_() for w in weights]
    optimizer = torch.optim.AdamW(trained, lr=learning_rate, weight_decay=0.0)
    for step, rows in enumerate(batches, start=1):
        batch = {name: tensor.to(device) for name, tensor in collate_rows(rows).items()}
        (out,) = forward_tokens(model, [batch])
        loss = token_mean(-out.logps, out.mask)
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
