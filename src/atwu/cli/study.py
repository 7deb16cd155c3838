"""`atwu study`: run, list and compare whole studies."""

from __future__ import annotations

import functools
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from atwu.cli.parameters import (
    Concurrency,
    JudgeKey,
    JudgeName,
    JudgePrice,
    JudgeReply,
    JudgeTimeout,
    JudgeUrl,
    MaxCost,
)

if TYPE_CHECKING:
    from atwu.evaluation.probe import ProbeResult
    from atwu.experiments.study.plan import Plan
    from atwu.report.records import Records

app = typer.Typer(no_args_is_help=True, help="Compare methods: plan, run, resume, and set beside published results.")


@app.command("list")
def studies() -> None:
    """List the built-in studies and the scales they run at."""
    from rich.console import Console
    from rich.table import Table

    from atwu.experiments.scales import SCALES
    from atwu.experiments.study.spec import library

    console = Console()
    table = Table("study", "what it asks", box=None, pad_edge=False)
    for name, title in library().items():
        table.add_row(name, title)
    console.print(table)
    console.print()
    table = Table("scale", "benchmark", "starting model", "about", box=None, pad_edge=False)
    for scale in SCALES.values():
        model = scale.target if isinstance(scale.target, str) else f"trained here ({scale.target.shape})"
        table.add_row(scale.name, str(scale.benchmark), model, scale.about)
    console.print(table)


