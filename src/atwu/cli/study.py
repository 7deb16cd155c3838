"""`atwu study`: run, list and compare whole studies."""

from __future__ import annotations

import gc
import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    from atwu.experiments.study.plan import Plan
    from atwu.report.records import Records

app = typer.Typer(no_args_is_help=True, help="Compare methods: plan, run, resume, and set beside published results.")


@app.command("list")
def studies() -> None:
    """List the built-in studies and the scales they run at."""
    from rich.console import Console
    from rich.table import Table

    from atwu.experiments.study.scales import SCALES
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
    worker: Annotated[int, typer.Option("--worker", hidden=True)] = 0,
) -> None:
    """Run a study; what is finished is skipped, and the same command continues one that was stopped.

    One folder per run (settings, log, scorer, measurements), a table, the data and report.html at the end. The same command on
    another machine that shares the folder takes part in the work.

    Example: atwu study run headline --scale people-tiny
    """
    from atwu.cli.opening import JudgeOptions, open_judge
    from atwu.experiments.study.engine import Engine
    from atwu.experiments.study.plan import check_settings, plan
    from atwu.experiments.study.scales import find_scale
    from atwu.experiments.study.spec import read_study
    from atwu.experiments.study.targets import prepare_models
    from atwu.experiments.study.threads import one_thread
    from atwu.experiments.study.workers import end_with_parent
    from atwu.modeling.load import quiet_transformers

    quiet_transformers()
    written = read_study(study)
    place = find_scale(scale) if scale else written.scale or find_scale("people-small")
    if seeds is not None:
        written = written.with_seeds(seeds)
    folder = output or Path("runs") / f"{written.name}-{place.name}"
    planned = plan(written, place, folder, only=only or (), presets=presets)
    check_settings(planned)
    share = None if max_cost is None else max_cost / max(1, worker)
    options = JudgeOptions(
        judge_url, judge_key, judge_price, share, judge_concurrency, judge_timeout, judge_reply_tokens
    )
    chosen_judge = {"name": judge, "url": judge_url, "reply": judge_reply_tokens}
    if worker:
        end_with_parent()
        models = prepare_models(place, say=typer.echo)
        engine = Engine(
            planned.possible_with(models.benchmark, say=typer.echo),
            models,
            judge=open_judge(judge, options),
            judge_name=chosen_judge,
            keep_models=keep_models,
            overwrite=overwrite,
            say=typer.echo,
        )
        gc.freeze()  # half a million objects of imported libraries, which every collection would look at again
        with one_thread():
            engine.work()
        return
    if not judge.startswith("local:"):  # which would be loaded here, beside the workers' models
        open_judge(judge, options)
    everything = plan(written, place, folder, presets=presets)
    _run(
        planned,
        everything,
        devices=devices,
        processes=processes,
        plan_only=plan_only,
        overwrite=overwrite,
        judge_name=chosen_judge,
    )


def _run(
    planned: Plan,
    everything: Plan,
    *,
    devices: str | None,
    processes: int | None,
    plan_only: bool,
    overwrite: bool,
    judge_name: Mapping[str, Any],
) -> None:
    from atwu._files import write_json
    from atwu.experiments.study.engine import PROBE_NAME, REFERENCES, Engine
    from atwu.experiments.study.plan import described
    from atwu.experiments.study.summary import failures, write_outputs
    from atwu.experiments.study.targets import prepare_models, scale_rows
    from atwu.experiments.study.workers import chosen_devices, default_processes, run_workers, visible_devices
    from atwu.report.records import STUDY_NAME, read_records
    from atwu.training.card import public_command

    cards = chosen_devices(devices) if devices else visible_devices()
    count = processes or default_processes(cards)
    left_out: list[str] = []
    try:
        rows = scale_rows(planned.scale)
    except FileNotFoundError as error:
        if not plan_only:
            raise
        typer.echo(f"lines that the rows do not allow are still counted: {error}")
    else:
        for line in rows.checked:
            typer.echo(line)
        planned = planned.possible_with(rows, say=typer.echo)
        everything = everything.possible_with(rows, say=left_out.append)
    _print_plan(planned, count)
    if plan_only:
        return
    models = prepare_models(planned.scale, say=typer.echo)
    Engine(planned, models, overwrite=overwrite, judge_name=judge_name).prepare()
    planned.folder.mkdir(parents=True, exist_ok=True)
    command = _command()
    told = public_command(f"atwu {shlex.join(command)}")
    # Written now as well, so that a report can be made of what is finished at any time.
    write_json(planned.folder / STUDY_NAME, described(everything, told) | {"failed": {}, "left_out": left_out})
    if planned.remaining or overwrite:
        run_workers(command, planned, processes=min(count, len(planned.runs)), devices=cards)
    engine = Engine(everything, models, judge_name=judge_name)
    current = [run for run in everything.runs if engine.settled(run)]
    failed = failures(current)
    write_json(
        planned.folder / STUDY_NAME,
        described(everything, told)
        | {
            "budget": replace(everything, runs=tuple(current)).budget,
            "runs": [run.folder.name for run in current],
            "failed": {name: found.reason for name, found in failed.items()},
            "left_out": left_out,
        },
    )
    for name, found in failed.items():
        typer.secho(f"{name} failed and is not in the table: {found.reason}", fg=typer.colors.YELLOW, err=True)
    if not any(run.finished for run in current):
        raise typer.Exit(1)
    stale = sum(run.folder.exists() for run in everything.runs) - len(current)
    if stale:
        typer.secho(f"{stale} runs of other settings lie in the folder and are not in the table", err=True)
    records = read_records([planned.folder])
    _print_results(records)
    _print_probe(planned.folder / REFERENCES / "original" / PROBE_NAME)
    for path in write_outputs(records, planned.folder, command=told, say=typer.echo):
        typer.echo(f"wrote {path}")
    if any(not found.final for found in failed.values()):
        raise typer.Exit(1)


def _command() -> list[str]:
    """The arguments this process was started with."""
    return sys.argv[1:]


def _print_plan(planned: Plan, processes: int) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("line", "method", "settings", "seeds", "finished", box=None, pad_edge=False)
    for label in dict.fromkeys(run.variant.label for run in planned.runs):
        runs = [run for run in planned.runs if run.variant.label == label]
        settings = ", ".join(
            f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in runs[0].options.items()
            if planned.scale.training.get(name) != value
        )
        table.add_row(
            label,
            runs[0].variant.method,
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


def _print_probe(file: Path) -> None:
    """What a linear probe found, where the study asked for it."""
    if not file.is_file():
        return
    from rich.console import Console

    from atwu.evaluation.probe import ProbeResult
    from atwu.evaluation.token_scores import SampleAuroc
    from atwu.report.probe import print_probe

    plain = json.loads(file.read_text(encoding="utf-8"))["results"]
    results = [ProbeResult(**{**found, "auroc": SampleAuroc(**found["auroc"])}) for found in plain]
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

    from atwu.experiments.published import published_table
    from atwu.experiments.study.summary import compared
    from atwu.experiments.study.tables import ordering_table, side_by_side_table
    from atwu.report.records import read_records

    records = read_records([folder])
    name = table or records.study.get("published")
    if name is None:
        raise ValueError("this study names no published table to compare with; give one with --table.")
    published = published_table(str(name))
    console = Console()
    console.print(side_by_side_table(records, published))
    for metric, found in compared(records, published).items():
        console.print(ordering_table(metric, found))
