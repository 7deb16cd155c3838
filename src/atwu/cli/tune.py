"""`atwu tune`: search the numbers of methods by the same rules and with equal budgets."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from atwu.experiments.targets import Models
    from atwu.experiments.tuning.search import Search, SearchResult


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
    processes: Annotated[int, typer.Option(min=1, help="Trials at once.")] = 1,
    cluster: Annotated[
        str | None,
        typer.Option(help="Ray cluster that does the work: HOST:PORT of its head, or auto (`atwu[cluster]`)."),
    ] = None,
    gpus_per_run: Annotated[
        float | None, typer.Option(min=0, help="GPUs of the cluster for each trial; default: one where it has any.")
    ] = None,
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

    from atwu.experiments.places import open_queue, visible_devices
    from atwu.experiments.tuning.storage import masked, storage_url
    from atwu.experiments.tuning.tune import decide, tune_methods
    from atwu.modeling.load import quiet_transformers

    quiet_transformers()
    tuning = decide(
        method,
        benchmark=benchmark,
        scale=scale,
        transfer_to=transfer_to,
        output=output,
        storage=storage,
        trials=trials,
        transfer_trials=transfer_trials,
        objective=objective,
        options=dict(_setting(text) for text in fixed or ()),
        seed=seed,
    )
    folder, count = tuning.folder, len(tuning.methods)
    url = storage_url(tuning.storage, folder)
    say: Any = tqdm.write
    say(f"{count} method{'s' if count > 1 else ''} x {trials} trials at {tuning.here.name}; storage {masked(url)}")
    devices = visible_devices() if processes > 1 else ()
    try:
        with open_queue(
            processes, folder=folder, devices=devices, cluster=cluster, gpus_per_run=gpus_per_run, say=say
        ) as queue:
            done = tune_methods(tuning, queue, fixed=fixed or (), say=say)
    except KeyboardInterrupt:
        typer.secho("stopped; the same command continues.", fg=typer.colors.YELLOW, err=True)
        raise typer.Exit(130) from None
    found = done.searches
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
        _next_steps(found, folder, done.models)
    for name, reason in {**done.left_out, **done.failed}.items():
        typer.secho(f"not tuned: {name}: {reason}", fg=typer.colors.YELLOW, err=True)
    if done.failed or not found:
        raise typer.Exit(1)


def _setting(text: str) -> tuple[str, Any]:
    """NAME=VALUE with the value as YAML reads it, and 1e-5 as a number."""
    import yaml

    from atwu.methods.recipe import lookup
    from atwu.training.config import option_names

    name, equals, value = text.partition("=")
    name = name.strip().replace("-", "_")
    if not equals:
        raise typer.BadParameter(f"--set must be NAME=VALUE, got {text!r}.")
    lookup("option", name, dict.fromkeys(sorted(option_names())))
    found = yaml.safe_load(value)
    try:
        return name, float(found) if isinstance(found, str) else found  # YAML reads 1e-5 as text
    except ValueError:
        return name, found


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


def _summary(found: Mapping[str, Sequence[SearchResult]]) -> Any:
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


def _next_steps(found: Mapping[str, Sequence[SearchResult]], folder: Path, models: Models | None) -> None:
    """How to use what was written."""
    name = next((name for name, results in found.items() if results[-1].best is not None), None)
    if name is None or models is None:
        return
    rows = models.benchmark
    words = ["atwu", "unlearn", "--config", str(folder / f"{name}.yaml"), "--model", models.target]
    words += ["--forget", rows.forget_source, "--retain", rows.retain_source, "--output", "unlearned"]
    typer.echo(f"\npreset{'s' if len(found) > 1 else ''} in {folder}; next:")
    typer.echo(f"  {shlex.join(words)}")
