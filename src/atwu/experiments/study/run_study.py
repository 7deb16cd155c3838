"""Run a complete study: plan it, print the plan, do its runs, and write tables and the report page."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from atwu._file_reading import prefix_errors, printable
from atwu._files import check_output_folder, write_json, write_text
from atwu.evaluation.registry import EvaluateConfig, check_installed
from atwu.experiments.benchmark_settings import BENCHMARK_SETTINGS, FinetunedTarget, find_setting
from atwu.experiments.executors import Executor
from atwu.experiments.experiment_run import RunContext, format_options, lock_folder
from atwu.experiments.study.run_plan import PlanExecution, failures
from atwu.experiments.study.study_file import library, read_study
from atwu.experiments.study.study_plan import StudyPlan, plan, study_record
from atwu.experiments.study_models import prepare_models, setting_rows
from atwu.judge.open_judge import JudgeOptions, open_judge
from atwu.report.report_records import STUDY_NAME, Records
from atwu.report.run_records import read_records
from atwu.training.progress import Say

logger = logging.getLogger(__name__)

DEFAULT_SETTING = "people-small"


@dataclass(frozen=True, slots=True)
class StudyResult:
    """Result of a study."""

    records: Records | None
    failed: Mapping[str, str]
    """Errors of failed runs, which are not in the table, by name."""
    written: tuple[Path, ...]


def plan_study(
    study: str | Path,
    setting: str | None = None,
    *,
    output: Path | None = None,
    seeds: int | None = None,
    presets: Path | None = None,
    configurations: Sequence[str] = (),
    paraphrases: Sequence[str] = (),
    only: Sequence[str] = (),
) -> StudyPlan:
    """Plan a study: resolve defaults and check every option.

    Args:
        setting: setting to use; None for the study's own, else people-small.
        output: folder; None for runs/STUDY-SETTING.
        presets: folder with the user's preset files.
        configurations: configurations under which all variants run (`atwu.methods.recipe`).
        paraphrases: files with paraphrases of the evaluated questions, instead of the setting's.
        only: labels of the variants to run; empty for all.
    """
    with prefix_errors(study if Path(study).is_file() else None):
        written = read_study(study).under(configurations)
        chosen = find_setting(setting) if setting else written.setting or find_setting(DEFAULT_SETTING)
        if paraphrases:  # with one question per row, the setting does not ask for paraphrases
            asked = {name: value for name, value in chosen.evaluation.items() if (name, value) != ("paraphrases", 0)}
            chosen = replace(chosen, paraphrases=tuple(paraphrases), evaluation=asked)
        if seeds is not None:
            written = written.with_seeds(seeds)
        folder = output or Path("runs") / f"{written.name}-{chosen.name}"
        check_output_folder(folder)
        return plan(written, chosen, folder, presets=presets, only=only)


def supported_plan(planned: StudyPlan, *, without_rows: bool = False, say: Say = logger.info) -> StudyPlan:
    """Drop the variants of a plan that its rows do not support, and report them.

    Args:
        without_rows: keep the plan unchanged if the rows are not available.
    """
    checked: tuple[str, ...] = ()
    try:
        rows = setting_rows(planned.setting)
    except OSError as error:  # no such file, or no network
        if not without_rows:
            raise
        say(f"the rows are not available, so variants that they do not support are still counted: {error}")
    else:
        planned, checked = planned.possible_with(rows), rows.checked
    for line in (*checked, *planned.left_out):
        say(line)
    return planned


def shared_judge(judging: JudgeOptions, slots: int) -> JudgeOptions:
    """Return the judge options of one of several processes, with its share of the cost limit."""
    if judging.max_cost is not None:
        judging = replace(judging, max_cost=judging.max_cost / slots)
    if not judging.judge.startswith("local:"):  # a local judge would be loaded here, in addition to the workers' models
        open_judge(judging)
    return judging


def run_study(
    whole: StudyPlan,
    executor: Executor,
    *,
    judging: JudgeOptions,
    keep_models: bool = False,
    overwrite: bool = False,
    command: str,
    say: Say = logger.info,
) -> StudyResult:
    """Do unfinished runs, and write table, data and report page of all finished ones.

    Args:
        whole: plan from `supported_plan`.
        judging: judge options of each process (`shared_judge`).
    """
    folder, runs = whole.folder, whole.now.runs
    if any(not run.finished for run in runs):
        check_installed(whole.metrics, EvaluateConfig(**whole.setting.evaluation))
    setup = RunContext(
        prepare_models(whole.setting, say=say),
        whole.setting,
        whole.metrics,
        judging,
        store=True,
        keep_models=keep_models,
        trace=whole.study.trace,
    )
    work = PlanExecution(whole, setup, device=executor.device, overwrite=overwrite, say=say)
    with lock_folder(folder):
        work.prepare(runs)
        # Written before the runs, so that a report of the finished ones can be made at any time.
        write_json(folder / STUDY_NAME, study_record(whole, command, whole.runs, {}))
        work.work(runs, executor, progress=True)
        current = [run for run in whole.runs if work.settled(run)]
        failed = failures(current)
        write_json(folder / STUDY_NAME, study_record(whole, command, current, failed))
        if not any(run.finished for run in current):
            return StudyResult(None, failed, ())
        records = read_records([folder])
        return StudyResult(records, failed, write_outputs(records, folder, command=command, say=say))


def write_outputs(records: Records, folder: Path, *, command: str, say: Say) -> tuple[Path, ...]:
    """Write table, data and page of a study; without matplotlib only a message instead of the page."""
    from atwu.report.export_formats import WRITERS
    from atwu.report.page.report_page import render_report_page

    written = [folder / name for name in ("table.md", "results.csv", "results.json")]
    for path in written:
        write_text(path, WRITERS[path.suffix[1:]](records))
    page = folder / "report.html"
    try:
        write_text(page, render_report_page(records, command=command))
    except ImportError as error:
        say(f"no report.html: {error}")
        return tuple(written)
    return (*written, page)


def library_table() -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("study", "question"):
        table.add_column(name, overflow="fold")
    for name, title in library().items():
        table.add_row(name, title)
    return table


def settings_table() -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("setting", "benchmark", "original model", "about"):
        table.add_column(name, overflow="fold")
    for setting in BENCHMARK_SETTINGS.values():
        table.add_row(setting.name, str(setting.benchmark), str(setting.target), setting.about)
    return table


def print_plan(console: Console, planned: StudyPlan, processes: int) -> None:
    """Print the variants of a study, their tuning budget, and the estimated duration."""
    table = Table("variant", "method", "settings", "seeds", "finished", box=None, pad_edge=False)
    for label in dict.fromkeys(run.label for run in planned.runs):
        runs = [run for run in planned.runs if run.label == label]
        shared = planned.setting.training
        settings = format_options({k: value for k, value in runs[0].options.items() if shared.get(k) != value})
        table.add_row(
            label,
            runs[0].method,
            settings or "published",
            ", ".join(str(run.seed) for run in runs),
            f"{sum(run.finished for run in runs)} of {len(runs)}",
        )
    title = Text(printable(planned.study.title), "bold")
    console.print(Text.assemble(title, f" at setting {planned.setting.name}, in {planned.folder}"))
    console.print(table)
    console.print(f"tuning budget: {planned.budget}")
    seconds, source = planned.seconds_per_run()
    remaining = sum(not run.finished for run in planned.runs)
    whole = -(-remaining // max(1, processes)) * seconds
    console.print(
        f"{remaining} of {len(planned.runs)} runs to do, {processes} in parallel, about {seconds:.0f} s each ({source}): "
        f"about {_duration(whole)}"
    )
    setting = planned.setting
    if isinstance(setting.target, FinetunedTarget) and setting.target_seconds:
        console.print(f"plus the models of {setting.name}, if not cached: {_duration(setting.target_seconds)}")


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
