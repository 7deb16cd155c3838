"""`atwu tune`: search the numbers of methods by the same rules and with equal budgets."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from atwu.experiments.study.scales import Scale
    from atwu.experiments.study.targets import Models
    from atwu.experiments.tuning.search import Search, SearchResult

SMALLEST = {"people": "people-tiny", "tofu": "tofu-small", "rwku": "rwku-small"}
"""Benchmark -> the scale that `--benchmark` stands for."""


def tune(
    method: Annotated[
        list[str], typer.Option("--method", help="Method from `atwu methods`, or all; repeat for several.")
    ],
    benchmark: Annotated[
        str | None, typer.Option(help="people, tofu or rwku: at their smallest scale. Default: people.")
    ] = None,
    scale: Annotated[
        str | None, typer.Option(help="Scale by name (`atwu study list`), or a YAML file, instead of --benchmark.")
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Finished trials per method, pruned ones included.")] = 20,
    transfer_to: Annotated[
        str | None,
        typer.Option(
            help="Scale where the learning rate is then searched again, all else fixed. The first stage is at --scale; "
            "default: its surrogate, or the scale itself."
        ),
    ] = None,
    transfer_trials: Annotated[int, typer.Option(min=1, help="Trials of that second stage.")] = 5,
    objective: Annotated[
        str | None, typer.Option(help="ES_delta, N_delta (rwku) or UQ (offline judge). Default: the scale's.")
    ] = None,
    fixed: Annotated[
        list[str] | None,
        typer.Option("--set", help="Option of all runs as NAME=VALUE, such as weighting=entropy; it is not searched."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the sampler and of the runs.")] = 0,
    storage: Annotated[
        str | None,
        typer.Option(
            envvar="ATWU_STORAGE",
            show_envvar=True,
            help="NAME.db (SQLite), NAME.journal, or a database such as postgresql://USER@HOST/NAME. "
            "Default: search.db in --output, else in runs/tune-SCALE of the first stage's scale, which transfers then share.",
        ),
    ] = None,
    processes: Annotated[int, typer.Option(min=1, help="Trials at once on this machine.")] = 1,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder; default runs/tune-SCALE, the scale that presets are for."),
    ] = None,
) -> None:
    """Search good settings for methods: the same budget, sampler and first points for all.

    Begins with the recommended values of each method. A search that was stopped, killed included, continues when the same
    command is given again, and asks for the same points as if nothing had happened. The best settings are written as
    OUTPUT/METHOD.yaml, for `atwu unlearn --config`; all trials as OUTPUT/METHOD.trials.json. See docs/tuning.md.

    Example: atwu tune --method atwu --method grad_diff --benchmark people --trials 20
    """
    from rich.console import Console
    from tqdm.auto import tqdm

    from atwu.experiments.study.scales import find_scale
    from atwu.experiments.study.targets import prepare_models
    from atwu.experiments.tuning.results import check_preset, write_results
    from atwu.experiments.tuning.search import AllPrunedError, NotPossibleError, Search, run_search
    from atwu.experiments.tuning.stages import two_stage
    from atwu.experiments.tuning.storage import FILE_NAME, masked, storage_url
    from atwu.experiments.tuning.trial import check_rows
    from atwu.modeling.load import quiet_transformers

    if benchmark is not None and scale is not None:
        raise typer.BadParameter("give --benchmark or --scale, not both.")
    if benchmark is not None and benchmark not in SMALLEST:
        raise typer.BadParameter(f"--benchmark must be {', '.join(SMALLEST)}, got {benchmark!r}.")
    quiet_transformers()
    first = _first_scale(benchmark, scale, transfer_to)
    here, there = find_scale(first), find_scale(transfer_to or first)
    names, every = _methods(method)
    folder = output or Path("runs") / f"tune-{there.name}"
    storage = storage or str((output or Path("runs") / f"tune-{here.name}").absolute() / FILE_NAME)
    options = dict(_setting(text) for text in fixed or ())
    check_preset(there, options)
    url = storage_url(storage, folder)
    say: Any = tqdm.write
    say(f"{len(names)} method{'s' if len(names) > 1 else ''} x {trials} trials at {here.name}; storage {masked(url)}")
    ready: dict[str, Models] = {}

    def models_of(scale: Scale) -> Models:
        if scale.name not in ready:
            ready[scale.name] = prepare_models(scale, say=say)
        return ready[scale.name]

    def run(search: Search) -> SearchResult:
        models = models_of(search.scale)
        return run_search(search, models, folder=folder, processes=processes, progress=True, say=say)

    found: dict[str, list[SearchResult]] = {}
    left_out: dict[str, str] = {}
    failed: dict[str, str] = {}
    for name in names:
        search = Search(name, there, options, trials, seed, objective, storage)
        transfer = None if transfer_to is None else (transfer_to, transfer_trials)
        command = _command(search, first, transfer, fixed or ())
        try:
            if transfer_to is None:
                found[name] = [run(search)]
            else:
                check_rows(search, models_of(there))  # before the first stage is paid for
                stages = two_stage(search, run, surrogate=here, transfer_trials=transfer_trials)
                found[name] = [stages.first, stages.second]
            write_results(found[name], folder, command=command)
        except KeyboardInterrupt:
            typer.secho("stopped; the same command continues.", fg=typer.colors.YELLOW, err=True)
            raise typer.Exit(130) from None
        except NotPossibleError as error:
            if not every:
                raise ValueError(f"{name} cannot be tuned: {error}") from None
            left_out[name] = str(error)
        except AllPrunedError as error:  # its budget is spent; the other methods still have theirs
            failed[name] = str(error)
    console = Console()
    if len(found) == 1:
        for result in next(iter(found.values())):
            console.print(f"[bold]{result.search.label}[/bold]: all trials, * the best")
            console.print(_trials(result))
            console.print()
    if found:
        last = next(iter(found.values()))[-1].search
        console.print(f"[bold]best settings[/bold] at {last.scale.name}, seed {last.seed}")
        console.print(_summary(found))
        _next_steps(found, folder, ready[there.name])
    for name, reason in {**left_out, **failed}.items():
        typer.secho(f"not tuned: {name}: {reason}", fg=typer.colors.YELLOW, err=True)
    if failed or not found:
        raise typer.Exit(1)


def _first_scale(benchmark: str | None, scale: str | None, transfer_to: str | None) -> str:
    """Where everything is searched, as it was given."""
    from atwu.experiments.study.scales import find_scale

    if scale is not None:
        return scale
    if benchmark is not None or transfer_to is None:
        return SMALLEST[benchmark or "people"]
    return find_scale(transfer_to).surrogate or transfer_to


def _methods(given: Sequence[str]) -> tuple[list[str], bool]:
    """Names without repetition, and whether all are meant."""
    from atwu.methods.plugins import load_plugins
    from atwu.methods.recipe import lookup
    from atwu.methods.table import METHODS

    load_plugins()
    if "all" in given:
        return list(METHODS), True
    for name in given:
        lookup("method", name, METHODS)
    return list(dict.fromkeys(given)), False


def _setting(text: str) -> tuple[str, Any]:
    """NAME=VALUE with the value as YAML reads it, and 1e-5 as a number."""
    import dataclasses

    import yaml

    from atwu.methods.recipe import lookup
    from atwu.training.config import UnlearnConfig

    name, equals, value = text.partition("=")
    name = name.strip().replace("-", "_")
    if not equals:
        raise typer.BadParameter(f"--set must be NAME=VALUE, got {text!r}.")
    lookup("option", name, {field.name: field for field in dataclasses.fields(UnlearnConfig) if field.init})
    found = yaml.safe_load(value)
    try:
        return name, float(found) if isinstance(found, str) else found  # YAML reads 1e-5 as text
    except ValueError:
        return name, found


def _command(search: Search, first: str, transfer: tuple[str, int] | None, fixed: Sequence[str]) -> str:
    """The command for one method, with scales as they were given and without what changes no result."""
    words = ["atwu", "tune", "--method", search.method, "--scale", first, "--trials", str(search.trials)]
    if transfer is not None:
        words += ["--transfer-to", transfer[0], "--transfer-trials", str(transfer[1])]
    words += ["--objective", search.objective] if search.objective is not None else []
    words += ["--seed", str(search.seed)] if search.seed else []
    return shlex.join([*words, *(word for text in fixed for word in ("--set", text))])


def _short(value: float | None, search: Search) -> str:
    from atwu.experiments.tuning.objectives import OBJECTIVES

    return "" if value is None else f"{value:.{OBJECTIVES[str(search.objective)].digits}f}"


def _trials(result: SearchResult) -> Any:
    """All trials of one search, in the order they were asked for."""
    from rich.table import Table

    names = list(result.search.space or {})
    table = Table(box=None, pad_edge=False)
    for name in ("trial", str(result.search.objective), *(name.replace("_", " ") for name in names), "s"):
        table.add_column(name, justify="right")
    for trial in result.trials:
        mark = "*" if trial is result.best else ""
        value = "pruned" if trial.value is None else _short(trial.value, result.search)
        point = [f"{trial.point[name]:.3g}" for name in names]
        table.add_row(f"{mark}{trial.number}", value, *point, f"{trial.seconds:.1f}")
    return table


def _summary(found: dict[str, list[SearchResult]]) -> Any:
    """The best of every method with its budget."""
    from rich.table import Table

    from atwu.experiments.tuning.objectives import OBJECTIVES

    table = Table(box=None, pad_edge=False)
    objective = str(next(iter(found.values()))[-1].search.objective)
    for name in ("method", objective, *OBJECTIVES[objective].names, "settings", "budget"):
        table.add_column(name, justify="left" if name in ("method", "settings", "budget") else "right")
    for name, results in found.items():
        best = results[-1].best
        budget = "; then ".join(each.budget for each in results)
        if best is None:
            table.add_row(name, "-", "", "", "all trials were pruned; lower --set learning_rate=...", budget)
            continue
        search = results[-1].search
        settings = search.run_options(best.point)
        text = ", ".join(
            f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}"
            for key, value in sorted(settings.items(), key=lambda entry: entry[0] != "learning_rate")
        )
        values = [_short(value, search) for value in (best.value, best.forget, best.retain)]
        table.add_row(name, *values, text, budget)
    return table


def _next_steps(found: dict[str, list[SearchResult]], folder: Path, models: Models) -> None:
    """How to use what was written."""
    name = next((name for name, results in found.items() if results[-1].best is not None), None)
    if name is None:
        return
    rows = models.benchmark
    words = ["atwu", "unlearn", "--config", str(folder / f"{name}.yaml"), "--model", models.target]
    words += ["--forget", rows.forget_source, "--retain", rows.retain_source, "--output", "unlearned"]
    typer.echo(f"\npreset{'s' if len(found) > 1 else ''} in {folder}; next:")
    typer.echo(f"  {shlex.join(words)}")
