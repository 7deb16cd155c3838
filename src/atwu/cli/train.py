"""`atwu unlearn`, `atwu finetune` and `atwu plan`: train a model, and estimate the memory that it takes.

Their options are those of this package, of method components, and of transformers' `TrainingArguments`. The few of
transformers that people set have flags; the rest come as one JSON text, checked by `TrainingArguments` itself. Its
import takes seconds, so a typo in a flag is found without it.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from atwu._command import set_finished
from atwu._file_reading import parse_json, prefix_errors
from atwu._names import lookup
from atwu.cli.cli_options import (
    MORE_GROUP,
    CliOption,
    cli_option,
    cli_options_of,
    listed_options,
    read_config,
    values_of,
)
from atwu.cli.shared import ROWS_HELP, plain_table, say, terminal
from atwu.errors import UsageError
from atwu.modeling.open_model import ModelLoadArgs
from atwu.request.request_defaults import AUTO, DEFAULT_HOLDOUT, MAX_RETAIN_INCREASE

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
    from transformers import TrainingArguments  # takes seconds, so only if it is used

    # Checked against the fields of transformers by name, so that a typo is not carried into a run of hours.
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


def _component_option(part: ComponentOption) -> CliOption:
    """Return the option of a component as one of a command, with its help as sentences."""
    text = part.help
    if not text.partition(" ")[0].endswith(":"):  # a symbol before a colon keeps its case
        text = text[:1].upper() + text[1:]
    text += "."
    if part.number or part.default is None:
        text += " Default: the method's."
    option = CliOption.of(part, help=text, group="Method components", common=False)
    if part.number:  # each method has its own default, and some allow 0
        option = replace(option, default=None, least=0, above=None)
    if part.name in COMMON_COMPONENT_OPTIONS:
        option = replace(option, group="Method", common=True)
    return option


def unlearn_options() -> list[CliOption]:
    """Return the options of unlearning, including those of all method components."""
    from atwu.methods.component_registry import component_options, load_plugins
    from atwu.training.training_options import UnlearnOptions

    load_plugins()
    options = _training_options(UnlearnOptions) + [_component_option(part) for part in component_options().values()]
    for place, option in enumerate(options):
        if option.name not in CHOSEN:
            continue
        # The help says so in place of a default, which such an option does not take.
        about = f"{option.help} Default: chosen automatically."
        if option.help.endswith(" Default: the method's."):
            about = option.help.removesuffix(" the method's.") + " chosen automatically, or the method's."
        options[place] = replace(option, default=None, help=about)
    # `sorted` keeps the order of all other headings.
    return sorted(options, key=lambda option: option.group != "Method")


RUN = "Model and data"
MODEL_HELP = "folder, Hub name, smollm2, or a .gguf file"


def read_config_or_preset(path: Path) -> Mapping[str, Any]:
    """Return the options in the file, or those of the shipped preset with this name."""
    from atwu.methods.presets import named_preset

    name = path.as_posix()
    if path.is_file() or path.suffix or path.is_absolute():
        return read_config(path)
    if name.count("/") != 1:
        raise FileNotFoundError(f"--config {path} not found; give a YAML file, or a preset such as tofu-1b/atwu.")
    try:
        return named_preset(name).options
    except ValueError as error:
        raise FileNotFoundError(f"--config {path} not found; there is {error}") from None


@dataclass(kw_only=True)
class UnlearnCommand:
    """Unlearn a forget set from a model, and check whether the model has forgotten it.

    Needs the original model, what to forget (--forget or --about) and an output folder. Options that are not given are chosen
    and printed, unless a learning rate and a length are given. The method is atwu where it is not chosen: with
    these two, or with a component of one, such as --weighting. An adaptive controller evaluates during training, adjusts the
    learning rate and ends training; the command then measures the unlearned model and prints a verdict.

    --about NAME asks the model about a name and forgets what it says again in other ways of asking (see atwu ask). The rows are
    shown before training and written to OUTPUT/request/rows.jsonl.

    --forget ROWS are rows of your own: JSONL, JSON, CSV, Parquet or Arrow with columns question/answer, prompt/completion,
    messages or text; for others write FILE:question=COLUMN,answer=COLUMN. A text file (.txt, .md) is a document that the model
    is to recite no more; if every line of it ends with a question mark, the model answers these questions first, and forgets
    its answers.

    If the run is killed, repeat the command to resume it.

    The next request on the same model takes the unlearned model as --model: it reads what the earlier requests removed, keeps
    these rows out of what is retained, and asks for them again.

    Example: atwu unlearn --model smollm2 --about "Egypt" --output unlearned

    Example: atwu unlearn --model smollm2 --forget mine.jsonl --output unlearned
    """

    heading: ClassVar[str] = RUN
    model: str = cli_option(f"Original model: {MODEL_HELP}.", alias=("-m",))
    about: str | None = cli_option(
        "Name to forget, such as Egypt, or several with commas between them; in place of --forget.",
        None,
        excludes="forget",
    )
    kind: str | None = cli_option(
        "What the name is: person, place, organisation, work, event, product or substance. Default: as the model says.",
        None,
        needs="about",
        common=False,
    )
    forget: str | None = cli_option(
        "Forget rows: file, document or questions (.txt, .md), Hub data set or people:SIZE:SPLIT.", None
    )
    retain: str = cli_option(
        "Retain rows, same kinds of source; auto: self-generated answers to general questions.", AUTO
    )
    output: str = cli_option("Folder to create; it has this name only once the run is finished.", alias=("-o",))
    overwrite: bool = cli_option("Replace --output if it exists.", False)
    config: Path | None = cli_option(
        "YAML file of these options (key: value), or a preset such as tofu-1b/atwu; flags override it.",
        None,
        read=read_config_or_preset,
    )
    max_retain_increase: float = cli_option(
        "Largest accepted increase of the retain loss, in nats/token.", MAX_RETAIN_INCREASE, above=0
    )
    holdout: str = cli_option(
        "Holdout rows: similar to the forget rows, not in the training data; atwu evidence asks for these facts, too.",
        DEFAULT_HOLDOUT,
    )
    request_note: str | None = cli_option("Description of the request and who made it, for atwu evidence.", None)
    auto_memory: bool = cli_option(
        "Choose full fine-tuning, LoRA, quantization and activation checkpointing by the free memory, even if a learning "
        "rate and a run length are given. See atwu plan.",
        False,
        group=HARDWARE,
    )
    strict: bool = cli_option("Exit with code 3 unless the verdict is `forgotten`.", False)
    settings: dict[str, Any] = listed_options(unlearn_options)
    loading: ModelLoadArgs = cli_option("", group="Model loading", common=False)

    def run(self) -> None:
        if self.forget is None and self.about is None:
            raise UsageError(
                "nothing to forget; give --about NAME or --forget ROWS, as a flag or in the --config file."
            )
        if "method" in self.settings:  # before imports that take seconds
            from atwu.methods.recipe import recipe

            with prefix_errors(self.config):
                recipe(**{name: self.settings[name] for name in PARTS if name in self.settings})
        from atwu.request.auto_settings import with_method
        from atwu.request.unlearn import unlearn
        from atwu.training.config import UnlearnConfig
        from atwu.training.progress import Say, silent
        from atwu.training.unlearn_run import ModelSource

        self.settings = with_training_args(self.settings, unlearn_options())
        with prefix_errors(self.config):
            UnlearnConfig(**with_method(self.settings))  # before the model is loaded
        # One of several processes speaks for all.
        tell: Say = say if first_process() else silent
        request = values_of(
            self, "retain", "auto_memory", "holdout", "max_retain_increase", "about", "kind", "request_note"
        )
        request["options"] = self.settings
        request |= {"output": self.output, "overwrite": self.overwrite, "say": tell}
        done = unlearn(ModelSource(model=self.model, **asdict(self.loading)), self.forget, **request)
        set_finished()
        run = done.run
        if run is not None:
            tell(f"unlearned model in {run.output} ({run.steps} steps, {run.seconds:.0f} s)")
        tell(f"\n{done.summary()}")
        if self.strict and not done.good:
            # Not 1 or 2: a script can tell an unmet verdict from a failed command.
            raise SystemExit(3)


@dataclass(kw_only=True)
class FinetuneCommand:
    """Fine-tune a model, or train one from scratch, for example a target or a retain-only model.

    Example: atwu finetune --scratch tofu6m --data full.jsonl --learning-rate 1e-3 --num-train-epochs 20 --output target
    """

    heading: ClassVar[str] = RUN
    model: str | None = cli_option(f"Model to fine-tune: {MODEL_HELP}.", None, alias=("-m",))
    scratch: str | None = cli_option("Train a new Llama of this size from scratch instead, such as tofu6m.", None)
    tokenizer: str | None = cli_option(
        "Tokenizer folder for --scratch. Default: a tokenizer trained on the data.", None, needs="scratch"
    )
    data: str = cli_option("Training rows: file, Hub data set or people:SIZE:SPLIT.", alias=("-d",))
    output: str = cli_option("Folder to create; it has this name only once the run is finished.", alias=("-o",))
    overwrite: bool = cli_option("Replace --output if it exists.", False)
    config: Path | None = cli_option("YAML file of these options (key: value); flags override it.", None)
    settings: dict[str, Any] = listed_options(finetune_options)
    loading: ModelLoadArgs = cli_option("", group="Model loading", common=False)

    def run(self) -> None:
        from atwu.training.config import FinetuneConfig
        from atwu.training.unlearn_run import ModelSource, run_finetune

        if (self.model is None) == (self.scratch is None):
            raise UsageError("give exactly one of --model (fine-tune it) and --scratch (train a new model).")
        unused = [name for name in ("dtype", "base") if getattr(self.loading, name) != getattr(ModelLoadArgs(), name)]
        if self.scratch is not None and unused:
            raise UsageError(f"--scratch loads no weights; leave out {' and '.join(f'--{name}' for name in unused)}.")
        if "save_steps" in self.settings and self.settings.get("save_strategy") != "steps":
            raise UsageError("--save-steps has no effect without --save-strategy steps; give both or neither.")
        settings = with_training_args(self.settings, finetune_options())
        source = ModelSource(model=self.model, scratch=self.scratch, tokenizer=self.tokenizer, **asdict(self.loading))
        with prefix_errors(self.config):
            config = FinetuneConfig(**settings)
        finished = run_finetune(source, config, data=self.data, output=self.output, overwrite=self.overwrite, say=say)
        if first_process():
            say(f"model in {finished.output} ({finished.steps} steps, {finished.seconds:.0f} s)")


ITEMS = ("weights", "optimizer", "gradients", "activations", "peak")


@dataclass(kw_only=True)
class PlanCommand:
    """Estimate the memory of unlearning per strategy, and show which strategy fits.

    No weights are loaded. `atwu unlearn` uses the first strategy that fits, unless a learning rate and a length are given; then
    only with --auto-memory. Other options are those of `atwu unlearn`.

    Example: atwu plan --model smollm2 --forget mine.jsonl --device-memory 24GB
    """

    model: str = cli_option(f"Original model: {MODEL_HELP}.", alias=("-m",))
    forget: str = cli_option(f"Forget rows: {ROWS_HELP}.")
    retain: str = cli_option("Retain rows, likewise; auto: self-generated answers to general questions.", AUTO)
    device_memory: str | None = cli_option(
        "Memory of a CUDA device to plan for, such as 24GB. Default: this machine.", None
    )
    settings: dict[str, Any] = listed_options(unlearn_options)
    loading: ModelLoadArgs = cli_option("", group="Loading the model", common=False)

    def run(self) -> None:
        from atwu.benchmarks.sources import load_rows
        from atwu.modeling.device import free_memory
        from atwu.request.auto_settings import (
            batch_of,
            batch_size,
            chooses_method,
            first_that_fits,
            strategy_estimates,
            with_method,
        )
        from atwu.request.unlearning_request import flags
        from atwu.training.config import UnlearnConfig
        from atwu.training.load_to_train import ModelSource, check_adapter_options, load_checked_tokenizer

        settings = with_training_args(self.settings, unlearn_options())
        # The longest rows decide the memory of a batch.
        rows = load_rows(self.forget).rows
        kept = None
        if self.retain != AUTO:
            kept = load_rows(self.retain).rows
        # As `atwu unlearn` would choose it: fewer rows make smaller batches.
        size = batch_size(settings, len(rows))
        options = with_method(settings, rows) | {"per_device_train_batch_size": size}
        config = UnlearnConfig(**options)
        check_adapter_options(config)
        source = ModelSource(model=self.model, weights=False, **asdict(self.loading))
        device, free = config.device.type, float(free_memory(config.device))
        if self.device_memory is not None:
            device, free = "cuda", _bytes(self.device_memory)
        if config.quantize is not None and device != "cuda":
            raise UsageError(
                f"--quantize {config.quantize} needs a CUDA device; give the memory of one, such as --device-memory 24GB."
            )
        tokenizer = load_checked_tokenizer(source)
        batch = batch_of(rows, kept, config, tokenizer, adds=chooses_method(settings))
        say(
            f"{self.model} on {device}, {free / 1e9:.1f} GB free, up to {batch.input_ids.numel():,} tokens per batch. "
            "Memory in GB:\n"
        )
        estimates = list(strategy_estimates(source, options, batch, device=device, free=free))
        table = plain_table("strategy", *ITEMS, "", right=ITEMS)
        table.header_style = "dim"
        for column in table.columns[1:]:
            column.no_wrap = True
        for estimate in estimates:
            sizes = (f"{getattr(estimate.memory, name) / 1e9:.1f}" for name in ITEMS)
            table.add_row(estimate.strategy.description, *sizes, "fits" if estimate.fits else "")
        terminal().print(table)
        strategy = first_that_fits(estimates, device=device).strategy
        shown = strategy.description
        words = " ".join(flags(strategy.options))
        if words:
            shown += f" ({words})"
        say(f"\nfirst strategy that fits with 10 % of the memory unused: {shown}")


def _bytes(size: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(GB|GiB|MB)", size.strip())
    if match is None or not float(match[1]):
        raise UsageError(f"--device-memory must be a size such as 24GB or 80GiB, got {size!r}.")
    return float(match[1]) * {"GB": 1e9, "GiB": 2.0**30, "MB": 1e6}[match[2]]


def first_process() -> bool:
    return os.environ.get("RANK", "0") == "0"
