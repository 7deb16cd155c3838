"""Configurations of training runs: `TrainingArguments` with the fields of `atwu.training.training_options`.

At the end, preset files of the user: options of `UnlearnConfig` in YAML.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import os
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from transformers import SchedulerType, TrainingArguments, get_scheduler

from atwu._file_reading import parse_json, read_mapping
from atwu._files import write_text
from atwu._names import did_you_mean, lookup
from atwu._options import Option, options_of
from atwu.data.question_forms import read_forms
from atwu.data.render import check_system
from atwu.methods.component_registry import component_options, load_plugins
from atwu.methods.presets import Preset
from atwu.methods.recipe import Recipe, recipe
from atwu.modeling.adapters import Lora
from atwu.training.training_options import TrainingOptions, UnlearnOptions


@dataclass(kw_only=True)
class TokenTrainingConfig(TrainingOptions, TrainingArguments):  # type: ignore[misc]
    """Base of all training configurations; see `TrainingOptions` and transformers' `TrainingArguments`."""

    def __post_init__(self) -> None:
        # First what transformers would accept, refuse with a message that names no remedy, or refuse when training begins.
        self._check_fields()
        for name in _JSON_OBJECTS:
            _json_object(name, getattr(self, name))  # transformers parses it
        if self.lora() is None:
            for name, default in {"lora_alpha": None, "lora_targets": None, "lora_dropout": 0.0}.items():
                if getattr(self, name) != default:
                    raise ValueError(f"{name} needs LoRA adapters; set their rank too: lora_r (for example 16).")
        check_system(self.system)
        self._check_rate()
        if self.max_steps == 0 or (self.max_steps < 0 and self.num_train_epochs <= 0):
            raise ValueError("num_train_epochs and max_steps give no training step; set one of them above 0.")
        check_supported_args(self)
        if self.bf16 and not torch.accelerator.is_available():
            self.use_cpu = True  # otherwise transformers requires a GPU for bf16
        # Left unset, transformers would disable the bar together with its own log lines.
        self.disable_tqdm = bool(self.disable_tqdm)
        super().__post_init__()
        # Only now: transformers has parsed texts, and chosen the device.
        _check_schedule(self)
        _check_sharding(self, quantized=self.quantize is not None)
        # Without a GPU, PyTorch would warn in every run that pinned memory is of no use.
        self.dataloader_pin_memory &= torch.cuda.is_available()
        # DataParallel (several devices in one process) would replicate the scorer; use one process per device.
        self._n_gpu = min(self.n_gpu, 1)

    def _check_fields(self) -> None:
        for option in options_of(typing.cast(type, type(self)), Option, mixed=False):
            option.value(getattr(self, option.name), strict=True)

    def lora(self) -> Lora | None:
        if self.lora_r == 0:
            return None
        targets = None
        if self.lora_targets is not None:
            targets = tuple(name.strip() for name in self.lora_targets.split(","))
            if not all(targets):
                raise ValueError(
                    f"lora_targets must be names separated by commas, such as q_proj,v_proj; got {self.lora_targets!r}."
                )
        return Lora(self.lora_r, alpha=self.lora_alpha, targets=targets, dropout=self.lora_dropout)

    def _check_rate(self) -> None:
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate must be above 0, got {self.learning_rate}: the model would not change.")

    @property
    def rows_per_step(self) -> int:
        """Rows per optimizer step, over all processes."""
        return int(self.per_device_train_batch_size * self.gradient_accumulation_steps * self.world_size)

    def rows_per_epoch(self, rows: int) -> int:
        """Return how many of `rows` an epoch reads: with `dataloader_drop_last` only whole steps, but at least one
        step."""
        if not self.dataloader_drop_last or rows <= self.rows_per_step:
            return rows
        return rows - rows % self.rows_per_step

    def planned_epochs(self, rows: int) -> int:
        """Return the number of epochs over `rows` that a run starts."""
        if self.max_steps <= 0:
            return math.ceil(self.num_train_epochs)
        return math.ceil(self.max_steps * self.rows_per_step / max(self.rows_per_epoch(rows), 1))

    def as_plain(self) -> dict[str, Any]:
        """Return all fields that are set, as plain JSON without secrets."""
        known = self.to_dict()
        return {
            field.name: known[field.name]
            for field in dataclasses.fields(self)
            # A token is a secret, and the record of a run is published with its model.
            if field.init and field.name != "hub_token" and known.get(field.name) is not None
        }


