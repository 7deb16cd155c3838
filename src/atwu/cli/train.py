"""`atwu unlearn` and `atwu finetune`."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from atwu.cli.options import Option, UsageError, option, options_of, settings
from atwu.cli.output import say, stand_out
from atwu.modeling.opening import Loading

RUN = "Run"
PARTS = ("forget_weight", "retain_weight", "beta", "rho", "scorer_every")
"""Numbers and settings of parts that the help shows; `atwu methods NAME` tells which ones a method has."""
ALIASES = {
    "learning_rate": ("--lr",),
    "num_train_epochs": ("--epochs",),
    "per_device_train_batch_size": ("--batch-size",),
}


def _with_aliases(options: Iterable[Option]) -> list[Option]:
    return [replace(each, alias=ALIASES.get(each.name, ())) for each in options]


def finetune_options() -> list[Option]:
    """What can be set about fine-tuning."""
    from atwu.training.options import FinetuneOptions

    return _with_aliases(options_of(FinetuneOptions, without=("output_dir",)))


def unlearn_options() -> list[Option]:
    """What can be set about unlearning, numbers and settings of all parts included."""
    from atwu.methods.parts import part_options
    from atwu.methods.plugins import load_plugins
    from atwu.training.options import UnlearnOptions

    load_plugins()
    parts = [
        Option(
            part.name,
            part.kind,
            None if part.number else part.default,  # a number that is not given is the method's own
            f"{part.help}.",
            group="Method" if part.name in PARTS else "Parts of methods",
            common=part.name in PARTS,
            choices=part.choices,
        )
        for part in part_options().values()
    ]
    fields = _with_aliases(options_of(UnlearnOptions, without=("output_dir", "part_options")))
    return sorted([*fields, *parts], key=lambda each: each.group != "Method")


def trainer_options() -> list[Option]:
    """What transformers' trainer can do besides."""
    from atwu.training.config import TokenTrainingConfig

    return [
        replace(each, group="Trainer of transformers")
        for each in options_of(TokenTrainingConfig, without=("output_dir",))
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
class Unlearn:
    """Unlearn rows from a model.

    Rows are JSONL, JSON, CSV or Parquet with question/answer, prompt/completion, messages or text columns. A run that was
    killed continues when the same command is given again.

    Example: atwu unlearn --model target --forget forget.jsonl --retain retain.jsonl --method atwu --output unlearned
    """

    model: str = option("Starting model: folder or Hub name.", alias=("-m",), group=RUN)
    forget: str = option("Rows to remove: file, Hub data set or people:SIZE:SPLIT.", group=RUN)
    retain: str | None = option("Rows to keep, same kinds.", None, group=RUN)
    output: str = option("Folder to create; appears when the run is finished.", alias=("-o",), group=RUN)
    overwrite: bool = option("Replace what is at --output.", False, group=RUN)
    config: Path | None = option(
        "Flat YAML of these options, or a preset such as tofu-1b/atwu; flags win.", None, group=RUN, find=preset_file
    )
    settings: dict[str, Any] = settings(unlearn_options, trainer_options)
    loading: Loading = option("", group="Loading the model", common=False)

    def run(self) -> None:
        """Unlearn, and say what to do next."""
        from atwu.modeling.load import quiet_transformers
        from atwu.training.config import UnlearnConfig
        from atwu.training.run import ModelSource, run_unlearn

        quiet_transformers()
        source = ModelSource(model=self.model, **asdict(self.loading))
        config = UnlearnConfig(**self.settings)
        with interruptible():
            finished = run_unlearn(
                source,
                config,
                forget=self.forget,
                retain=self.retain,
                output=self.output,
                overwrite=self.overwrite,
                say=say,
            )
        if first_process():
            say(f"unlearned model in {finished.output} ({finished.steps} steps, {finished.seconds:.0f} s)")
            sets = f"--forget {self.forget}" + (f" --retain {self.retain}" if self.retain else "")
            sets += f" --system {shlex.quote(config.system)}" if config.system else ""
            say(f"next: atwu evaluate --model {finished.output} {sets} --output eval.json")


@dataclass(kw_only=True)
class Finetune:
    """Train a model on rows, from a checkpoint or from nothing: targets and retain-only models.

    Example: atwu finetune --scratch tofu6m --data full.jsonl --learning-rate 1e-3 --num-train-epochs 20 --output target
    """

    model: str | None = option("Model to continue from: folder or Hub name.", None, alias=("-m",), group=RUN)
    scratch: str | None = option("Build a new Llama of this shape instead, e.g. tofu6m.", None, group=RUN)
    tokenizer: str | None = option("Tokenizer folder for --scratch; else trained on the data.", None, group=RUN)
    data: str = option("Training rows: file, Hub data set or people:SIZE:SPLIT.", alias=("-d",), group=RUN)
    output: str = option("Folder to create; appears when the run is finished.", alias=("-o",), group=RUN)
    overwrite: bool = option("Replace what is at --output.", False, group=RUN)
    config: Path | None = option("Flat YAML of these options (key: value); flags win.", None, group=RUN)
    settings: dict[str, Any] = settings(finetune_options, trainer_options)
    loading: Loading = option("", group="Loading the model", common=False)

    def run(self) -> None:
        """Train."""
        from atwu.modeling.load import quiet_transformers
        from atwu.training.config import FinetuneConfig
        from atwu.training.run import ModelSource, run_finetune

        if (self.model is None) == (self.scratch is None):
            raise UsageError("give either --model (continue from it) or --scratch (build a new one).")
        quiet_transformers()
        source = ModelSource(model=self.model, scratch=self.scratch, tokenizer=self.tokenizer, **asdict(self.loading))
        with interruptible():
            finished = run_finetune(
                source,
                FinetuneConfig(**self.settings),
                data=self.data,
                output=self.output,
                overwrite=self.overwrite,
                say=say,
            )
        if first_process():
            say(f"model in {finished.output} ({finished.steps} steps, {finished.seconds:.0f} s)")


def first_process() -> bool:
    """Whether this process speaks for all."""
    return os.environ.get("RANK", "0") == "0"


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Say how to go on when the user stops a run."""
    try:
        yield
    except KeyboardInterrupt:
        stand_out("stopped; the same command continues from the last checkpoint.")
        raise SystemExit(130) from None
