"""`atwu study`: run, list and compare whole studies."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from atwu.cli.options import option, values_of
from atwu.cli.output import say, stand_out, terminal
from atwu.judge.opening import JudgeOptions


@dataclass(kw_only=True)
class List:
    """List the built-in studies and the scales they run at.

    Example: atwu study list
    """

    def run(self) -> None:
        """Print both tables."""
        from atwu.experiments.study.tables import library_table, scales_table

        console = terminal()
        console.print(library_table())
        console.print()
        console.print(scales_table())


@dataclass(kw_only=True)
class Run:
    """Run a study; what is finished is skipped, and the same command continues one that was stopped.

    One folder per run (settings, log, scorer, measurements); a table, the data and, with `atwu[report]`, report.html.

    Example: atwu study run headline --scale people-tiny
    """

    study: str = option("YAML file, or a built-in study from `atwu study list`.", positional=True)
    scale: str | None = option("Where to run it; default: the study's own scale, else people-small.", None)
    output: Path | None = option("Folder; default runs/STUDY-SCALE.", None, alias=("-o",))
    seeds: int | None = option("How many seeds instead of the study's.", None, least=1)
    wordings: tuple[str, ...] = option(
        "JSONL with other wordings of the measured questions (`atwu paraphrase`); may be repeated.", ()
    )
    configuration: tuple[str, ...] = option(
        "Settings of every line: ours, authors (published code) or paper (its text); repeat to set them side by side.",
        (),
    )
    only: tuple[str, ...] = option("Only the line of this label; may be repeated.", ())
    processes: int | None = option("Runs at once; default: one per GPU, else per core up to 4.", None, least=1)
    devices: str | None = option("CUDA devices to use, such as 0,1; default: all.", None)
    cluster: str | None = option(
        "Ray cluster that does the work: HOST:PORT of its head, or auto (`atwu[cluster]`).", None
    )
    gpus_per_run: float | None = option(
        "GPUs of the cluster for each run; default: one where it has any.", None, least=0
    )
    plan: bool = option("Print the plan with its estimate and stop.", False)
    presets: Path | None = option("Folder of preset files METHOD.yaml instead of the scale's own (`atwu tune`).", None)
    keep_models: bool = option("Keep the weights of every run.", False)
    overwrite: bool = option("Do runs again that were made with other settings.", False)
    judging: JudgeOptions

    def run(self) -> None:
        """Plan, run, print."""
        from atwu.experiments.places import open_queue
        from atwu.experiments.study.conduct import plan_study, run_study, settled_plan, shared_judge
        from atwu.experiments.study.tables import print_plan
        from atwu.experiments.study.work import read_probe
        from atwu.report.terminal import headline_table, print_probe
        from atwu.training.card import public_command

        planned = plan_study(
            self.study,
            self.scale,
            **values_of(self, "output", "seeds", "presets", "wordings", "only"),
            configurations=self.configuration,
        )
        planned = settled_plan(planned, without_rows=self.plan, say=say)
        queue = open_queue(
            self.processes,
            folder=planned.folder,
            threads=1,
            **values_of(self, "devices", "cluster", "gpus_per_run"),
            say=say,
        )
        judging = shared_judge(self.judging, queue.slots)
        console = terminal()
        print_plan(console, planned.now, queue.slots)
        if self.plan:
            return
        with queue:
            found = run_study(
                planned,
                queue,
                judging=judging,
                **values_of(self, "keep_models", "overwrite"),
                command=public_command(f"atwu {shlex.join(sys.argv[1:])}"),
                say=say,
            )
        for name, failure in found.failed.items():
            stand_out(f"{name} failed and is not in the table: {failure.error}")
        if found.records is None:
            raise SystemExit(1)
        if found.stale:
            stand_out(f"{found.stale} runs of other settings lie in the folder and are not in the table")
        console.print(headline_table(found.records))
        if probed := read_probe(planned.folder):
            print_probe(console, probed, title="a linear probe on the original model, trained on the annotation")
        for path in found.written:
            say(f"wrote {path}")
        if any(not failure.final for failure in found.failed.values()):
            raise SystemExit(1)


@dataclass(kw_only=True)
class Compare:
    """Set a study beside published results: numbers, and which orderings of methods hold.

    Numbers of a small model are not expected to equal those of a large one; what can be compared is who is ahead of whom.

    Example: atwu study compare runs/headline-people-small
    """

    folder: Path = option("Folder of a study that was run.", positional=True)
    table: str | None = option("Published table; default: the one the study names.", None)

    def run(self) -> None:
        """Print the numbers, then the orderings."""
        from atwu.experiments.study.compare import compared, set_beside
        from atwu.experiments.study.tables import ordering_table, side_by_side_table

        records, published = set_beside(self.folder, self.table)
        console = terminal()
        console.print(side_by_side_table(records, published))
        for metric, found in compared(records, published).items():
            console.print(ordering_table(metric, found))
