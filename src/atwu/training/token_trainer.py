"""Base trainer of this package, with its rows and its loss, and the trainer of supervised fine-tuning.

Rows are drawn by (seed, epoch, index). Losses are sums over tokens divided by the count of the whole optimizer step, so
they need no scaling for gradient accumulation or data parallelism. A non-finite loss stops the run.
"""

from __future__ import annotations

import datetime
import itertools
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PrinterCallback
from transformers.trainer import DEFAULT_PROGRESS_CALLBACK
from transformers.trainer_callback import TrainerCallback

from atwu._cache import cache_folder, short_hash, writable_folder
from atwu._command import deferred, write_line
from atwu._files import file_lock
from atwu.data.pairing import EpochSampler, PairedDataset, collate_pairs
from atwu.methods.component_inputs import NormalizationCounts, token_mean
from atwu.modeling.batches import TokenBatch
from atwu.modeling.device import emulates_bfloat16, keep_freed_memory
from atwu.modeling.forward import forward_tokens
from atwu.training.checkpoints import checkpoint_to_resume, step_of
from atwu.training.config import FinetuneConfig, TokenTrainingConfig
from atwu.training.load_to_train import LoadedModel
from atwu.training.progress import Interrupted, ProgressLine
from atwu.training.row_sets import RowsInput, check_lengths, encode_dataset, warn_about_rows, without_labels
from atwu.training.saving_trainer import SavingTrainer, Timing

EVALUATE_INSTEAD = "use atwu.evaluate(trainer.model, trainer.processing_class, forget=rows)"
"""Advice where transformers' evaluation does not apply."""
STOPPING = "stopping after this step and its evaluation, with a checkpoint; a second signal ends the command at once"
"""Printed when a signal arrives, since both can take minutes."""


