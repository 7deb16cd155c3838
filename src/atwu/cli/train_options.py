"""Options of training commands: those of this package, of method components, and of transformers' `TrainingArguments`.

The few of transformers that people set have flags. The rest come as one JSON text, checked by `TrainingArguments` itself. Its
import takes seconds, so a typo in a flag is found without it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from atwu._file_reading import parse_json
from atwu._names import lookup
from atwu.cli.cli_options import MORE_GROUP, CliOption, cli_options_of
from atwu.errors import UsageError

if TYPE_CHECKING:
    from atwu.methods.component import ComponentOption

COMMON_COMPONENT_OPTIONS = ("forget_weight", "retain_weight", "beta")
"""Options of method components that `--help` lists; `atwu methods NAME` shows which ones a method has."""
ALIASES = {
    "learning_rate": ("--lr",),
    "num_train_epochs": ("--epochs",),
    "max_steps": ("--steps",),
    "per_device_train_batch_size": ("--batch-size",),
}
NOT_WITH = {"num_train_epochs": "max_steps", "max_steps": "num_train_epochs"}
"""Options that have no effect with another one."""
TRAINING_ARGS = "training_args"
NO_FLAGS = ("output_dir", "component_options", "remove_unused_columns", "logging_nan_inf_filter")
"""Fields of the configurations that a command sets itself, or that have one allowed value."""
FROM_TRANSFORMERS = (
    CliOption("optim", str, None, "Optimizer of transformers, such as adamw_torch, adafactor or sgd."),
    CliOption("fp16", bool, False, "Mixed precision in float16, for GPUs without bfloat16."),
    CliOption("run_name", str, None, "Name of the run for the loggers of --report-to."),
    CliOption("hub_model_id", str, None, "Repository on the Hub. Default: name of the folder.", needs="push_to_hub"),
    CliOption(
        TRAINING_ARGS,
        str,
        None,
        """Further fields of transformers' TrainingArguments as JSON, such as '{"optim_args": "momentum=0.9"}'.""",
    ),
)
"""`FURTHER_FLAGS` of `atwu.training.training_options`, and the option that takes all other fields."""
CHOSEN = (
    *("method", "weighting", "beta", "preserve", "pairing", "retain_per_forget", "forms"),
    *("replacement", "replacement_weight", "retain_loss", "retain_weight", "scorer_prior"),
    *("learning_rate", "lr_scheduler_type", "warmup_steps", "num_train_epochs", "max_steps"),
    *("per_device_train_batch_size", "gradient_accumulation_steps", "save_strategy", "save_steps"),
    *("lora_r", "quantize", "activation_checkpointing", "bf16", "optim", "save_adapter"),
)
"""Options that `atwu unlearn` chooses (`atwu.request.auto_settings`, which imports torch: a test compares the names)."""


HARDWARE = "Hardware and precision"
PARTS = ("method", "weighting", "forget_loss", "retain_loss", "preserve", "replacement")
COMMON = {
    "Method": (*PARTS, "forms"),
    "Training arguments": (
        *("learning_rate", "num_train_epochs", "max_steps", "per_device_train_batch_size"),
        *("gradient_accumulation_steps", "warmup_steps", "seed", "max_length", "system"),
    ),
    HARDWARE: ("bf16", "activation_checkpointing", "use_cpu"),
    "LoRA and quantization": ("lora_r", "quantize", "save_adapter"),
}
"""Heading -> training options that `--help` lists."""


def _training_options(source: type) -> list[CliOption]:
    """Return the fields of `TrainingOptions` or a subclass, and `FROM_TRANSFORMERS`."""
    headings = {name: heading for heading, names in COMMON.items() for name in names}
    declared = [
        replace(
            option,
            alias=ALIASES.get(option.name, ()),
            excludes=NOT_WITH.get(option.name, ""),
            group=headings.get(option.name, MORE_GROUP),
            common=option.name in headings,
        )
        for option in cli_options_of(source, without=NO_FLAGS)
    ]
    return [*declared, *(replace(option, group=MORE_GROUP, common=False) for option in FROM_TRANSFORMERS)]


def with_training_args(settings: Mapping[str, Any], options: Iterable[CliOption]) -> dict[str, Any]:
    """Return the settings of a training command with the fields in `--training-args` in its place.

    Args:
        options: options of the command, which have flags and cannot be set by JSON.
    """
    merged = dict(settings)
    text = merged.pop(TRAINING_ARGS, None)
    if text is None:
        return merged
    from transformers import TrainingArguments

    arguments = parse_json(text, what="--training-args")
    if not isinstance(arguments, dict):
        raise UsageError(f"""--training-args must be a JSON object, such as '{{"tf32": true}}'; got {text!r:.60}.""")
    flags = {option.name: option.flag for option in options}
    known = {field.name for field in dataclasses.fields(TrainingArguments) if field.init}
    for name in arguments:
        if name in flags:
            raise UsageError(f"--training-args sets {name}, which has a flag: give it as {flags[name]}.")
        if name in NO_FLAGS:
            raise UsageError(f"--training-args sets {name}, which a command does not let you choose; leave it out.")
        lookup("field of TrainingArguments", name, dict.fromkeys(sorted(known)))
    return merged | arguments


def finetune_options() -> list[CliOption]:
    from atwu.training.training_options import TrainingOptions

    return _training_options(TrainingOptions)


def _component_help(option: ComponentOption) -> str:
    """Return the help of a component's option as sentences; a symbol before a colon keeps its case."""
    text = option.help if option.help.partition(" ")[0].endswith(":") else option.help[:1].upper() + option.help[1:]
    if option.number or option.default is None:
        return f"{text}. Default: the method's."
    return f"{text}."


def _as_chosen(option: CliOption) -> CliOption:
    """Return an option that `atwu unlearn` chooses, with a help that says so in place of a default that it does not take."""
    if option.help.endswith(" Default: the method's."):
        about = option.help.removesuffix(" the method's.") + " chosen automatically, or the method's."
    else:
        about = f"{option.help} Default: chosen automatically."
    return replace(option, default=None, help=about)


def unlearn_options() -> list[CliOption]:
    """Return the options of unlearning, including those of all method components."""
    from atwu.methods.component_registry import component_options, load_plugins
    from atwu.training.training_options import UnlearnOptions

    load_plugins()
    parts = [
        CliOption.of(
            part,
            help=_component_help(part),
            group="Method" if part.name in COMMON_COMPONENT_OPTIONS else "Method components",
            common=part.name in COMMON_COMPONENT_OPTIONS,
            # Each method has its own default, and some allow 0.
            **({"default": None, "least": 0, "above": None} if part.number else {}),
        )
        for part in component_options().values()
    ]
    options = [
        _as_chosen(option) if option.name in CHOSEN else option
        for option in (*_training_options(UnlearnOptions), *parts)
    ]
    return sorted(options, key=lambda option: option.group != "Method")
