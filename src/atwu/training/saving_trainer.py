"""Trainer that writes atomic checkpoints, and results with model, record, log and model card, on transformers' `Trainer`.

All private hooks of transformers that this package overrides are here. One more name is only used: `_get_dataloader` in
`token_trainer.py`.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
import functools
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn
from transformers import Trainer

from atwu._file_reading import read_object
from atwu._files import explain_full_disk, plain_modes, write_json, write_text
from atwu._manifest import LOG_NAME, RECORD_NAME, write_manifest
from atwu.errors import DiskFullError, NonFiniteLossError
from atwu.modeling.adapters import adapters_of, merge_adapters, quiet_peft
from atwu.modeling.device import machine, peak_memory
from atwu.modeling.generate import set_end_ids
from atwu.modeling.layers import unwrap
from atwu.modeling.load import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    add_adapter,
    check_objects,
    load_model,
    model_fingerprint,
)
from atwu.modeling.model_checks import state_tying
from atwu.modeling.tokenizer_file import warn_of_rebuilt
from atwu.training.checkpoints import (
    STAGING,
    Stateful,
    last_checkpoint,
    names_as_stored,
    packages,
    publish_checkpoint,
    restore_renamed,
    set_random_state,
    training_key,
    write_random_state,
)
from atwu.training.config import TokenTrainingConfig
from atwu.training.load_to_train import LoadedModel, ModelSource, load_as_is, load_source
from atwu.training.model_card import model_card, public_record
from atwu.training.progress import Say, log_text, logged, silent
from atwu.training.row_sets import RowSet
from atwu.training.run_folder import RECORD_SCHEMA, REQUEST_FOLDER, VERDICT_NAME

if TYPE_CHECKING:
    from accelerate import Accelerator

_T = TypeVar("_T")


@dataclass(slots=True)
class Timing:
    started: datetime.datetime | None = None
    """Time of the first step; None before it."""
    seconds: float = 0.0
    resumed_from: int = 0


class SavingTrainer(Trainer):
    """What all trainers of this package write, and what their runs are identified by."""

    args: TokenTrainingConfig
    command: ClassVar[str]
    """Command of the same run: `unlearn` or `finetune`."""
    remedy = "Lower the learning rate."
    """Advice when numbers are not finite."""

    def __init__(
        self,
        model: nn.Module | LoadedModel,
        args: TokenTrainingConfig,
        *,
        processing_class: Any,
        say: Say = logged,
        **kwargs: Any,
    ) -> None:
        self.say = say
        if isinstance(model, LoadedModel):
            self.loaded = model
        else:
            self.loaded = load_as_is(model, args)
        # What is loaded by name was checked then.
        if self.loaded.source is None:
            check_objects(self.loaded.model, processing_class)
            warn_of_rebuilt(processing_class)
        name = getattr(unwrap(self.loaded.model), "name_or_path", None)
        if name and Path(name).is_dir() and Path(name).resolve() == Path(str(args.output_dir)).resolve():
            raise ValueError(
                f"output_dir is {args.output_dir}, the folder of the model, whose files would be replaced; choose another."
            )
        self.sets: Mapping[str, RowSet] = {}
        self.timing = Timing()
        self.stateful: list[Stateful] = []
        """Further state in checkpoints."""
        self._saving_to: str | None = None
        # wandb uploads everything that the process prints, also the questions and answers of a verdict.
        os.environ.setdefault("WANDB_CONSOLE", "off")
        super().__init__(model=self.loaded.model, args=args, processing_class=processing_class, **kwargs)
        merges = adapters_of(self.loaded.model) is not None and not args.save_adapter
        if self.sharded and merges and self.loaded.source is None:
            raise ValueError(
                "adapters of a sharded model are merged into a newly loaded model; pass the model by name instead of "
                "as an object, or set save_adapter=True."
            )

    @property
    def sharded(self) -> bool:
        return bool(self.is_fsdp_enabled)

    def create_accelerator_and_postprocess(self) -> None:
        """Also shard processes on CPUs, for which accelerate silently drops its FSDP plugin."""
        super().create_accelerator_and_postprocess()
        if self.args.fsdp and not self.is_fsdp_enabled:
            shard_model(self.accelerator, self.args.fsdp_plugin_args)
            self.is_fsdp_enabled = True

    def sum_over_processes(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all processes; returns the sum in each."""
        if self.args.world_size == 1:
            return tensor
        total: Tensor = self.accelerator.reduce(tensor, "sum")
        return total

    def digests(self) -> dict[str, str]:
        """Digests of what the run reads besides model and rows."""
        return {}

    @functools.cached_property
    def key(self) -> dict[str, Any]:
        return training_key(
            self.command, self.args, self.loaded, self.sets, tokenizer=self.processing_class, inputs=self.digests()
        )

    # Result

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
        self.write_result(folder)
        if self.is_world_process_zero():
            write_manifest(folder)
            if self.args.push_to_hub:
                push(folder, self.args)

    def push_to_hub(self, commit_message: str = "Result of atwu") -> Any:  # type: ignore[override]
        """Save into `output_dir` of the arguments and upload that folder without its checkpoints, before returning.

        The model card is generated, and `hub_*` of the training arguments set the destination.
        """
        folder = Path(str(self.args.output_dir))
        self.write_result(folder)
        if not self.is_world_process_zero():
            return None
        write_manifest(folder)
        return push(folder, self.args, commit_message)

    def write_result(self, folder: Path, *, settings: Mapping[str, Any] | None = None, use_up: bool = False) -> None:
        """Write the model with tokenizer and scorer, log, model card and record; called in every process.

        Adapters are merged unless the configuration keeps them separate. Sharded weights are gathered on disk, and the
        main process continues with them.

        Args:
            settings: the configuration as given, for the record.
            use_up: merge into the trainer's own model, which loses its adapters, instead of into a copy.
        """
        model = self.accelerator.unwrap_model(self.model)
        adapted = adapters_of(model) is not None
        merge = adapted and not self.args.save_adapter
        if merge and not self.sharded:  # sharded weights are merged below, once the files are written
            # Merging changes weights in place, and a trainer that goes on needs its adapters.
            if not use_up:
                model = copy.deepcopy(model)
            model = merge_adapters(model)
        self.write_weights(model, folder)
        self.accelerator.wait_for_everyone()
        if self.args.process_index != 0:
            return
        # No process holds sharded weights as a whole; the fingerprint of the result is that of what was written.
        if self.sharded and adapted and self.loaded.source is not None:
            model = load_base_with_adapter(self.loaded.source, self.args, folder, self.processing_class, merge=merge)
        elif self.sharded:
            model = load_model(str(folder))
        plain_modes(*folder.glob("*.safetensors"))
        if settings is None:
            settings = self.args.as_plain()
        record = self._record(settings, model_fingerprint(model))
        write_text(folder / LOG_NAME, log_text(self.state))
        write_text(folder / "README.md", model_card(record))
        write_json(folder / RECORD_NAME, record)

    def record_entries(self) -> dict[str, Any]:
        return {}

    def _record(self, settings: Mapping[str, Any], result_fingerprint: str) -> dict[str, Any]:
        config, loaded = self.args, self.loaded
        base = adapters_of(loaded.model)
        kind = "model"
        if base is not None and config.save_adapter:
            kind = "adapter"
        elif base is not None:
            kind = "merged"
        if loaded.source is not None:
            start = dataclasses.asdict(loaded.source)
        else:  # a model in memory; it may know the name by which it was loaded
            plain: Any = loaded.model if base is None else base.get_base_model()
            start = {field.name: field.default for field in dataclasses.fields(ModelSource)}
            start["model"] = getattr(plain, "name_or_path", None) or None
        return {
            "schema": RECORD_SCHEMA,
            "command": self.command,
            "original_model": start | {"fingerprint": loaded.fingerprint},
            "result": {
                "kind": kind,
                "lora": None if loaded.lora is None else dataclasses.asdict(loaded.lora),
                "base_model": None if base is None else start["model"] or start["scratch"],
                "base_fingerprint": None if base is None else loaded.fingerprint,
            },
            "result_fingerprint": result_fingerprint,
            "data": {
                name: {"source": rows.source, "rows": len(rows.rows), "fingerprint": rows.fingerprint}
                for name, rows in self.sets.items()
            },
            **self.record_entries(),
            "seed": config.seed,
            "config": dict(settings),
            "versions": packages(config, loaded),
            "machine": machine(config.device),
            "started": None if self.timing.started is None else self.timing.started.isoformat(timespec="seconds"),
            "train_seconds": round(self.timing.seconds, 3),
            "peak_memory_bytes": peak_memory(config.device),
            "steps": self.state.global_step,
            "resumed_from_step": self.timing.resumed_from,
            "processes": config.world_size,
        }

    def write_weights(self, model: Any, folder: Path) -> None:
        """Write a model (None: skip) and its extra files; called in every process, and gathers a sharded model."""
        weights = None
        if self.sharded and model is not None:
            weights = gather_weights(self.accelerator, self.model)
        folder.mkdir(parents=True, exist_ok=True)
        if model is not None and self.args.should_save:
            tokenizer: Any = self.processing_class  # transformers says that it may be None
            set_end_ids(model, tokenizer)
            tokenizer.save_pretrained(folder)
            if not self.sharded:  # whose parameters are flat or parts
                state_tying(model)
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
            raise self.not_finite(f"weights are not finite after step {self.state.global_step}")

    def not_finite(self, what: str) -> NonFiniteLossError:
        """Return the error that ends a run, with its last good checkpoint and advice."""
        kept = "no checkpoint was written yet"
        if self.state.global_step:  # else a checkpoint in the folder is of another run
            last = last_checkpoint(str(self.args.output_dir), self.key)
            if last is not None:
                kept = f"the last good checkpoint is {last}"
        return NonFiniteLossError(f"{what}; {kept}. {self.remedy}")

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
            checkpoint = staging / f"checkpoint-{self.state.global_step}"
            publish_checkpoint(checkpoint, run, self.key, keep=self.args.save_total_limit)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        if self.args.should_save:
            for part in self.stateful:
                part.save(output_dir)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        """Load the weights of a checkpoint.

        The Trainer matches names literally, and silently keeps the original weights where a file names them otherwise.
        """
        target: Any = model
        if model is None:
            target = self.model
        if self.sharded or adapters_of(target) is not None or names_as_stored(target, resume_from_checkpoint):
            super()._load_from_checkpoint(resume_from_checkpoint, model)
        else:
            restore_renamed(target, resume_from_checkpoint)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            for part in self.stateful:
                part.load(checkpoint)

    def _save_rng_state(self, output_dir: str) -> None:
        write_random_state(self._random_state_file(output_dir), self.args.device)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        # A run that continues on another number of processes has no state for some of them.
        path = self._random_state_file(checkpoint)
        if path.is_file():
            set_random_state(path, self.args.device)

    def _random_state_file(self, checkpoint: str) -> Path:
        name = "random_state.json"
        if self.args.world_size > 1:
            name = f"random_state_{self.args.process_index}.json"
        return Path(checkpoint) / name

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """Do not push checkpoints: they contain optimizer state and, in transformers, a pickle of all arguments."""


