"""`atwu unlearn` and `atwu finetune`."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atwu._file_reading import prefix_errors
from atwu.cli.cli_options import CliOption, UsageError, cli_option, cli_options_of, settings, values_of
from atwu.cli.output import say
from atwu.modeling.open_model import ModelLoadArgs

if TYPE_CHECKING:
    from atwu.request.sequential import SequentialResult
    from atwu.request.unlearn import UnlearnResult

RUN = "Run"
MODEL_HELP = "folder, Hub name, smollm2, or a .gguf file"
COMMON_COMPONENT_OPTIONS = ("forget_weight", "retain_weight", "beta", "rho", "scorer_every")
"""Numbers and settings of parts that the help shows; `atwu methods NAME` tells which ones a method has."""
ALIASES = {
    "learning_rate": ("--lr",),
    "num_train_epochs": ("--epochs",),
    "max_steps": ("--steps",),
    "per_device_train_batch_size": ("--batch-size",),
}
CHOSEN = (
    *("learning_rate", "lr_scheduler_type", "warmup_steps", "num_train_epochs", "max_steps"),
    *("per_device_train_batch_size", "gradient_accumulation_steps", "save_strategy", "save_steps"),
    *("lora_r", "quantize", "activation_checkpointing", "bf16"),
)
"""What `atwu unlearn` chooses unless it is given a learning rate and a length (`atwu.request.auto_settings`),
as the help shows it.
"""


def _with_aliases(options: Iterable[CliOption]) -> list[CliOption]:
    return [replace(each, alias=ALIASES.get(each.name, ())) for each in options]


def finetune_options() -> list[CliOption]:
    """What can be set about fine-tuning."""
    from atwu.training.training_options import TrainingOptions

    return _with_aliases(cli_options_of(TrainingOptions, without=("output_dir",)))


def unlearn_options() -> list[CliOption]:
    """What can be set about unlearning, numbers and settings of all parts included."""
    from atwu.methods.components import component_options
    from atwu.methods.plugins import load_plugins
    from atwu.training.training_options import UnlearnOptions

    load_plugins()
    parts = [
        CliOption(
            part.name,
            part.kind,
            None if part.number else part.default,  # a number that is not given is the method's own
            f"{part.help}.",
            group="Method" if part.name in COMMON_COMPONENT_OPTIONS else "Parts of methods",
            common=part.name in COMMON_COMPONENT_OPTIONS,
            choices=part.choices,
        )
        for part in component_options().values()
    ]
    fields = _with_aliases(cli_options_of(UnlearnOptions, without=("output_dir", "component_options")))
    fields = [
        replace(each, default=None, help=f"{each.help} Chosen if not given.") if each.name in CHOSEN else each
        for each in fields
    ]
    return sorted([*fields, *parts], key=lambda each: each.group != "Method")


@functools.cache
def trainer_options() -> list[CliOption]:
    """What transformers' trainer can do besides."""
    from atwu.training.config import TokenTrainingConfig

    return [
        replace(each, group="Trainer of transformers")
        for each in cli_options_of(TokenTrainingConfig, without=("output_dir",))
    ]


def preset_file(path: Path) -> Path:
    """The file, or that of the shipped preset of this name."""
    from atwu.methods.presets import named_preset

    if path.is_file():
        return path
    name = path.as_posix()
    hint = "" if path.suffix else " A preset is named like tofu-1b/atwu."
    if not path.suffix and not path.is_absolute() and name.count("/") == 1:
        try:
            return named_preset(name).path
        except ValueError as error:
            hint = f" There is {error}"
    raise FileNotFoundError(f"config {path} not found.{hint}")


