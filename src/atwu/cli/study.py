"""`atwu study`: run, list and compare studies."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from atwu.cli.cli_options import cli_option, values_of
from atwu.cli.shared import say, stand_out, terminal
from atwu.judge.open_judge import JudgeOptions


@dataclass(kw_only=True)
class StudyListCommand:
    """List the built-in studies and settings.

    Example: atwu study list
    """

    def run(self) -> None:
        from atwu.experiments.study.run_study import library_table, settings_table

        console = terminal()
        console.print(library_table())
        console.print()
        console.print(settings_table())


@dataclass(kw_only=True)
class StudyRunCommand:
    """Run a study. Finished runs are skipped; run the same command again to continue after an interruption.

    Writes one folder per run (settings, log, scorer, results), a table, the data and, with `atwu[report]`, report.html.

    Example: atwu study run headline --setting people-tiny
    """

    study: str = cli_option("YAML file, or name of a built-in study (see `atwu study list`).", positional=True)
    setting: str | None = cli_option(
        ("Setting: model, benchmark and training budget. Default: that of the study, else people-small."), None
    )
    output: Path | None = cli_option("Output folder. Default: runs/STUDY-SETTING.", None, alias=("-o",))
    seeds: int | None = cli_option("Number of seeds. Default: that of the study.", None, least=1)
    paraphrases: tuple[str, ...] = cli_option(
        "JSONL file with paraphrases of the evaluated questions (`atwu paraphrase`); repeatable.", ()
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
    devices: str | None = cli_option("CUDA devices to use, such as 0,1. Default: all.", None)
    cluster: str | None = cli_option("Ray cluster to run on: HOST:PORT of its head, or auto (`atwu[cluster]`).", None)
    gpus_per_run: float | None = cli_option(
        "GPUs of the cluster for each run. Default: 1 if the cluster has GPUs.", None, least=0
    )
    plan: bool = cli_option("Print the plan with its time estimate and stop.", False)
    presets: Path | None = cli_option(
        "Folder of preset files METHOD.yaml, as written by `atwu tune`. Default: those of the setting.", None
    )
    keep_models: bool = cli_option("Keep the weights of every run instead of deleting them after evaluation.", False)
    overwrite: bool = cli_option("Repeat runs that were made with other settings.", False)
    judging: JudgeOptions

    def run(self) -> None:
        from atwu.experiments.cluster import open_executor
        from atwu.experiments.study.run_plan import read_probe
        from atwu.experiments.study.run_study import plan_study, print_plan, run_study, shared_judge, supported_plan
        from atwu.report.terminal_tables import headline_table, print_probe
        from atwu.training.model_card import public_command

        planned = plan_study(
            self.study,
            self.setting,
            **values_of(self, "output", "seeds", "presets", "paraphrases", "only"),
            configurations=self.configuration,
        )
        planned = supported_plan(planned, without_rows=self.plan, say=say)
        executor = open_executor(
            self.processes,
            folder=planned.folder,
            threads=1,
            **values_of(self, "devices", "cluster", "gpus_per_run"),
            say=say,
        )
        judging = shared_judge(self.judging, executor.slots)
        console = terminal()
        print_plan(console, planned.now, executor.slots)
        if self.plan:
            return
        with executor:
            found = run_study(
                planned,
                executor,
                judging=judging,
                **values_of(self, "keep_models", "overwrite"),
                command=public_command(f"atwu {shlex.join(sys.argv[1:])}"),
                say=say,
            )
        for name, error in found.failed.items():
            stand_out(f"{name} failed and is not in the table: {error}")
        if found.records is None:
            raise SystemExit(1)
        console.print(headline_table(found.records))
        if probed := read_probe(planned.folder):
            print_probe(console, probed, title="linear probe on the original model, trained on labelled words")
        for path in found.written:
            say(f"wrote {path}")
        if found.failed:
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
        from atwu.experiments.study.published_comparison import (
            compare_orderings,
            comparison_table,
            load_comparison,
            ordering_table,
        )

        records, published = load_comparison(self.folder, self.table)
        console = terminal()
        console.print(comparison_table(records, published))
        for metric, found in compare_orderings(records, published).items():
            console.print(ordering_table(metric, found))
