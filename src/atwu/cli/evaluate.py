"""`atwu evaluate`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from atwu.cli import parameters as shared

_PROBES = "Variants and attacks"
_BENCHMARKS = "Benchmarks"


def evaluate(
    model: Annotated[
        str,
        typer.Option(
            "--model", "-m", help="Model to measure: folder (of an adapter, too), Hub name, or its name at --model-url."
        ),
    ],
    forget: Annotated[
        str | None, typer.Option(help="Rows that should be gone: file, Hub data set or people:SIZE:SPLIT.")
    ] = None,
    retain: Annotated[str | None, typer.Option(help="Rows that should be there, same kinds.")] = None,
    holdout: Annotated[
        str | None, typer.Option(help="Rows that no model was trained on, for membership attacks.")
    ] = None,
    keep: Annotated[
        list[str] | None, typer.Option(help="Further rows that should be there, as NAME=SOURCE; repeat for several.")
    ] = None,
    original: Annotated[
        str | None, typer.Option(help="Starting model, or its result file: adds FQ, RD, UQ, win rate, recovery.")
    ] = None,
    retain_only: Annotated[
        str | None,
        typer.Option(help="Model that never saw the forget rows, or its result file: forget quality, privleak."),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(help="Groups, comma-separated; list them with --list. Default: memorization,scores,rouge."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All groups whose rows are given.")] = False,
    list_groups: Annotated[
        bool,
        typer.Option(
            "--list", help="List the groups of metrics and stop.", is_eager=True, callback=lambda on: _list(on)
        ),
    ] = False,
    output: shared.Output = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most this many rows of each set, evenly spaced.")] = None,
    paraphrases: Annotated[
        int, typer.Option(min=0, help="Wordings of a question beside its own.", rich_help_panel=_PROBES)
    ] = 4,
    demonstrations: Annotated[
        int, typer.Option(min=0, help="Retain rows shown in in-context relearning.", rich_help_panel=_PROBES)
    ] = 3,
    samples: Annotated[
        int, typer.Option(min=1, help="Answers drawn per question in the sampling attack.", rich_help_panel=_PROBES)
    ] = 8,
    relearn_rows: Annotated[
        int, typer.Option(min=1, help="Rows of the relearning attack.", rich_help_panel=_PROBES)
    ] = 8,
    relearn_steps: Annotated[int, typer.Option(min=1, help="Its training steps.", rich_help_panel=_PROBES)] = 30,
    relearn_learning_rate: Annotated[
        float, typer.Option(help="Its learning rate; small models need about 3e-4.", rich_help_panel=_PROBES)
    ] = 2e-5,
    rwku: Annotated[
        Path | None,
        typer.Option(help="Folder with RWKU's probe files (forget_level1.jsonl ...).", rich_help_panel=_BENCHMARKS),
    ] = None,
    rwku_subjects: Annotated[
        str | None,
        typer.Option(
            help="Subjects, separated by ';'. Default: the ten of the ATWU paper.", rich_help_panel=_BENCHMARKS
        ),
    ] = None,
    rwku_flavour: Annotated[
        list[str] | None,
        typer.Option(help="official, port; repeat for both. Default: official.", rich_help_panel=_BENCHMARKS),
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option(help="Task of lm-evaluation-harness, such as mmlu; repeat.", rich_help_panel=_BENCHMARKS),
    ] = None,
    task_folder: Annotated[
        Path | None, typer.Option(help="Folder with task files of your own.", rich_help_panel=_BENCHMARKS)
    ] = None,
    task_limit: Annotated[
        int | None, typer.Option(min=1, help="At most this many rows per task.", rich_help_panel=_BENCHMARKS)
    ] = None,
    seed: Annotated[int, typer.Option(help="Of demonstrations, draws and attacks.", rich_help_panel=_PROBES)] = 42,
    judge: shared.JudgeName = "offline",
    judge_url: shared.JudgeUrl = None,
    judge_key: shared.JudgeKey = "OPENAI_API_KEY",
    judge_price: shared.JudgePrice = None,
    max_cost: shared.MaxCost = None,
    judge_concurrency: shared.Concurrency = 8,
    judge_timeout: shared.JudgeTimeout = 60,
    judge_reply_tokens: shared.JudgeReply = None,
    estimate: shared.EstimateOnly = False,
    max_length: shared.MaxLength = 512,
    system: shared.System = None,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Cap on a generated answer.")] = 64,
    batch_tokens: Annotated[int, typer.Option(min=1, help="Tokens per batch, read or generated.")] = 8192,
    backend: Annotated[str, typer.Option(help="What generates: transformers or vllm.")] = "transformers",
    model_url: Annotated[
        str | None,
        typer.Option(help="Measure --model behind this OpenAI-compatible server; only what generations tell."),
    ] = None,
    model_key: Annotated[
        str, typer.Option(help="Environment variable with the key of --model-url, if it needs one.")
    ] = "ATWU_MODEL_KEY",
    dtype: shared.Dtype = "auto",
    device: shared.Device = None,
    trust_remote_code: shared.RemoteCode = False,
    revision: shared.Revision = None,
    base: shared.Base = None,
    overwrite: shared.Overwrite = False,
) -> None:
    """Measure what a model still knows of forget rows and what it kept of retain rows.

    Generations and verdicts are stored as they come: an evaluation that is killed continues when the same command is given
    again, and nothing is paid for twice. Every number has a 95 % interval; docs/reading-results.md tells how to read them.

    Example: atwu evaluate -m unlearned --original target --forget forget.jsonl --retain retain.jsonl --all -o eval.json
    """
    from rich.console import Console

    from atwu.benchmarks.rwku.probes import CAPS, load_probes
    from atwu.benchmarks.rwku.subjects import CANONICAL_FORGET
    from atwu.benchmarks.rwku.tables import rwku_tables
    from atwu.benchmarks.spread import spread
    from atwu.cli.measuring import Measuring, check_names
    from atwu.cli.opening import JudgeOptions, open_judge, open_rows, warn_of_other_system
    from atwu.evaluation.config import EvaluateConfig
    from atwu.evaluation.panel import chosen, find_metric
    from atwu.modeling.load import quiet_transformers
    from atwu.report.terminal import panel_table

    quiet_transformers()
    if forget is None and retain is None and rwku is None and not task:
        raise typer.BadParameter("give --forget, --retain or both (or --rwku, or --task).")
    if everything and metrics:
        raise typer.BadParameter("give --all or --metrics, not both.")
    if backend not in ("transformers", "vllm"):
        raise typer.BadParameter(f"--backend must be transformers or vllm, got {backend!r}.")
    if rwku is None and (rwku_subjects or rwku_flavour):
        raise typer.BadParameter("--rwku-subjects and --rwku-flavour go with --rwku FOLDER.")
    wanted: Sequence[str] | str | None = "all" if everything else metrics.split(",") if metrics else None
    sources = {"forget": forget, "retain": retain, "holdout": holdout} | named_sets(keep or ())
    present = [name for name, source in sources.items() if source]
    present += ["rwku"] * (rwku is not None) + ["tasks"] * bool(task)
    groups = chosen(wanted, sets=present, weights=model_url is None)
    if estimate and not any(find_metric(name).judged for name in groups):
        raise typer.BadParameter(f"--estimate is about the judge, which none of {', '.join(groups)} asks.")
    config = EvaluateConfig(
        max_length=max_length,
        system=system,
        max_new_tokens=max_new_tokens,
        batch_tokens=batch_tokens,
        paraphrases=paraphrases,
        demonstrations=demonstrations,
        samples=samples,
        relearn_rows=relearn_rows,
        relearn_steps=relearn_steps,
        relearn_learning_rate=relearn_learning_rate,
        rwku_flavours=tuple(rwku_flavour or ("official",)),
        tasks=tuple(task or ()),
        task_folder=None if task_folder is None else str(task_folder),
        task_limit=task_limit,
        seed=seed,
    )
    names = {"original": original, "retain-only": retain_only}
    check_names(model, names, base=base, remote=model_url is not None, output=output, overwrite=overwrite)
    for name in dict.fromkeys([model, *names.values()]):
        if name is not None:
            warn_of_other_system(name, system)
    probes = None
    if rwku is not None:
        subjects = [name.strip() for name in rwku_subjects.split(";")] if rwku_subjects else CANONICAL_FORGET
        caps = {kind: min(cap, limit or cap) for kind, cap in CAPS.items()}
        probes = load_probes(rwku_tables(rwku), subjects=subjects, caps=caps)
        dropped = sum(probes.duplicates.values())
        typer.echo(f"rwku: {len(probes.probes)} probes, {dropped} exact duplicates dropped", err=True)
    rows = {name: open_rows(source) for name, source in sources.items()}
    few: dict[str, Any] = {name: spread(every, limit) for name, every in rows.items()}
    sets = {name: few.pop(name) for name in ("forget", "retain", "holdout")} | {"kept": few, "pool": rows["retain"]}
    asking = JudgeOptions(
        judge_url, judge_key, judge_price, max_cost, judge_concurrency, judge_timeout, judge_reply_tokens
    )
    asked = open_judge(judge, asking)
    measuring = Measuring(
        options={**sets, "probes": probes, "metrics": wanted, "config": config, "judge": asked},
        judge=asked,
        loading={"dtype": dtype, "device": device, "trust_remote_code": trust_remote_code},
        backend=backend,
        estimate_only=estimate,
    )
    found = measuring.references(names, output=output)
    if model_url is not None:
        result = measuring.endpoint(
            model, url=model_url, key=model_key, concurrency=judge_concurrency, references=found
        )
    else:
        result = measuring.model(model, references=found, revision=revision, base=base)
    if result is None:
        typer.echo(f"judge: {measuring.total()}")
        return
    if output is not None:
        result.write(output)
    Console().print(panel_table({**found, "unlearned" if found else model: result}))
    for warning in result.warnings:
        typer.secho(f"warning: {warning}", fg=typer.colors.YELLOW, err=True)
    if output is not None:
        typer.echo(f"written: {output}")


def named_sets(texts: Sequence[str]) -> dict[str, str]:
    """NAME=SOURCE pairs of --keep; names that mean something else are refused by `evaluate`."""
    from atwu.evaluation.columns import RESERVED

    found: dict[str, str] = {}
    for text in texts:
        name, _, source = text.partition("=")
        if not name or not source or name in RESERVED or name in found:
            raise typer.BadParameter(f"--keep must be NAME=SOURCE with a name of its own, got {text!r}.")
        found[name] = source
    return found


def _list(on: bool) -> None:
    if not on:
        return
    from atwu.evaluation.panel import listing

    typer.echo(listing())
    raise typer.Exit
