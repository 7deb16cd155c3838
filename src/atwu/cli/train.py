"""`atwu unlearn` and `atwu finetune`."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

INPUTS = ("model", "forget", "retain", "output", "dtype", "trust_remote_code", "revision", "base")
FINETUNE_INPUTS = ("model", "scratch", "tokenizer", "data", "output", "dtype", "trust_remote_code", "revision", "base")

Config = Annotated[Path | None, typer.Option("--config", help="Flat YAML of these options (key: value); flags win.")]
ConfigOrPreset = Annotated[
    Path | None,
    typer.Option("--config", help="Flat YAML of these options, or a preset such as tofu-1b/atwu; flags win."),
]
Output = Annotated[
    str | None, typer.Option("--output", "-o", help="Folder to create; appears when the run is finished.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is at --output.")]
Dtype = Annotated[str | None, typer.Option(help="Load weights as auto, float32, bfloat16 or float16.")]
Remote = Annotated[
    bool | None, typer.Option("--trust-remote-code", help="Run model code that comes with the checkpoint.")
]
Revision = Annotated[str | None, typer.Option(help="Branch, tag or commit of a Hub model.")]
Base = Annotated[str | None, typer.Option(help="Base model of an adapter folder, if not the one it names.")]


def _unlearn(
    *,
    model: Annotated[str | None, typer.Option("--model", "-m", help="Starting model: folder or Hub name.")] = None,
    forget: Annotated[str | None, typer.Option(help="Rows to remove: file, Hub data set or people:SIZE:SPLIT.")] = None,
    retain: Annotated[str | None, typer.Option(help="Rows to keep, same kinds.")] = None,
    output: Output = None,
    config: ConfigOrPreset = None,
    overwrite: Overwrite = False,
    dtype: Dtype = None,
    trust_remote_code: Remote = None,
    revision: Revision = None,
    base: Base = None,
    settings: dict[str, Any],
) -> None:
    """Unlearn rows from a model.

    Rows are JSONL, JSON, CSV or Parquet with question/answer, prompt/completion, messages or text columns. A run that was
    killed continues when the same command is given again.

    Example: atwu unlearn --model target --forget forget.jsonl --retain retain.jsonl --method atwu --output unlearned
    """
    from atwu.cli.options import choose, read_yaml
    from atwu.modeling.load import quiet_transformers
    from atwu.training.config import UnlearnConfig
    from atwu.training.run import ModelSource, run_unlearn

    quiet_transformers()
    values = read_yaml(config, inputs=INPUTS, config=UnlearnConfig, presets=True)
    chosen = {
        name: choose(name, flag, values) for name, flag in (("model", model), ("forget", forget), ("output", output))
    }
    _require(**chosen)
    source = ModelSource(
        model=str(chosen["model"]),
        dtype=str(choose("dtype", dtype, values, "auto")),
        trust_remote_code=bool(choose("trust_remote_code", trust_remote_code, values, False)),
        revision=choose("revision", revision, values),
        base=choose("base", base, values),
    )
    fields = {name: value for name, value in values.items() if name not in INPUTS} | settings
    kept = choose("retain", retain, values)
    with interruptible():
        finished = run_unlearn(
            source,
            UnlearnConfig(**fields),
            forget=str(chosen["forget"]),
            retain=kept,
            output=str(chosen["output"]),
            overwrite=overwrite,
            say=typer.echo,
        )
    if first_process():
        typer.echo(f"unlearned model in {finished.output} ({finished.steps} steps, {finished.seconds:.0f} s)")
        sets = f"--forget {chosen['forget']}" + (f" --retain {kept}" if kept else "")
        sets += f" --system {shlex.quote(fields['system'])}" if fields.get("system") else ""
        typer.echo(f"next: atwu evaluate --model {finished.output} {sets} --output eval.json")


def _finetune(
    *,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Model to continue from: folder or Hub name.")
    ] = None,
    scratch: Annotated[str | None, typer.Option(help="Build a new Llama of this shape instead, e.g. tofu6m.")] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="Tokenizer folder for --scratch; else trained on the data.")
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", "-d", help="Training rows: file, Hub data set or people:SIZE:SPLIT.")
    ] = None,
    output: Output = None,
    config: Config = None,
    overwrite: Overwrite = False,
    dtype: Dtype = None,
    trust_remote_code: Remote = None,
    revision: Revision = None,
    base: Base = None,
    settings: dict[str, Any],
) -> None:
    """Train a model on rows, from a checkpoint or from nothing: targets and retain-only models.

    Example: atwu finetune --scratch tofu6m --data full.jsonl --learning-rate 1e-3 --num-train-epochs 20 --output target
    """
    from atwu.cli.options import choose, read_yaml
    from atwu.modeling.load import quiet_transformers
    from atwu.training.config import FinetuneConfig
    from atwu.training.run import ModelSource, run_finetune

    quiet_transformers()
    values = read_yaml(config, inputs=FINETUNE_INPUTS, config=FinetuneConfig)
    flags = {"model": model, "scratch": scratch, "tokenizer": tokenizer, "dtype": dtype, "revision": revision}
    chosen = {name: choose(name, flag, values) for name, flag in flags.items()}
    needed = {"data": choose("data", data, values), "output": choose("output", output, values)}
    _require(**needed)
    if (chosen["model"] is None) == (chosen["scratch"] is None):
        raise typer.BadParameter("give either --model (continue from it) or --scratch (build a new one).")
    source = ModelSource(
        model=chosen["model"],
        scratch=chosen["scratch"],
        tokenizer=chosen["tokenizer"],
        dtype=chosen["dtype"] or "auto",
        trust_remote_code=bool(choose("trust_remote_code", trust_remote_code, values, False)),
        revision=chosen["revision"],
        base=choose("base", base, values),
    )
    fields = {name: value for name, value in values.items() if name not in FINETUNE_INPUTS} | settings
    with interruptible():
        finished = run_finetune(
            source,
            FinetuneConfig(**fields),
            data=str(needed["data"]),
            output=str(needed["output"]),
            overwrite=overwrite,
            say=typer.echo,
        )
    if first_process():
        typer.echo(f"model in {finished.output} ({finished.steps} steps, {finished.seconds:.0f} s)")


def first_process() -> bool:
    """Whether this process speaks for all."""
    return os.environ.get("RANK", "0") == "0"


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Say how to go on when the user stops a run."""
    try:
        yield
    except KeyboardInterrupt:
        typer.secho("stopped; the same command continues from the last checkpoint.", fg=typer.colors.YELLOW, err=True)
        raise typer.Exit(130) from None


def _require(**values: Any) -> None:
    missing = [f"--{name}" for name, value in values.items() if value is None]
    if missing:
        raise typer.BadParameter(f"{' and '.join(missing)} missing; give as flags or in the --config file.")


def unlearn_command(*, full: bool) -> Callable[..., None]:
    """The command; `full` adds one option per config field, which needs transformers."""
    return _with_options(_unlearn, "UnlearnConfig", full=full)


def finetune_command(*, full: bool) -> Callable[..., None]:
    """The command; `full` adds one option per config field, which needs transformers."""
    return _with_options(_finetune, "FinetuneConfig", full=full)


def _with_options(command: Callable[..., None], config_name: str, *, full: bool) -> Callable[..., None]:
    if not full:

        def named_only() -> None:
            pass

        named_only.__doc__ = command.__doc__
        return named_only
    from atwu.cli.options import with_config_options
    from atwu.training import config

    return with_config_options(command, getattr(config, config_name))