class TokenTrainer(SavingTrainer):
    """Base of the trainers; subclasses define how rows are counted and what the loss is.

    `train` runs transformers' loop, which calls in this order: `get_train_dataloader`; for every optimizer step
    `get_batch_samples`, which draws its micro-batches and counts the divisors of their losses, `compute_loss` for each
    micro-batch, the optimizer, and `log`; and `_save_checkpoint` as configured.
    """

    # Losses are already divided by the counts of the whole optimizer step.
    loss_is_scaled_for_ga = True

    def __init__(self, model: nn.Module | LoadedModel, args: TokenTrainingConfig, **kwargs: Any) -> None:
        self.expected_steps: int | None = None
        """Estimated number of steps, where a callback may end training early; None: all."""
        super().__init__(model, args, **kwargs)
        # So that `compute_loss` gets the counts of the step; the Trainer looks at the model's arguments otherwise.
        self.model_accepts_loss_kwargs = True
        self._logged: dict[str, Tensor] = defaultdict(lambda: torch.zeros((), device=args.device))
        self._logged_steps: dict[str, set[int]] = defaultdict(set)
        for built_in in (DEFAULT_PROGRESS_CALLBACK, PrinterCallback):  # in notebooks transformers shows a table instead
            self.remove_callback(built_in)
        self._interrupted = Interrupted(self.sum_over_processes, self.accelerator.wait_for_everyone)
        pairs = cast(PairedDataset, self.train_dataset)
        rows = len(pairs) - pairs.waiting
        self.sampler = EpochSampler(
            len(pairs),
            waiting=pairs.waiting,
            seed=args.seed,
            taken=args.rows_per_epoch(rows),
            epochs=args.planned_epochs(rows),
            per_step=args.rows_per_step,
            pairs=pairs,
        )
        self.stateful.append(self.sampler)
        for callback in (self._interrupted, _Epochs(self.sampler), ProgressLine(self)):
            self.add_callback(callback)

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """Precompute tables, then train with transformers' `Trainer`.

        An interrupted command ends after the current step, with a checkpoint if checkpoints are enabled.

        Args:
            resume_from_checkpoint: a checkpoint; or True for the last intact one in `output_dir`, or from the start
                if all are damaged.

        Raises:
            ValueError: the checkpoint is damaged or missing, the last one belongs to another run, or no weight is
                trained.
            FileExistsError: another trainer writes its checkpoints into the same folder.
        """
        if not any(parameter.requires_grad for parameter in cast(nn.Module, self.model).parameters()):
            raise ValueError(
                "all weights of the model are frozen (requires_grad is False), so nothing would be trained; unfreeze some, "
                "as model.requires_grad_(True) does, or add adapters with lora_r."
            )
        if self.args.save_strategy == "no" or not self.is_world_process_zero():
            return self._train(resume_from_checkpoint, *args, **kwargs)
        # Another trainer in the same folder would remove its checkpoints. The lock is in the cache, since whatever is in the
        # folder becomes part of a result.
        folder = os.path.realpath(str(self.args.output_dir))
        lock = writable_folder(cache_folder() / "locks") / f"{short_hash(folder)}.lock"
        taken = f"another trainer writes its checkpoints into {folder}; wait for it, or set another output_dir."
        with file_lock(lock, taken=FileExistsError(taken)):
            return self._train(resume_from_checkpoint, *args, **kwargs)

    def _train(self, resume_from_checkpoint: str | bool | None, *args: Any, **kwargs: Any) -> Any:
        clock = time.perf_counter()
        self.timing = Timing(datetime.datetime.now(datetime.UTC))
        checkpoint = checkpoint_to_resume(
            resume_from_checkpoint,
            run=str(self.args.output_dir),
            key=lambda: self.key,
            main_process=self.args.should_save,
            wait=self.accelerator.wait_for_everyone,
        )
        if checkpoint is not None:
            self.timing.resumed_from = step_of(checkpoint)
            self.say(f"resuming the unfinished run at step {self.timing.resumed_from}")
        if self.args.bf16 and emulates_bfloat16(self.args.device):
            self.say("warning: this processor has no bfloat16 instructions; steps are much faster without bf16")
        keep_freed_memory(self.args.device)
        try:
            self._prepare_run()
            if self.args.save_strategy == "no":
                return super().train(checkpoint, *args, **kwargs)
            with deferred(lambda: write_line(STOPPING)) as self._interrupted.held:
                return super().train(checkpoint, *args, **kwargs)
        finally:
            self.timing.seconds = time.perf_counter() - clock

    def _prepare_run(self) -> None:
        """Hook called before the first step."""

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Create the schedule; warns if the learning rate is still rising at the end."""
        warmup = self.args.get_warmup_steps(num_training_steps)
        if 0 < num_training_steps <= warmup:
            self.say(
                f"warning: {warmup} of {num_training_steps} steps are warmup, so the learning rate stays below "
                f"{self.args.learning_rate:g}; lower warmup_steps"
            )
        return super().create_scheduler(num_training_steps, optimizer)

    # Data

    def get_train_dataloader(self) -> Any:
        """The sampler alone decides which rows an epoch drops; the Trainer's loader would drop more."""
        asked, self.args.dataloader_drop_last = self.args.dataloader_drop_last, False
        try:
            return self._get_dataloader(
                dataset=cast(Any, self.train_dataset),
                description="Training",
                batch_size=self._train_batch_size,
                sampler_fn=lambda _: self.sampler,
                is_training=True,
            )
        finally:
            self.args.dataloader_drop_last = asked

    def _count(self, batches: Sequence[Any]) -> dict[str, float]:
        """Count one process's micro-batches, by field of `NormalizationCounts`."""
        raise NotImplementedError

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> tuple[list[Any], Any]:
        """Draw the micro-batches of one optimizer step and count the divisors of their losses."""
        batches = list(itertools.islice(epoch_iterator, num_batches))
        counts = self._count(batches)
        if self.args.world_size > 1 and counts:
            summed = self.sum_over_processes(torch.tensor(list(counts.values()), dtype=torch.float64, device=device))
            counts = dict(zip(counts, summed.tolist(), strict=True))
        # Without labelled rows no agreement is logged; all other counts are at least 1.
        least = {"labelled_rows": 0.0}
        return batches, NormalizationCounts(
            **{name: max(count, least.get(name, 1.0)) for name, count in counts.items()}
        )

    # Loss

    def _token_loss(self, model: nn.Module, inputs: Any, batch_counts: NormalizationCounts) -> Tensor:
        """Compute the loss of one micro-batch: its share of the loss of the optimizer step."""
        raise NotImplementedError

    def compute_loss(
        self, model: nn.Module, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Compute the loss of one micro-batch; stops the run if it is not finite.

        `num_items_in_batch` is the count from `get_batch_samples`.
        """
        loss = self._token_loss(model, inputs, num_items_in_batch or NormalizationCounts())
        if not torch.isfinite(loss.detach()):
            rows = inputs["rows"].tolist()
            raise self.not_finite(f"loss is not finite at step {self.state.global_step + 1} (rows {rows})")
        # Data parallelism averages gradients over processes, but the counts include all of them.
        loss = loss * self.args.world_size
        if return_outputs:
            return (loss, None)
        return loss

    def add_logged(self, name: str, value: Tensor) -> None:
        """Add this micro-batch's contribution to a value that is logged per optimizer step."""
        self._logged[name] += value.detach().float()
        self._logged_steps[name].add(self.state.global_step)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the terms of the loss, each averaged over the optimizer steps since the last log that include it."""
        if "loss" in logs:
            logs |= {
                name: float(self.sum_over_processes(value)) / len(self._logged_steps[name])
                for name, value in sorted(self._logged.items())
            }
            self._logged.clear()
            self._logged_steps.clear()
        super().log(logs, start_time)

    def floating_point_ops(self, inputs: Any) -> int:
        """Six operations per parameter and non-padding token."""
        # The Trainer looks for `input_ids` in the inputs themselves, which here are several batches by name.
        batches = [batch for batch in inputs.values() if isinstance(batch, dict)]  # beside tensors of indices
        model: Any = self.model
        # Two forward and four backward, as Kaplan et al. 2020 count them.
        return 6 * int(model.num_parameters()) * sum(int(batch["attention_mask"].sum()) for batch in batches)


class _Epochs(TrainerCallback):
    """Sets the sampler's epoch; accelerate's wrappers do not when several processes resume within an epoch."""

    def __init__(self, sampler: EpochSampler) -> None:
        self._sampler = sampler

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._sampler.set_epoch(int(state.epoch + 1e-6))  # within an epoch, a checkpoint's epoch is fractional


# Fine-tuning


class FinetuneTrainer(TokenTrainer):
    """Trainer that minimizes the negative log-likelihood of the answers.

    The loss is already divided by the token count of the whole optimizer step. Logged: `loss`, in nats per answer
    token.

    Args:
        model: the causal language model to train, plain or from `load_to_train`.
        args: the configuration.
        train_dataset: rows of any kind that `encode_dataset` takes.
        processing_class: the model's tokenizer.
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
        processing_class: Any,
        callbacks: list[TrainerCallback] | None = None,
        **kwargs: Any,
    ) -> None:
        if kwargs.get("eval_dataset") is not None:
            self.evaluate()
        encoded = encode_dataset(
            train_dataset, processing_class, what="training", max_length=args.max_length, system=args.system
        )
        if encoded is not train_dataset:
            warn_about_rows(encoded)
        super().__init__(
            model,
            args,
            # Pairs without retain rows, so that the sampler and the counting of rows are those of unlearning.
            train_dataset=PairedDataset(without_labels(encoded).rows, None, args.seed),
            data_collator=collate_pairs,
            processing_class=processing_class,
            callbacks=callbacks,
            **kwargs,
        )
        check_lengths(self.loaded.model, encoded.rows)
        self.sets = {"training": encoded}

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """Raise a TypeError that names `atwu.evaluate`."""
        raise TypeError(f"FinetuneTrainer does not evaluate: leave eval_dataset out, and {EVALUATE_INSTEAD}.")

    def _count(self, batches: Sequence[Any]) -> dict[str, float]:
        # The rows of the pairs are named forget rows, but trained on like retain rows: the mean is over their tokens.
        return {"retain_tokens": float(sum(TokenBatch.of(batch["forget"]).mask.sum() for batch in batches))}

    def _token_loss(self, model: nn.Module, inputs: Any, batch_counts: NormalizationCounts) -> Tensor:
        (out,) = forward_tokens(model, [inputs["forget"]])
        return token_mean(-out.logps, out.mask, count=batch_counts.retain_tokens)