_JSON_OBJECTS = ("lr_scheduler_kwargs", "activation_checkpointing_kwargs", "gradient_checkpointing_kwargs")
"""Fields of transformers that are a mapping or its JSON."""


def _json_object(name: str, value: Any) -> Any:
    """Return a mapping that may be given as JSON, as a command line must; None stays."""
    allowed = """give a mapping or its JSON, such as '{"key": 0.5}'."""
    try:
        parsed = value
        if isinstance(value, str):
            parsed = parse_json(value, what=name)
    except ValueError as error:
        raise ValueError(f"{str(error).rstrip('.')}; {allowed}") from None
    if parsed is not None and not isinstance(parsed, Mapping):
        raise ValueError(f"{name} is {value!r:.60}; {allowed}")
    return parsed


# For `help` and editors: `__init__` takes names that are known only when it is called, so that its own signature says nothing.
def _signature(config: type, *further: inspect.Parameter) -> inspect.Signature:
    """Return the signature of a configuration: `output_dir`, then its other fields by name, then further options."""
    fields = dict(inspect.signature(config).parameters)
    first = fields.pop("output_dir").replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD)
    others = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in fields.values()]
    return inspect.Signature([first, *others, *further])


class FinetuneConfig(TokenTrainingConfig):
    """Configuration of supervised fine-tuning on answer tokens, from a checkpoint or from scratch."""

    __signature__ = _signature(TokenTrainingConfig)

    def __init__(self, output_dir: str | None = None, **options: Any) -> None:
        super().__init__(output_dir=output_dir, **options)


# A dataclass of its own: the `__init__` that it generates has no place for the options of components.
@dataclass(kw_only=True)
class _UnlearnFields(UnlearnOptions, TokenTrainingConfig):  # type: ignore[misc]
    pass