@dataclass(kw_only=True)
class UnlearnCommand:
    """Unlearn rows from a model, and say whether it forgot them.

    Needs a model and the rows, nothing else: what is not set is chosen and printed with its reason, training watches itself,
    and a verdict ends it. Rows are JSONL, JSON, CSV, Parquet or Arrow with question/answer, prompt/completion, messages or text
    columns. A run that was killed continues when the same command is given again.

    With --ledger LEDGER the requests on one model follow each other: the first one starts the ledger and names the model.

    Example: atwu unlearn --model smollm2 --forget mine.jsonl --output unlearned
    """

    model: str | None = cli_option(f"Starting model: {MODEL_HELP}. (needed)", None, alias=("-m",), group=RUN)
    forget: str = cli_option("Rows to remove: file, Hub data set or people:SIZE:SPLIT.", group=RUN)
    retain: str = cli_option(
        "Rows to keep, same kinds; auto: the model's own answers to general questions.", "auto", group=RUN
    )
    output: str | None = cli_option(
        "Folder to create; appears when the run is finished. (needed)", None, alias=("-o",), group=RUN
    )
    ledger: str | None = cli_option(
        "Folder that remembers the requests on one model, new or not: goes on with the model of the last one, which needs no "
        "--model and no --output, and measures all earlier ones again.",
        None,
        group=RUN,
    )
    overwrite: bool = cli_option("Replace what is at --output.", False, group=RUN)
    config: Path | None = cli_option(
        "Flat YAML of these options, or a preset such as tofu-1b/atwu; flags win.", None, group=RUN, find=preset_file
    )
    max_retain_increase: float = cli_option(
        "Most that the loss of kept rows may rise, in nats per token.", 0.15, least=0, group=RUN
    )
    holdout: str = cli_option(
        "Rows like those to remove that no model saw, to compare with.", "people:small:holdout", group=RUN
    )
    thresholds: Path | None = cli_option(
        "YAML of limits that atwu evidence will compare with; written down before training. Default: the shipped ones.",
        None,
        group=RUN,
    )
    about: str | None = cli_option("Who asks for what, in words, for atwu evidence.", None, group=RUN, flag="request")
    auto_memory: bool = cli_option(
        "Choose all weights, adapters and checkpointing by memory, even with a learning rate and a length. See atwu plan.",
        False,
        group="Machine",
    )
    strict: bool = cli_option("End with an error unless the verdict is: forgotten.", False, group=RUN)
    settings: dict[str, Any] = settings(unlearn_options, trainer_options)
    loading: ModelLoadArgs = cli_option("", group="Loading the model", common=False)

    def run(self) -> None:
        """Unlearn, and say what became of it."""
        from atwu.request.sequential import unlearn_in_ledger
        from atwu.request.unlearn import unlearn
        from atwu.request.unlearning_request import RequestOptions
        from atwu.training.config import UnlearnConfig
        from atwu.training.progress import Say, silent
        from atwu.training.unlearn_run import ModelSource

        missing = [f"--{name}" for name in ("model", "output") if getattr(self, name) is None]
        if self.ledger is None and missing:
            raise UsageError(f"{' and '.join(missing)} missing; give as flags or in the --config file.")
        with prefix_errors(self.config):
            UnlearnConfig(**self.settings)
        tell: Say = say if first_process() else silent
        wishes = values_of(self, "retain", "auto_memory", "holdout", "max_retain_increase", "thresholds", "about")
        wishes["options"] = self.settings
        how: dict[str, Any] = {"output": self.output, "overwrite": self.overwrite, "say": tell}
        done: SequentialResult | UnlearnResult
        if self.ledger is not None:
            said = RequestOptions(**wishes)
            done = unlearn_in_ledger(self.ledger, self.forget, said, model=self.model, loading=self.loading, **how)
            outcome = done.outcome
        else:
            source = ModelSource(model=self.model, **asdict(self.loading))
            done = outcome = unlearn(source, self.forget, **wishes, **how)
        if outcome is not None and (run := outcome.run) is not None:
            tell(f"unlearned model in {run.output} ({run.steps} steps, {run.seconds:.0f} s)")
        tell(f"\n{done.summary()}")
        if self.strict and not done.good:
            raise SystemExit(3)


@dataclass(kw_only=True)
class FinetuneCommand:
    """Train a model on rows, from a checkpoint or from nothing: targets and retain-only models.

    Example: atwu finetune --scratch tofu6m --data full.jsonl --learning-rate 1e-3 --num-train-epochs 20 --output target
    """

    model: str | None = cli_option(f"Model to continue from: {MODEL_HELP}.", None, alias=("-m",), group=RUN)
    scratch: str | None = cli_option("Build a new Llama of this shape instead, e.g. tofu6m.", None, group=RUN)
    tokenizer: str | None = cli_option("Tokenizer folder for --scratch; else trained on the data.", None, group=RUN)
    data: str = cli_option("Training rows: file, Hub data set or people:SIZE:SPLIT.", alias=("-d",), group=RUN)
    output: str = cli_option("Folder to create; appears when the run is finished.", alias=("-o",), group=RUN)
    overwrite: bool = cli_option("Replace what is at --output.", False, group=RUN)
    config: Path | None = cli_option("Flat YAML of these options (key: value); flags win.", None, group=RUN)
    settings: dict[str, Any] = settings(finetune_options, trainer_options)
    loading: ModelLoadArgs = cli_option("", group="Loading the model", common=False)

    def run(self) -> None:
        """Train."""
        from atwu.training.config import FinetuneConfig
        from atwu.training.unlearn_run import ModelSource, run_finetune

        if (self.model is None) == (self.scratch is None):
            raise UsageError("give either --model (continue from it) or --scratch (build a new one).")
        source = ModelSource(model=self.model, scratch=self.scratch, tokenizer=self.tokenizer, **asdict(self.loading))
        with prefix_errors(self.config):
            config = FinetuneConfig(**self.settings)
        finished = run_finetune(source, config, data=self.data, output=self.output, overwrite=self.overwrite, say=say)
        if first_process():
            say(f"model in {finished.output} ({finished.steps} steps, {finished.seconds:.0f} s)")


def first_process() -> bool:
    """Whether this process speaks for all."""
    return os.environ.get("RANK", "0") == "0"
