"""Experiments: `atwu study` runs, lists and compares studies, `atwu tune` finds the options of methods for them, and
`atwu demo` shows three methods on a small model.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atwu._command import command_line, program
from atwu._file_reading import printable
from atwu._files import write_text
from atwu.cli.cli_options import cli_option, values_of
from atwu.cli.shared import plain_table, say, stand_out, terminal
from atwu.cli.train import unlearn_options
from atwu.errors import UsageError
from atwu.judge.open_judge import JudgeOptions

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from atwu.experiments.search import SearchResult
    from atwu.experiments.study_models import Models
    from atwu.experiments.study_plan import StudyPlan


@dataclass(kw_only=True)
class StudyListCommand:
    """List the built-in studies and settings.

    Example: atwu study list
    """

    def run(self) -> None:
        from atwu.experiments.benchmark_settings import BENCHMARK_SETTINGS
        from atwu.experiments.study_file import library

        studies = plain_table("study", "question")
        for name, title in library().items():
            studies.add_row(name, title)
        settings = plain_table("setting", "benchmark", "original model", "about")
        for setting in BENCHMARK_SETTINGS.values():
            settings.add_row(setting.name, str(setting.benchmark), str(setting.target), setting.about)
        terminal().print(studies, "", settings, sep="\n")


@dataclass(kw_only=True)
class RayOptions:
    """Where runs and trials are done, if not on this machine."""

    cluster: str | None = cli_option("Ray cluster to run on: HOST:PORT of its head, or auto (extra `cluster`).", None)
    gpus_per_run: float | None = cli_option(
        "GPUs of the cluster for each run. Default: 1 if the cluster has GPUs.", None, least=0
    )


@dataclass(kw_only=True)
class StudyRunCommand:
    """Run a study. Finished runs are skipped; run the same command again to continue after an interruption.

    Writes one folder per run (settings, log, scorer, results), a table, the data and, with the extra `report`, report.html.

    Example: atwu study run headline --setting people-tiny
    """

    study: str = cli_option("YAML file, or name of a built-in study (see `atwu study list`).", positional=True)
    setting: str | None = cli_option(
        ("Setting: model, benchmark and training budget. Default: that of the study, else people-small."), None
    )
    output: Path | None = cli_option("Output folder. Default: runs/STUDY-SETTING.", None, alias=("-o",))
    seeds: int | None = cli_option("Number of seeds. Default: that of the study.", None, least=1)
    paraphrases: tuple[str, ...] = cli_option(
        "JSONL file with paraphrases of the evaluated questions (`atwu rows paraphrases`); repeatable.", ()
    )
    configuration: tuple[str, ...] = cli_option(
        (
            "Values of unset options of all variants: ours, authors (published code) or paper (its text); repeatable, "
            "to compare them. Default: ours."
        ),
        (),
    )
    only: tuple[str, ...] = cli_option("Run only the variant with this label; repeatable. Default: all variants.", ())
    processes: int | None = cli_option(
        "Number of parallel runs. Default: one per GPU, else one per core, at most 4.", None, least=1
    )
    ray: RayOptions = cli_option("")
    plan: bool = cli_option("Print the plan with its time estimate and stop.", False)
    presets: Path | None = cli_option(
        "Folder of preset files METHOD.yaml, as written by `atwu tune`. Default: those of the setting.", None
    )
    keep_models: bool = cli_option("Keep the weights of every run instead of deleting them after evaluation.", False)
    overwrite: bool = cli_option("Repeat runs that were made with other settings.", False)
    judging: JudgeOptions

    def run(self) -> None:
        from atwu.experiments.executors import open_executor
        from atwu.experiments.run_study import run_study, shared_judge, supported_plan
        from atwu.experiments.study_plan import plan_study
        from atwu.report.table_writers import headline_table
        from atwu.training.model_card import public_command

        planned = plan_study(
            self.study,
            self.setting,
            **values_of(self, "output", "seeds", "presets", "paraphrases", "only"),
            configurations=self.configuration,
        )
        planned = supported_plan(planned, without_rows=self.plan, say=say)
        # After the plan is checked: a cluster takes seconds to answer.
        executor = open_executor(
            self.processes,
            folder=planned.folder,
            threads=1,  # so that a result does not depend on the number of cores
            **vars(self.ray),
            say=say,
        )
        judging = shared_judge(self.judging, executor.slots)
        console = terminal()
        print_plan(console, planned.now, executor.slots)
        if self.plan:
            return
        with executor:
            result = run_study(
                planned,
                executor,
                judging=judging,
                **values_of(self, "keep_models", "overwrite"),
                command=public_command(command_line([*program(), *sys.argv[1:]])),
                say=say,
            )
        for name, error in result.failed.items():
            stand_out(f"{name} failed and is not in the table: {error}")
        if result.records is None:
            raise SystemExit(1)
        console.print(headline_table(result.records))
        for path in result.written:
            say(f"wrote {path}")
        if result.failed:  # after the table of the others, which may have taken a night
            raise SystemExit(1)


@dataclass(kw_only=True)
class StudyCompareCommand:
    """Compare a study with published results: numbers, and pairwise orderings of methods.

    Absolute numbers of a small model are not expected to match those of a large one; orderings can be compared.

    Example: atwu study compare runs/headline-people-small
    """

    folder: Path = cli_option("Folder of a finished study.", positional=True)
    table: str | None = cli_option("Published table to compare with. Default: the one that the study names.", None)

    def run(self) -> None:
        from atwu.experiments.published_comparison import (
            compare_orderings,
            comparison_table,
            not_compared,
            ordering_table,
            published_table,
            published_tables,
        )
        from atwu.report.read_records import read_records

        if self.folder.is_file():
            raise NotADirectoryError(f"{self.folder} is a file; give the output folder of `atwu study run`.")
        records = read_records([self.folder])
        name = self.table or records.study.get("published")
        if name is None:
            allowed = ", ".join(published_tables())
            raise ValueError(f"{self.folder} names no published table; give one with --table: {allowed}.")
        published, console = published_table(str(name)), terminal()
        console.print(comparison_table(records, published))
        for metric, compared in compare_orderings(records, published).items():
            console.print(ordering_table(metric, compared))
        missing = not_compared(records, published)
        if missing:
            say(f"not compared: {missing}")


def print_plan(console: Console, planned: StudyPlan, processes: int) -> None:
    """Print the variants of a study, their tuning budget, and the estimated duration."""
    from rich.text import Text

    from atwu.experiments.benchmark_settings import FinetunedTarget
    from atwu.experiments.experiment_run import format_options
    from atwu.report.metric_table import format_duration

    table = plain_table("variant", "method", "settings", "seeds", "finished")
    for label in dict.fromkeys(run.label for run in planned.runs):
        runs = [run for run in planned.runs if run.label == label]
        shared = planned.setting.training
        settings = format_options({name: value for name, value in runs[0].options.items() if shared.get(name) != value})
        seeds = ", ".join(str(run.seed) for run in runs)
        finished = sum(run.finished for run in runs)
        table.add_row(label, runs[0].method, settings or "published", seeds, f"{finished} of {len(runs)}")
    title = Text(printable(planned.study.title), "bold")
    console.print(Text.assemble(title, f" at setting {planned.setting.name}, in {planned.folder}"))
    console.print(table)
    console.print(f"tuning budget: {planned.budget}")
    seconds, source = planned.seconds_per_run()
    remaining = sum(not run.finished for run in planned.runs)
    # Rounded up: the last round takes as long with one run as with all slots.
    whole = -(-remaining // max(1, processes)) * seconds
    console.print(
        f"{remaining} of {len(planned.runs)} runs to do, {processes} in parallel, about {seconds:.0f} s each ({source}): "
        f"about {format_duration(whole)}"
    )
    setting = planned.setting
    if isinstance(setting.target, FinetunedTarget) and setting.target_seconds:
        console.print(f"plus the models of {setting.name}, if not cached: {format_duration(setting.target_seconds)}")


@dataclass(kw_only=True)
class TuneCommand:
    """Search hyperparameters of methods or of the variants of a study, with the same budget and sampler for all.

    Starts with the recommended values of each method. Run the same command again to continue an interrupted search:
    finished trials are kept, the others start again. Writes the best settings as OUTPUT/METHOD.yaml, for `atwu unlearn
    --config`, and all trials as OUTPUT/METHOD.trials.json. See docs/studies.md.

    Example: atwu tune --method atwu --method grad_diff --setting people-tiny --trials 20
    """

    method: tuple[str, ...] = cli_option("Method from `atwu methods`, or all; repeatable.", ())
    study: str | None = cli_option(
        "Tune every variant of a study instead: a YAML file or a name from `atwu study list`. Then: atwu study run "
        "STUDY --presets OUTPUT.",
        None,
    )
    setting: str | None = cli_option(
        "Setting by name (`atwu study list`), or a YAML file. Default: people-tiny, or that of the study.", None
    )
    trials: int = cli_option("Number of finished trials per method, including pruned ones.", 20, least=1)
    transfer_to: str | None = cli_option(
        "Second setting on which only the learning rate is searched again. The first stage uses --setting; default: "
        "its surrogate, or the second setting itself.",
        None,
    )
    transfer_trials: int = cli_option("Number of trials of the second stage.", 5, least=1)
    objective: str | None = cli_option(
        ("Objective: ES_delta, N_delta (rwku) or UQ (offline judge). Default: the setting's."), None
    )
    fixed: tuple[str, ...] = cli_option(
        "Fixed option of all runs as NAME=VALUE, such as weighting=entropy; repeatable.", (), flag="set"
    )
    seed: int = cli_option("Seed of the sampler and of the runs.", 0, least=0)
    storage: str | None = cli_option(
        "Storage: NAME.db (SQLite) or NAME.journal. Default: search.db in --output, else in runs/tune-SETTING of the "
        "first stage's setting, which second stages share.",
        None,
    )
    processes: int = cli_option("Number of parallel trials.", 1, least=1)
    ray: RayOptions = cli_option("")
    output: Path | None = cli_option(
        "Output folder. Default: runs/tune-SETTING for the setting of the presets.", None, alias=("-o",)
    )

    def run(self) -> None:
        options = dict(map(_setting, self.fixed))  # a typing error is answered before imports that take seconds
        from atwu.experiments.executors import open_executor
        from atwu.experiments.tune_methods import plan_tuning, tune_methods
        from atwu.training.model_card import public_command

        tuning = plan_tuning(
            self.method,
            **values_of(self, "study", "setting", "transfer_to", "output"),
            **values_of(self, "trials", "transfer_trials", "objective", "seed", "storage"),
            options=options,
        )
        folder, count = tuning.folder, len(tuning.variants)
        kind = "method" if self.study is None else "variant"
        if count > 1:
            kind += "s"
        say(f"{count} {kind} x {self.trials} trials at {tuning.first_stage.name}; storage {tuning.storage}")
        with open_executor(self.processes, folder=folder, **vars(self.ray), say=say) as executor:
            tuned = tune_methods(
                tuning, executor, command=public_command(command_line([*program(), *sys.argv[1:]])), say=say
            )
        searches = tuned.searches
        console = terminal()
        if searches:
            last = next(iter(searches.values()))[-1].search
            console.print(f"best settings at {last.setting.name}, seed {last.seed}", style="bold")
            console.print(best_table(searches))
            if self.study is not None:
                words = [*program(), "study", "run", self.study]
                setting = tuning.transfer_to or tuning.first_setting
                if setting:  # else the study's own
                    words += ["--setting", setting]
                say(f"\npresets in {folder}; next:\n  {command_line([*words, '--presets', str(folder)])}")
            else:
                say_use_of_presets(searches, folder, tuned.models)
        for name, reason in {**tuned.left_out, **tuned.failed}.items():
            stand_out(f"not tuned: {name}: {reason}")
        if tuned.failed or not searches:
            raise SystemExit(1)


def _setting(text: str) -> tuple[str, Any]:
    """NAME=VALUE with the value as YAML reads it."""
    from atwu._file_reading import parse_yaml
    from atwu._names import lookup

    name, equals, value = text.partition("=")
    name = name.strip().replace("-", "_")
    if not equals:
        raise UsageError(f"--set must be NAME=VALUE, got {text!r}.")
    lookup("option", name, dict.fromkeys(sorted(option.name for option in unlearn_options())))
    return name, parse_yaml(value, what=f"--set {name}")


def best_table(searches: Mapping[str, Sequence[SearchResult]]) -> Table:
    """Table of the best trial of every method, with its budget."""
    from atwu.experiments.experiment_run import format_options
    from atwu.experiments.search import OBJECTIVES

    objective = str(next(iter(searches.values()))[-1].search.objective)
    numbers = (objective, *OBJECTIVES[objective].names)
    table = plain_table("method", *numbers, "settings", "budget", right=numbers)
    for name, results in searches.items():
        best = results[-1].best
        budget = "; then ".join(result.budget for result in results)
        if best is None:
            table.add_row(name, "-", "", "", "all trials were pruned; lower --set learning_rate=...", budget)
            continue
        settings = results[-1].search.run_options(best.point)
        first = dict(sorted(settings.items(), key=lambda entry: entry[0] != "learning_rate"))
        values = ["" if value is None else f"{value:.3f}" for value in (best.value, best.forget, best.retain)]
        table.add_row(name, *values, format_options(first), budget)
    return table


def say_use_of_presets(searches: Mapping[str, Sequence[SearchResult]], folder: Path, models: Models) -> None:
    """Print the command that uses the first preset that was written, if any."""
    from atwu.experiments.study_models import needs_preferred_answers
    from atwu.experiments.study_plan import variant_name

    written = [name for name, results in searches.items() if results[-1].best is not None]
    if not written:
        return
    rows, search = models.benchmark, searches[written[0]][-1].search
    # Methods such as DPO need rows with a preferred answer.
    forget = rows.forget_source_for(paired=needs_preferred_answers(search.config()))
    preset = folder / f"{variant_name(written[0])}.yaml"
    words = [*program(), "unlearn", "--config", str(preset), "--model", models.target]
    words += ["--forget", forget, "--retain", rows.retain_source, "--output", "unlearned"]
    kind = "preset"
    if len(searches) > 1:
        kind = "presets"
    say(f"\n{kind} in {folder}; next:\n  {command_line(words)}")


@dataclass(kw_only=True)
class DemoCommand:
    """Unlearn fictitious people from a small model while it retains others.

    Trains the model first (cached for later runs), unlearns with GradDiff, WGA and ATWU, evaluates them together with
    the original and the retain-only model, and writes a page of token scores.

    Example: atwu demo --size small --output atwu-demo
    """

    size: str = cli_option(
        "Size of the built-in benchmark: tiny (about a minute) or small (several minutes).",
        "small",
        choices=("tiny", "small"),
    )
    output: Path = cli_option("Folder for models, results and the page.", Path("atwu-demo"), alias=("-o",))
    seed: int = cli_option("Seed of training and unlearning.", 0, least=0)

    def run(self) -> None:
        import time

        from atwu.experiments.demonstration import DEMO_COLUMNS, LEARNING_RATE, run_demo
        from atwu.report.heatmap import render_html, render_terminal
        from atwu.report.table_writers import models_terminal_table

        start = time.perf_counter()
        console = terminal()
        self.output.mkdir(parents=True, exist_ok=True)

        def say(line: str) -> None:
            console.print(f"{time.perf_counter() - start:5.0f} s  {line}", highlight=False, soft_wrap=True)

        demo = run_demo(self.size, self.output, seed=self.seed, say=say)
        page = self.output / "tokens.html"
        write_text(page, render_html(demo.scored, title="Which words are key tokens?"))
        console.print()
        # All results are of the same rows.
        counts = next(iter(demo.results.values())).rows
        sizes = ", ".join(f"{len(counts[split].ids)} {split} rows" for split in ("forget", "retain"))
        console.print(f"people:{self.size}, {sizes}, seed {self.seed}", highlight=False)
        console.print(models_terminal_table(demo.results, DEMO_COLUMNS))
        console.print()
        render_terminal(demo.scored[:3], console)
        console.print()
        say("done. Next steps:")
        rows_of = f"people:{self.size}"
        for line in (
            f"open {page} for the token scores of {len(demo.scored)} rows",
            f"atwu tokens --model {demo.folders['atwu']} --data {rows_of}:forget --score scorer",
            f"atwu evaluate --model {demo.folders['atwu']} --forget {rows_of}:forget",
            f"atwu unlearn --model {demo.target} --forget {rows_of}:forget --retain {rows_of}:retain "
            f"--method satimp --learning-rate {LEARNING_RATE:g} --output mine",
            "your own rows: a JSONL file with question and answer, see docs/data.md",
        ):
            console.print(f"  {line}", highlight=False, soft_wrap=True)
