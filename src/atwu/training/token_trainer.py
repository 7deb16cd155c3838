"""Base trainer of this package, on top of transformers' `Trainer`.

Rows are drawn by (seed, epoch, index). Losses are sums over tokens divided by the count of the whole optimizer step, so
they need no scaling for gradient accumulation or data parallelism. Checkpoints are written atomically, and a non-finite
loss stops the run.
"""

from __future__ import annotations

import datetime
import functools
import shutil
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from transformers import PrinterCallback, Trainer
from transformers.trainer import DEFAULT_PROGRESS_CALLBACK
from transformers.trainer_callback import TrainerCallback

from atwu._disk_errors import explain_full_disk
from atwu._interrupts import deferred
from atwu._manifest import write_manifest
from atwu.data.pairing import EpochSampler
from atwu.errors import DiskFullError, NonFiniteLossError
from atwu.methods.component_inputs import NormalizationCounts
from atwu.modeling.adapters import adapters_of, quiet_peft
from atwu.modeling.device import emulates_bfloat16
from atwu.modeling.generate import set_end_ids
from atwu.training.checkpoints import STAGING, Stateful, checkpoint_to_resume, last_checkpoint, publish, step_of
from atwu.training.config import TokenTrainingConfig
from atwu.training.load_to_train import LoadedModel, load_as_is
from atwu.training.progress import Interrupted, ProgressLine, Say, logged
from atwu.training.run_key import run_key
from atwu.training.run_record import Timing, push, write_result
from atwu.training.sharding import gathered, repeats, shard_model
from atwu.training.training_rows import RowSet

EVALUATE_INSTEAD = "use atwu.evaluate(trainer.model, trainer.processing_class, forget=rows)"
"""Advice where transformers' evaluation does not apply."""


