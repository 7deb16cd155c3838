"""Supervised fine-tuning on answer tokens, for target, retain-only and auxiliary models; runs are in `unlearn_run.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers.trainer_callback import TrainerCallback

from atwu.data.encode import EncodedRow
from atwu.data.pairing import collate_rows
from atwu.methods.component_inputs import NormalizationCounts
from atwu.methods.losses.reduction import token_mean
from atwu.modeling.batches import TokenBatch
from atwu.modeling.forward import forward_tokens
from atwu.training.config import FinetuneConfig
from atwu.training.load_to_train import LoadedModel, with_lora
from atwu.training.row_sets import RowsInput, check_ids, check_lengths, encode_dataset, warn_about_rows, without_labels
from atwu.training.token_trainer import EVALUATE_INSTEAD, TokenTrainer


class _KeyedRows(Dataset[EncodedRow]):
    """Rows indexed by the sampler's keys `epoch * n + index`."""

    def __init__(self, rows: Sequence[EncodedRow]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: int) -> EncodedRow:
        return self.rows[key % len(self.rows)]


class FinetuneTrainer(TokenTrainer):
    """Trainer that minimizes the negative log-likelihood of the answers.

    The loss is already divided by the token count of the whole optimizer step. Logged: `loss`, in nats per answer
    token.

    Args:
        model: the causal language model to train, plain or from `load_to_train`.
        args: the configuration.
        train_dataset: rows of any kind that `encode_dataset` takes.
        processing_class: the model's tokenizer.
        peft_config: a `LoraConfig` to use instead of `lora_*` of `args`.
        callbacks: transformers callbacks.
        kwargs: other arguments of `TokenTrainer`; `say` receives status messages, one line each.
    """

    args: FinetuneConfig
    command = "finetune"

    def __init__(
        self,
        model: nn.Module | LoadedModel,
        args: FinetuneConfig,
        *,
        train_dataset: RowsInput,
        processing_class: Any = None,
        peft_config: Any = None,
        callbacks: list[TrainerCallback] | None = None,
        **kwargs: Any,
    ) -> None:
        if kwargs.get("eval_dataset") is not None:
            self.evaluate()
        args = args if peft_config is None else with_lora(args, peft_config)
        encoded = encode_dataset(
            train_dataset, processing_class, what="training", max_length=args.max_length, system=args.system
        )
        if encoded is not train_dataset:
            warn_about_rows(encoded)
        super().__init__(
            model,
            args,
            train_dataset=_KeyedRows(without_labels(encoded).rows),
            data_collator=collate_rows,
            processing_class=processing_class,
            callbacks=callbacks,
            **kwargs,
        )
        check_lengths(self.loaded.model, encoded.rows)
        if processing_class is None:
            check_ids(self.loaded.model, encoded.rows)
        self.sets = {"training": encoded}

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """Raise a TypeError that names `atwu.evaluate`."""
        raise TypeError(f"FinetuneTrainer does not evaluate: leave eval_dataset out, and {EVALUATE_INSTEAD}.")

    def _count(self, batches: Sequence[Any]) -> dict[str, float]:
        return {"retain_tokens": float(sum(TokenBatch.of(batch).mask.sum() for batch in batches))}

    def _token_loss(self, model: nn.Module, inputs: Any, batch_counts: NormalizationCounts) -> Tensor:
        layout: Any = self.args.layout
        (out,) = forward_tokens(model, [inputs], layout=layout)
        return token_mean(-out.logps, out.mask, count=batch_counts.retain_tokens)