class UnlearnConfig(_UnlearnFields):
    """Configuration of one unlearning run.

    `method` names a row of the method table (`atwu methods`); `weighting`, `forget_loss` and `retain_loss` replace its
    components, by name. Every option of a component (`beta`, `scorer_every`, ...: see `atwu methods NAME`) is a keyword
    argument. Unset numbers take the method's published values, unset settings those of `configuration`.

    Args:
        output_dir: folder for the checkpoints of the trainer.
        component_options: options of components as a mapping or its JSON, equivalent to keywords.
        options: fields (`UnlearnOptions`, `TrainingArguments`) and options of components.
    """

    if typing.TYPE_CHECKING:  # `HfArgumentParser` needs the wider type of the field
        component_options: dict[str, Any]

    __signature__ = _signature(_UnlearnFields, inspect.Parameter("options", inspect.Parameter.VAR_KEYWORD))

    def __init__(
        self, output_dir: str | None = None, *, component_options: Mapping[str, Any] | str | None = None, **options: Any
    ) -> None:
        options["output_dir"] = output_dir
        by_name: Mapping[str, Any] = _json_object("component_options", component_options) or {}
        # Here, since a plugin may have added a component; with a hint at the name that was meant.
        known = option_names()
        fields = {field.name for field in dataclasses.fields(_UnlearnFields) if field.init}
        for name in {*options, *by_name} - known:
            lookup("option", name, dict.fromkeys(sorted(known)))
        chosen = {name: value for name, value in options.items() if name not in fields}
        of_components = {name: value for name, value in {**by_name, **chosen}.items() if value is not None}
        super().__init__(
            component_options=of_components, **{name: value for name, value in options.items() if name in fields}
        )

    def __post_init__(self) -> None:
        self._check_fields()
        read_forms(self.forms)
        decided = self.recipe()
        if decided.scores is not None and decided.scores.scorer_procedure == "joint" and self.fp16:
            raise ValueError("scorer_procedure='joint' does not scale its gradient for fp16; use bf16.")
        adapters = self.lora()
        if adapters is not None and decided.forget_component.trained_layers(1) is not None:
            others = [name for name in adapters.targets or () if name.rpartition(".")[2] != "down_proj"]
            if others:
                raise ValueError(
                    f"forget loss {decided.forget_loss!r} trains only down_proj of some layers, so adapters on "
                    f"{', '.join(others)} would have no effect. Leave lora_targets out."
                )
        if self.sam_radius and self.weight_noise:
            raise ValueError("sam_radius and weight_noise exclude each other; set only one.")
        if self.perturbs_weights and decided.forget_component.balanced:
            raise ValueError("sam_radius and weight_noise exclude a forget loss that is balanced with the retain loss.")
        # In fp16 the loss is multiplied by a factor that changes during the run, and so are the gradients that these
        # options read.
        if self.perturbs_weights and self.fp16:
            raise ValueError("sam_radius and weight_noise do not scale gradients for fp16; use bf16.")
        if self.rectify_gradient and decided.retain_component is None:
            raise ValueError(f"rectify_gradient needs a retain loss, but {decided.name!r} has none; set retain_loss.")
        if self.rectify_gradient and self.fp16:
            raise ValueError("rectify_gradient does not scale gradients for fp16; use bf16.")
        self._check_collapse()
        super().__post_init__()

    def _check_collapse(self) -> None:
        if not self.collapse_components:
            return
        if self.collapse_components == 1:
            raise ValueError(
                "collapse_components=1 changes nothing: components are compared with the last of them. Use 2 or more, or 0."
            )
        if self.lora_r:
            raise ValueError("collapse_components needs the gradients of whole weight matrices; leave lora_r out.")
        if self.rectify_gradient:
            raise ValueError("collapse_components and rectify_gradient exclude each other; set only one.")
        if self.fp16:
            raise ValueError("collapse_components does not scale gradients for fp16; use bf16.")

    @property
    def perturbs_weights(self) -> bool:
        return self.sam_radius > 0 or self.weight_noise > 0

    def _check_rate(self) -> None:
        """Allow a learning rate of 0, which freezes the model, if a scorer is trained."""
        scores = self.recipe().scores
        if self.learning_rate != 0 or scores is None or scores.scorer_procedure == "frozen":
            super()._check_rate()

    def recipe(self) -> Recipe:
        return recipe(
            self.method,
            weighting=self.weighting,
            forget_loss=self.forget_loss,
            retain_loss=self.retain_loss,
            preserve=self.preserve,
            replacement=self.replacement,
            configuration=self.configuration,
            **self.component_options,
        )

    def as_plain(self) -> dict[str, Any]:
        plain = super().as_plain()
        of_components: dict[str, Any] = plain.pop("component_options", {})
        return plain | of_components


def option_names() -> set[str]:
    """Names of all options of an unlearning run: fields, and the options of all components."""
    load_plugins()
    return {field.name for field in dataclasses.fields(_UnlearnFields) if field.init} | set(component_options())