def load_base_with_adapter(
    source: ModelSource, config: TokenTrainingConfig, folder: Path, tokenizer: Any, *, merge: bool
) -> Any:
    """Load the base model with the adapter in a folder; if merged, the result replaces the adapter there."""
    model = add_adapter(load_source(source, config, silent), str(folder), merge=merge)
    if merge:
        set_end_ids(model, tokenizer)
        state_tying(model)
        model.save_pretrained(folder)
        for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS, "README.md"):
            (folder / name).unlink(missing_ok=True)
    return model


def push(folder: Path, config: TokenTrainingConfig, message: str = "Result of atwu") -> Any:
    """Upload a finished folder as `hub_*` say, without checkpoints, its request, and local paths in its record."""
    from huggingface_hub import HfApi

    hub = HfApi(token=config.hub_token)
    name = config.hub_model_id or folder.name
    where: dict[str, Any] = {
        "repo_id": hub.create_repo(name, private=config.hub_private_repo, exist_ok=True).repo_id,
        "commit_message": message,
        "revision": config.hub_revision,
    }
    # The record follows without local paths; what a request asked, and what was answered, is not uploaded.
    private = [RECORD_NAME, "checkpoint-*", VERDICT_NAME, f"{REQUEST_FOLDER}/*"]
    hub.upload_folder(folder_path=folder, ignore_patterns=private, **where)
    record = public_record(read_object(folder / RECORD_NAME))
    content = (json.dumps(record, indent=2, ensure_ascii=False) + "\n").encode()
    return hub.upload_file(path_or_fileobj=content, path_in_repo=RECORD_NAME, **where)


