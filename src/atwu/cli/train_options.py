"""Options of training commands: those of this package, of method components, and of transformers' `TrainingArguments`.

The latter are read from its source text, since importing it takes seconds, even for a typo.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atwu.cli.cli_options import MORE_GROUP, CliOption, cli_options_of

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
ONLY_WITH = dict.fromkeys(("hub_model_id", "hub_private_repo", "hub_revision", "hub_token"), "push_to_hub")
"""Options that have no effect with, or without, another one."""
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
_KINDS = {"bool": bool, "int": int, "float": float, "str": str}


def _training_options(source: type) -> list[CliOption]:
    """Return the fields of `TrainingOptions` or a subclass, and the options of transformers that it does not declare."""
    headings = {name: heading for heading, names in COMMON.items() for name in names}
    ours = {
        each.name: replace(
            each,
            alias=ALIASES.get(each.name, ()),
            excludes=NOT_WITH.get(each.name, ""),
            group=headings.get(each.name, MORE_GROUP),
            common=each.name in headings,
        )
        for each in cli_options_of(source, without=("output_dir", "component_options"))
    }
    others = (each for each in trainer_options() if each.name not in ours)
    return [*ours.values(), *(replace(each, needs=ONLY_WITH.get(each.name, "")) for each in others)]


def finetune_options() -> list[CliOption]:
    from atwu.training.training_options import TrainingOptions

    return _training_options(TrainingOptions)


def _component_help(option: ComponentOption) -> str:
    """Return the help of a component's option as sentences; a symbol before a colon keeps its case."""
    text = option.help if option.help.partition(" ")[0].endswith(":") else option.help[:1].upper() + option.help[1:]
    return f"{text}. Default: the method's." if option.number or option.default is None else f"{text}."


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


@functools.cache
def trainer_options() -> list[CliOption]:
    """Return the options of the installed transformers that a command line can set, except the output folder."""
    spec = importlib.util.find_spec("transformers")
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).with_name("training_args.py").read_text(encoding="utf-8")
    classes = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
    return [option for option in _options(classes["TrainingArguments"]) if option.name != "output_dir"]


def _options(source: ast.ClassDef) -> Iterator[CliOption]:
    """Yield an option for each field `NAME: TYPE = field(default=DEFAULT, metadata={"help": HELP})`."""
    for node in source.body:
        if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
            continue
        kinds = ast.unparse(node.annotation).split(" | ")
        many = "list[str]" in kinds and "str" not in kinds
        kind = str if many else next((_KINDS[name] for name in _KINDS if name in kinds), None)
        if kind is not None and isinstance(node.value, ast.Call):
            given = {keyword.arg: keyword.value for keyword in node.value.keywords}
            metadata = given["metadata"]
            assert isinstance(metadata, ast.Dict)
            about = {_literal(key): _literal(value) for key, value in zip(metadata.keys, metadata.values, strict=True)}
            yield CliOption(
                node.target.id,
                kind,
                _literal(given.get("default")),
                about["help"],
                many,
                group="transformers.TrainingArguments",
                common=False,
                choices=tuple(about.get("choices") or ()),
            )


def _literal(node: ast.expr | None) -> Any:
    """Return the value of a literal, or None: some defaults and choices are computed."""
    try:
        return None if node is None else ast.literal_eval(node)
    except ValueError:
        return None