_REFUSED = {
    "label_smoothing_factor": "the loss is defined by the method",
    "train_sampling_strategy": "the row order follows from seed and epoch",
    "data_seed": "the row order follows from seed",
    **dict.fromkeys(
        ("torch_compile", "torch_compile_backend", "torch_compile_mode"),
        "the forward pass that computes log-probabilities from the last hidden states cannot be compiled",
    ),
    "use_liger_kernel": (
        "log-probabilities are computed block by block from the last hidden states, without its fused loss"
    ),
    "parallelism_config": "tensor and context parallelism are untested; fsdp shards over processes",
    "deepspeed": "it is untested; use fsdp to shard",
    "average_tokens_across_devices": "losses are always divided by the token count of all processes",
    "load_best_model_at_end": (
        "the result is the model of the last step; save_strategy='best' with save_total_limit=1 keeps only the best "
        "checkpoint in output_dir, which loads by its path"
    ),
    "save_only_model": "its checkpoints cannot be resumed from; save_strategy='no' writes none",
    "remove_unused_columns": "rows are batches of tokens",
    "logging_nan_inf_filter": "a loss that is not finite must stop the run",
}
"""Options of transformers that would be ignored or train something else than what was asked, with the reason."""


_STATE_DICTS = ("FULL_STATE_DICT", "SHARDED_STATE_DICT")


def check_supported_args(config: TrainingArguments) -> None:
    for name, reason in _REFUSED.items():
        if getattr(config, name) != type(config).__dataclass_fields__[name].default:
            raise ValueError(f"{name} is not supported: {reason}; leave it out.")
    if config.eval_strategy == "no" and config.save_strategy == "best":
        raise ValueError(
            "save_strategy='best' has no effect without evaluation during training; set eval_strategy and eval_steps of an "
            "UnlearnTrainer, or leave it out."
        )
    for name, there, needed in (
        ("fsdp", _several(), "several processes (torchrun --nproc-per-node=8 $(which atwu) ...)"),
        ("fp16", torch.accelerator.is_available() and not config.use_cpu, "a GPU (bf16 does not)"),
    ):
        if getattr(config, name) and not there:
            raise ValueError(f"{name} needs {needed}; leave it out to train without.")
    # `accelerate launch` sets these from its own configuration file, which no record of a run mentions.
    unsupported = ["DEEPSPEED", "PARALLELISM_CONFIG"]
    if not config.fsdp:
        unsupported.append("FSDP")
    for name in unsupported:
        if os.environ.get(f"ACCELERATE_USE_{name}", "").lower() == "true":
            raise ValueError(
                f"accelerate is configured to use {name} but the run is not; use --fsdp to shard, so that the "
                "record states it."
            )
    if config.fsdp_config and not config.fsdp:
        raise ValueError("fsdp_config has no effect without fsdp; set both or neither.")
    named = config.report_to or []
    if isinstance(named, str):
        named = [named]
    wanted = set(named) - {"none", "all"}
    if wanted:
        from transformers.integrations.integration_utils import get_available_reporting_integrations

        installed: list[str] = get_available_reporting_integrations()
        missing = sorted(wanted - set(installed))
        if missing:
            have = "none is"
            if installed:
                have = f"installed: {', '.join(installed)}"
            raise ImportError(
                f"report_to: {', '.join(missing)} is not installed ({have}); install its package, or use none."
            )


def _check_sharding(config: TrainingArguments, *, quantized: bool) -> None:
    how = config.fsdp_plugin_args
    if how is None:
        if config.fsdp:
            raise ValueError("fsdp: xla is not supported.")
        return
    for asked, why in (
        (how["fsdp_version"] != 2, "version must be 2"),
        (how["state_dict_type"] not in _STATE_DICTS, f"state_dict_type must be one of {', '.join(_STATE_DICTS)}"),
        (
            how["cpu_ram_efficient_loading"],
            ("cpu_ram_efficient_loading is not supported: every process reads the weights"),
        ),
        (
            str(how["auto_wrap_policy"]).upper() == "SIZE_BASED_WRAP",
            "SIZE_BASED_WRAP does not work for lists of layers",
        ),
        (
            how.get("cpu_offload") and not (torch.accelerator.is_available() and not config.use_cpu),
            "cpu_offload needs a GPU",
        ),
        (quantized, "quantized weights cannot be sharded; leave out quantize or fsdp"),
    ):
        if asked:
            raise ValueError(f"fsdp: {why}.")