@app.command()
def run(
    study: Annotated[str, typer.Argument(help="YAML file, or a built-in study from `atwu study list`.")],
    scale: Annotated[
        str | None, typer.Option(help="Where to run it; default: the study's own scale, else people-small.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Folder; default runs/STUDY-SCALE.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="How many seeds instead of the study's.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Only the line of this label; may be repeated.")] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Runs at once; default: one per GPU, else per core up to 4.")
    ] = None,
    devices: Annotated[str | None, typer.Option(help="CUDA devices to use, such as 0,1; default: all.")] = None,
    cluster: Annotated[
        str | None,
        typer.Option(help="Ray cluster that does the work: HOST:PORT of its head, or auto (`atwu[cluster]`)."),
    ] = None,
    gpus_per_run: Annotated[
        float | None, typer.Option(min=0, help="GPUs of the cluster for each run; default: one where it has any.")
    ] = None,
    plan_only: Annotated[bool, typer.Option("--plan", help="Print the plan with its estimate and stop.")] = False,
    presets: Annotated[
        Path | None, typer.Option(help="Folder of preset files METHOD.yaml instead of the scale's own (`atwu tune`).")
    ] = None,
    keep_models: Annotated[bool, typer.Option("--keep-models", help="Keep the weights of every run.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Do runs again that were made with other settings.")
    ] = False,
    judge: JudgeName = "offline",
    judge_url: JudgeUrl = None,
    judge_key: JudgeKey = "OPENAI_API_KEY",
    judge_price: JudgePrice = None,
    max_cost: MaxCost = None,
    judge_concurrency: Concurrency = 8,
    judge_timeout: JudgeTimeout = 60.0,
    judge_reply_tokens: JudgeReply = None,
) -> None:
    """Run a study; what is finished is skipped, and the same command continues one that was stopped.

    One folder per run (settings, log, scorer, measurements), a table, the data and report.html at the end.

    Example: atwu study run headline --scale people-tiny
    """
    from atwu.cli.opening import JudgeOptions, open_judge
    from atwu.experiments.places import chosen_devices, open_queue, visible_devices
    from atwu.experiments.study.conduct import plan_study, run_study
    from atwu.experiments.study.plan import check_settings
    from atwu.experiments.study.work import read_probe
    from atwu.experiments.targets import scale_rows
    from atwu.modeling.load import quiet_transformers
    from atwu.training.card import public_command

    quiet_transformers()
    whole = plan_study(study, scale, output=output, seeds=seeds, presets=presets)
    check_settings(whole.only(only or ()))
    left_out: list[str] = []
    try:
        rows = scale_rows(whole.scale)
    except FileNotFoundError as error:
        if not plan_only:
            raise
        typer.echo(f"lines that the rows do not allow are still counted: {error}")
    else:
        for line in rows.checked:
            typer.echo(line)
        whole = whole.possible_with(rows, say=left_out.append)
        for line in left_out:
            typer.echo(line)
    chosen = whole.only(only or ())
    queue = open_queue(
        processes,
        folder=whole.folder,
        threads=1,
        devices=chosen_devices(devices) if devices else visible_devices(),
        cluster=cluster,
        gpus_per_run=gpus_per_run,
        say=typer.echo,
    )
    options = JudgeOptions(
        judge_url,
        judge_key,
        judge_price,
        None if max_cost is None else max_cost / queue.slots,
        judge_concurrency,
        judge_timeout,
        judge_reply_tokens,
    )
    if not judge.startswith("local:"):  # which would be loaded here, beside the workers' models
        open_judge(judge, options)
    _print_plan(chosen, queue.slots)
    if plan_only:
        return
    with queue:
        found = run_study(
            whole,
            chosen,
            queue,
            judge=functools.partial(open_judge, judge, options),
            judge_name={"name": judge, "url": judge_url, "reply": judge_reply_tokens},
            keep_models=keep_models,
            overwrite=overwrite,
            command=public_command(f"atwu {shlex.join(sys.argv[1:])}"),
            left_out=tuple(left_out),
            say=typer.echo,
        )
    for name, failure in found.failed.items():
        typer.secho(f"{name} failed and is not in the table: {failure.reason}", fg=typer.colors.YELLOW, err=True)
    if found.records is None:
        raise typer.Exit(1)
    if found.stale:
        typer.secho(f"{found.stale} runs of other settings lie in the folder and are not in the table", err=True)
    _print_results(found.records)
    _print_probe(read_probe(whole.folder))
    for path in found.written:
        typer.echo(f"wrote {path}")
    if any(not failure.final for failure in found.failed.values()):
        raise typer.Exit(1)


def _print_plan(planned: Plan, processes: int) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("line", "method", "settings", "seeds", "finished", box=None, pad_edge=False)
    for label in dict.fromkeys(run.label for run in planned.runs):
        runs = [run for run in planned.runs if run.label == label]
        settings = ", ".join(
            f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in runs[0].options.items()
            if planned.scale.training.get(name) != value
        )
        table.add_row(
            label,
            runs[0].method,
            settings or "as published",
            ", ".join(str(run.seed) for run in runs),
            f"{sum(run.finished for run in runs)} of {len(runs)}",
        )
    console = Console()
    console.print(f"[bold]{planned.study.title}[/bold] at scale {planned.scale.name}, in {planned.folder}")
    console.print(table)
    console.print(f"tuning: {planned.budget}")
    seconds, source = planned.seconds_per_run()
    console.print(
        f"{len(planned.remaining)} of {len(planned.runs)} runs to do, {processes} at once, about {seconds:.0f} s each "
        f"({source}): about {_duration(planned.estimate(processes))}"
    )


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _print_results(records: Records) -> None:
    from rich.console import Console

    from atwu.report.terminal import headline_table

    Console().print(headline_table(records))


def _print_probe(results: list[ProbeResult]) -> None:
    """What a linear probe found, where the study asked for it."""
    if not results:
        return
    from rich.console import Console

    from atwu.report.probe import print_probe

    print_probe(Console(), results, title="a linear probe on the original model, trained on the annotation")


@app.command()
def compare(
    folder: Annotated[Path, typer.Argument(help="Folder of a study that was run.")],
    table: Annotated[str | None, typer.Option(help="Published table; default: the one the study names.")] = None,
) -> None:
    """Set a study beside published results: numbers, and which orderings of methods hold.

    Numbers of a small model are not expected to equal those of a large one; what can be compared is who is ahead of whom.

    Example: atwu study compare runs/headline-people-small
    """
    from rich.console import Console

    from atwu.experiments.study.compare import compared, set_beside
    from atwu.experiments.study.tables import ordering_table, side_by_side_table

    records, published = set_beside(folder, table)
    console = Console()
    console.print(side_by_side_table(records, published))
    for metric, found in compared(records, published).items():
        console.print(ordering_table(metric, found))
