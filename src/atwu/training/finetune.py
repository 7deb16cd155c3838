"""`FinetuneTrainer`: supervised training on answer tokens, for target models and retain-only models."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers.trainer_callback import TrainerCallback

from atwu.data.collate import collate_rows
from atwu.data.encode import EncodedRow
from atwu.methods.losses.reduction import token_mean
from atwu.methods.losses.retain import nll
from atwu.methods.seen import Denominators
from atwu.modeling.batches import TokenBatch
from atwu.modeling.forward import forward_tokens
from atwu.training.base import TokenTrainer
from atwu.training.config import FinetuneConfig
from atwu.training.model import with_adapters
from atwu.training.rows import Rows, encode_dataset, without_labels


class _KeyedRows(Dataset[EncodedRow]):
    """Rows addressed by the sampler's keys `epoch * n + index`."""

    def __init__(self, rows: Sequence[EncodedRow]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: int) -> EncodedRow:
        return self.rows[key % len(self.rows)]


class FinetuneTrainer(TokenTrainer):
    """Minimise the negative log-likelihood of the answers.

    The loss is already divided by the token count of the whole optimizer step. Logged: `loss`, in nats per answer token.

    Args:
        model: the causal language model to train.
        args: the run's configuration.
        train_dataset: rows of any kind that `encode_dataset` takes.
        processing_class: the model's tokenizer.
        callbacks: transformers callbacks.
    """

    args: FinetuneConfig

    def __init__(
        self,
        model: nn.Module,
        args: FinetuneConfig,
        *,
        train_dataset: Rows,
        processing_class: Any = None,
        callbacks: list[TrainerCallback] | None = None,
        **kwargs: Any,
    ) -> None:
        encoded = encode_dataset(
            train_dataset, processing_class, what="training", max_length=args.max_length, system=args.system
        )
        rows = without_labels(encoded.rows)
        pad_id = getattr(processing_class, "pad_token_id", None) or 0
        super().__init__(
            with_adapters(model, args),
            args,
            train_dataset=_KeyedRows(rows),
            data_collator=functools.partial(collate_rows, pad_id=pad_id),
            processing_class=processing_class,
            callbacks=callbacks,
            **kwargs,
        )

    def _count(self, batches: Sequence[Any]) -> dict[str, float]:
        return {"retain_tokens": float(sum(TokenBatch.of(batch).mask.sum() for batch in batches))}

    def _token_loss(self, model: nn.Module, inputs: Any, denominators: Denominators) -> Tensor:
        (out,) = forward_tokens(model, [inputs], layout=self.args.layout)  # type: ignore[arg-type]
        return token_mean(nll(out.logps), out.mask, count=denominators.retain_tokens)