class TokenTrainer(Trainer):
    """Base of the trainers; subclasses define how rows are counted and what the loss is.

    `train` runs transformers' loop, which calls in this order: `get_train_dataloader`; for every optimizer step
    `get_batch_samples`, which draws its micro-batches and counts the divisors of their losses, `compute_loss` for each
    micro-batch, the optimizer, and `log`; and `_save_checkpoint` as configured.
    """

    args: TokenTrainingConfig
    # Losses are already divided by the counts of the whole optimizer step.
    loss_is_scaled_for_ga = True
    command: ClassVar[str]
    """Command of the same run: `unlearn` or `finetune`."""
    remedy = "Lower the learning rate."
    """Advice when numbers are not finite."""

    def __init__(
        self,
        model: nn.Module | LoadedModel,
        args: TokenTrainingConfig,
        *,
        callbacks: list[TrainerCallback] | None = None,
        say: Say = logged,
        **kwargs: Any,
    ) -> None:
        self.say = say
        self.loaded = model if isinstance(model, LoadedModel) else load_as_is(model, args)
        self.sets: Mapping[str, RowSet] = {}
        """Training sets by name."""
        self.timing = Timing()
        self.expected_steps: int | None = None
        """Estimated number of steps, where a callback may end training early; None: all."""
        self.eval_every: int | None = None
        """Optimizer steps between two evaluation steps of a callback; None without evaluation."""
        self.paused_seconds = self.expected_pause = 0.0
        """Seconds a callback has spent on checks that not every evaluation step has, and the estimate of those to come."""
        super().__init__(model=self.loaded.model, args=args, callbacks=callbacks, **kwargs)
        merges = adapters_of(self.loaded.model) is not None and not args.save_adapter
        if self.sharded and merges and self.loaded.source is None:
            raise ValueError(
                "adapters of a sharded model are merged into a newly loaded model; pass the model by name instead of "
                "as an object, or set save_adapter=True."
            )
        self.model_accepts_loss_kwargs = True
        self._parts: dict[str, Tensor] = defaultdict(lambda: torch.zeros((), device=args.device))
        self._part_steps: dict[str, set[int]] = defaultdict(set)
        self._saving_to: str | None = None
        self.stateful: list[Stateful] = []
        """Further state in checkpoints."""
        for built_in in (DEFAULT_PROGRESS_CALLBACK, PrinterCallback):  # in notebooks transformers shows a table instead
            self.remove_callback(built_in)
        self._interrupted = Interrupted(self.sum_over_processes, self.accelerator.wait_for_everyone)
        self.add_callback(self._interrupted)
        self._epochs = _Epochs()
        self.add_callback(self._epochs)
        self.add_callback(
            ProgressLine(
                lambda: self.expected_steps,
                lambda: self.eval_every,
                lambda: (self.paused_seconds, self.expected_pause),
                shown=not args.disable_tqdm,
            )
        )

    @property
    def sharded(self) -> bool:
        """Whether the weights are sharded during training."""
        return bool(self.is_fsdp_enabled)

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """Precompute tables, then train with transformers' `Trainer`.

        An interrupted command ends after the current step, with a checkpoint if checkpoints are enabled.

        Args:
            resume_from_checkpoint: a checkpoint; or True for the newest intact one in `output_dir`, or from the start
                if all are damaged.

        Raises:
            ValueError: the checkpoint is damaged or missing, or the newest one belongs to another run.
        """
        self.timing, clock = Timing(datetime.datetime.now(datetime.UTC)), time.perf_counter()
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
        if repeated := self.args.rows_repeated(len(cast(Any, self.train_dataset))):
            self.say(repeats(repeated))
        try:
            self._prepare_run()
            if self.args.save_strategy == "no":
                return super().train(checkpoint, *args, **kwargs)
            with deferred() as self._interrupted.held:
                return super().train(checkpoint, *args, **kwargs)
        finally:
            self.timing.seconds = time.perf_counter() - clock

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """Raise a TypeError: rows are text, and predictions are the metrics and answers of an evaluation."""
        raise TypeError(f"predict is not supported: {EVALUATE_INSTEAD}, whose result has metrics and answers.")

    def create_accelerator_and_postprocess(self) -> None:
        """Also shard processes on CPUs, for which accelerate silently drops its FSDP plugin."""
        super().create_accelerator_and_postprocess()
        if self.args.fsdp and not self.is_fsdp_enabled:
            shard_model(self.accelerator, self.args.fsdp_plugin_args)
            self.is_fsdp_enabled = True

    def inputs(self) -> dict[str, str]:
        """Digests of what the run reads besides model and rows."""
        return {}

    @functools.cached_property
    def key(self) -> dict[str, Any]:
        """Key that identifies this run."""
        return run_key(
            self.command, self.args, self.loaded, self.sets, tokenizer=self.processing_class, inputs=self.inputs()
        )

    def _prepare_run(self) -> None:
        """Hook called before the first step."""

    # Data

    def get_train_dataloader(self) -> Any:
        """The sampler alone decides which rows an epoch drops; the Trainer's loader would drop more."""
        rows = len(cast(Any, self.train_dataset))
        sampler = EpochSampler(rows, seed=self.args.rows_seed, taken=self.args.rows_per_epoch(rows))
        self._epochs.sampler = sampler
        asked, self.args.dataloader_drop_last = self.args.dataloader_drop_last, False
        try:
            return self._get_dataloader(
                dataset=cast(Any, self.train_dataset),
                description="Training",
                batch_size=self._train_batch_size,
                sampler_fn=lambda _: sampler,
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
        batches = [batch for _, batch in zip(range(num_batches), epoch_iterator, strict=False)]
        counts = self._count(batches)
        if self.args.world_size > 1 and counts:
            summed = self.sum_over_processes(torch.tensor(list(counts.values()), dtype=torch.float64, device=device))
            counts = dict(zip(counts, summed.tolist(), strict=True))
        # Without labelled rows no agreement is logged; all other counts are at least 1.
        least = {"labelled_rows": 0.0}
        return batches, NormalizationCounts(
            **{name: max(count, least.get(name, 1.0)) for name, count in counts.items()}
        )

    def sum_over_processes(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all processes; returns the sum in each."""
        reduced: Tensor = self.accelerator.reduce(tensor, "sum") if self.args.world_size > 1 else tensor
        return reduced

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
            rows = inputs["rows"].tolist() if "rows" in inputs else "unknown"
            raise NonFiniteLossError(
                self._stopped(f"loss is not finite at step {self.state.global_step + 1} (rows {rows})")
            )
        # Data parallelism averages gradients over processes, but the counts include all of them.
        loss = loss * self.args.world_size
        return (loss, None) if return_outputs else loss

    def _stopped(self, what: str) -> str:
        last = last_checkpoint(str(self.args.output_dir))
        kept = f"the last good checkpoint is {last}" if last else "no checkpoint was written yet"
        return f"{what}; {kept}. {self.remedy}"

    def add_part(self, name: str, value: Tensor) -> None:
        """Add this micro-batch's contribution to a value that is logged per optimizer step."""
        self._parts[name] += value.detach().float()
        self._part_steps[name].add(self.state.global_step)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the terms of the loss, each averaged over the optimizer steps since the last log that include it."""
        if "loss" in logs:
            logs |= {
                name: float(self.sum_over_processes(value)) / len(self._part_steps[name])
                for name, value in sorted(self._parts.items())
            }
            self._parts.clear()
            self._part_steps.clear()
        super().log(logs, start_time)

    def floating_point_ops(self, inputs: Any) -> int:
        """Six operations per parameter and non-padding token."""
        batches = (
            [inputs] if "attention_mask" in inputs else [each for each in inputs.values() if isinstance(each, dict)]
        )
        model: Any = self.model
        return 6 * int(model.num_parameters()) * sum(int(batch["attention_mask"].sum()) for batch in batches)

    # Result

    def recorded(self) -> dict[str, Any]:
        """Additional entries of `run.json`."""
        return {}

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write the same files as the command: weights, tokenizer, `run.json`, `log.jsonl` and model card.

        Adapters are merged into a copy of the weights, unless `save_adapter` is set.

        Args:
            output_dir: the folder; existing files are overwritten. By default `output_dir` of the arguments.

        Raises:
            ValueError: the adapters cannot be merged; set `save_adapter`.
        """
        folder = Path(output_dir or str(self.args.output_dir))
        if _internal_call:  # a checkpoint; a sharded one stores weights together with optimizer state
            self.write_weights(None if self.sharded else self.model, folder)
            return
        self._write_result(folder)
        if self.args.push_to_hub and self.is_world_process_zero():
            push(folder, self.args)

    def push_to_hub(self, commit_message: str | None = None, *more: Any, **further: Any) -> Any:
        """Save into `output_dir` of the arguments and upload that folder without its checkpoints, before returning."""
        if more or further:
            raise TypeError(
                f"push_to_hub does not take {', '.join([*map(str, more), *further])}: the model card is generated, "
                "and hub_* of the training arguments set the destination."
            )
        folder = Path(str(self.args.output_dir))
        self._write_result(folder)
        if not self.is_world_process_zero():
            return None
        return push(folder, self.args, commit_message or "Result of atwu")

    def _write_result(self, folder: Path) -> None:
        write_result(self, folder, settings=self.args.as_plain(), use_up=False)
        if self.is_world_process_zero():
            write_manifest(folder)

    def write_weights(self, model: Any, folder: Path) -> None:
        """Write a model (None: skip) and its extra files; called in every process, and gathers a sharded model."""
        weights = gathered(self.accelerator, self.model) if self.sharded and model is not None else None
        folder.mkdir(parents=True, exist_ok=True)
        if model is not None and self.args.should_save:
            if self.processing_class is not None:
                set_end_ids(model, self.processing_class)
                self.processing_class.save_pretrained(folder)
            with quiet_peft():
                model.save_pretrained(folder, state_dict=weights)

    # Checkpoints

    def check_finite(self) -> None:
        """Check that all weights are finite.

        Raises:
            NonFiniteLossError: in every process, if any process has a non-finite weight.
        """
        broken = sum(not torch.isfinite(parameter).all() for parameter in self._saved_parameters())
        if self.sum_over_processes(torch.tensor(float(broken), device=self.args.device)) > 0:
            raise NonFiniteLossError(self._stopped(f"weights are not finite after step {self.state.global_step}"))

    def _saved_parameters(self) -> Iterator[Tensor]:
        yield from self.model_wrapped.parameters()

    def _get_output_dir(self, trial: Any) -> str:
        return self._saving_to or super()._get_output_dir(trial)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """Write a checkpoint to a temporary folder, then move it into place, so that a killed save is never loaded."""
        self.check_finite()
        run = Path(super()._get_output_dir(trial))
        staging = run / STAGING
        if self.args.should_save:
            shutil.rmtree(staging, ignore_errors=True)
        self.accelerator.wait_for_everyone()
        self._saving_to = str(staging)
        # The Trainer would search its best checkpoint in the temporary folder.
        best, self.state.best_global_step = self.state.best_global_step, None
        try:
            with explain_full_disk(run):
                super()._save_checkpoint(model, trial)
        except DiskFullError:
            shutil.rmtree(staging, ignore_errors=True)
            raise
        finally:
            self._saving_to = None
            self.state.best_global_step = best
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            made = staging / f"checkpoint-{self.state.global_step}"
            publish(made, run, self.key, keep=self.args.save_total_limit)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        for each in self.stateful if self.args.should_save else ():
            each.save(output_dir)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        for each in self.stateful if checkpoint is not None else ():
            each.load(str(checkpoint))

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """Do not push checkpoints: they contain optimizer state and, in transformers, a pickle of all arguments."""


class _Epochs(TrainerCallback):
    """Sets the sampler's epoch; accelerate's wrappers do not when several processes resume within an epoch."""

    sampler: EpochSampler | None = None

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.sampler is not None:
            self.sampler.set_epoch(int(state.epoch + 1e-6))  # within an epoch, a checkpoint's epoch is fractional