# Several processes: what accelerate and transformers leave open about sharded weights (FSDP 2).


def broadcast_from_main(config: TokenTrainingConfig, make: Callable[[], _T]) -> _T:
    """Compute a value in the main process and broadcast it to every process."""
    if config.world_size == 1:
        return make()
    from accelerate.utils import broadcast_object_list

    objects: list[Any] = [None]
    if config.process_index == 0:
        objects = [make()]
    broadcast_object_list(objects)
    value: _T = objects[0]
    return value


def shard_model(accelerator: Accelerator, options: Mapping[str, Any]) -> None:
    """Enable sharding in an accelerator without an FSDP plugin, as for processes on CPUs; `options` are the
    plugin's."""
    from accelerate.state import PartialState
    from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin

    state, plugin = accelerator.state, FullyShardedDataParallelPlugin(**options)
    if state.mixed_precision != "no":
        plugin.set_mixed_precision(state.mixed_precision)
    state.fsdp_plugin = plugin
    # Every `PartialState` shares this dictionary, also those that are made later.
    state.distributed_type = PartialState._shared_state["distributed_type"] = DistributedType.FSDP


def gather_weights(accelerator: Accelerator, model: Any) -> dict[str, Tensor]:
    """Gather all weights of a sharded model in the main process; tied weights are one tensor, as `save_pretrained`
    expects."""
    weights: dict[str, Tensor] = accelerator.get_state_dict(model)
    named = list(model.named_parameters(remove_duplicate=False))
    # Gathering makes copies of tied weights, which `save_pretrained` would write twice.
    first = {id(parameter): name for name, parameter in reversed(named)}
    shared = {name: weights[first[id(parameter)]] for name, parameter in named if name in weights}
    return weights | shared