def _check_schedule(config: TrainingArguments) -> None:
    """Refuse options that the schedule does not take, which transformers would read only when training begins."""
    schedule = SchedulerType(config.lr_scheduler_type)
    options: Any = config.lr_scheduler_kwargs
    # Any optimizer will do: only the options of the schedule are tried.
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)])
    try:
        get_scheduler(schedule, optimizer, num_warmup_steps=1, num_training_steps=2, scheduler_specific_kwargs=options)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"lr_scheduler_type {schedule.value} does not work with lr_scheduler_kwargs={options}: {error}."
        ) from None


def _several() -> bool:
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


_INSTEAD = {
    "train_dataset": "forget_dataset and retain_dataset",
    "tokenizer": "processing_class",
    "model_init": "a model",
    "data_collator": "rows of text",
    "compute_loss_func": "forget_loss=NAME in UnlearnConfig (of the trainer; register_forget_loss adds a name)",
    "compute_metrics": "the argument eval_metrics (of the trainer; register_metric adds a name)",
    "preprocess_logits_for_metrics": "the argument eval_metrics (of the trainer)",
    "peft_config": "lora_r, lora_alpha, lora_targets and lora_dropout of UnlearnConfig",
}
"""Argument of a trainer of transformers or TRL -> what to give here."""


def check_trainer_arguments(args: Any, forget: Any, further: Mapping[str, Any]) -> UnlearnConfig:
    """Return the configuration; refuse arguments of transformers' `Trainer` that do not apply."""
    if args is not None and not isinstance(args, UnlearnConfig):
        raise TypeError(f"args must be an UnlearnConfig (a subclass of TrainingArguments), got {type(args).__name__}.")
    for name, right in _INSTEAD.items():
        if name in further:
            raise TypeError(f"UnlearnTrainer takes {right} instead of {name}.")
    if forget is None:
        raise TypeError("UnlearnTrainer needs forget_dataset: the forget set.")
    return args or UnlearnConfig()


# Preset files of the user


def read_preset(path: str | Path) -> Preset:
    """Read and check a preset: one 'option: value' per line, `method` among them, and a mapping `about`."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"preset {path} not found; give an existing YAML file.")
    values = read_mapping(path)
    about = values.pop("about", None) or {}
    if not isinstance(about, dict):
        raise ValueError(f"{path}: about must be a mapping, got {about!r}.")
    _check_preset(values, where=str(path))
    return Preset(path.absolute().parent.name, values["method"], values, about)


def write_preset(path: str | Path, options: Mapping[str, Any], about: Mapping[str, Any]) -> None:
    """Write a preset atomically, creating its folder if needed."""
    path = Path(path)
    _check_preset(options, where=str(path))
    head = f"# atwu unlearn --config {path.name} --model MODEL --forget ROWS --retain ROWS --output FOLDER\n"
    # What a reader of the file looks for.
    first = ["method", "learning_rate", "forget_weight", "retain_weight"]
    keys = [key for key in first if key in options] + [key for key in options if key not in first]
    body = {**{key: options[key] for key in keys}, "about": dict(about)}
    write_text(path, head + yaml.safe_dump(body, sort_keys=False, allow_unicode=True, width=120))


def _check_preset(options: Mapping[str, Any], *, where: str) -> None:
    if not isinstance(options.get("method"), str):
        raise ValueError(f"{where}: a preset needs the name of its method, as in 'method: atwu'.")
    known = sorted(option_names() - {"output_dir"})
    for key, value in options.items():
        if key not in known:
            hint = did_you_mean(key, known, " Put everything that is not an option under 'about'.")
            raise ValueError(f"{where}: unknown option {key!r}.{hint}")
        if not isinstance(value, str | int | float | bool):
            raise ValueError(f"{where}: {key} must be a number, text, true or false, got {value!r}.")
