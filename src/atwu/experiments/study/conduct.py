"""A whole study from what was asked for: planned, run, and written down with its tables and page."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atwu._files import write_json
from atwu.experiments.jobs import only_here
from atwu.experiments.queue import Queue, Say
from atwu.experiments.run import Run, Setup, check_workers
from atwu.experiments.scales import find_scale
from atwu.experiments.study.plan import Plan, described, plan
from atwu.experiments.study.spec import read_study
from atwu.experiments.study.work import Failure, Work, failures
from atwu.experiments.targets import prepare_models
from atwu.judge.verdicts import Judge
from atwu.report.records import STUDY_NAME, Records, read_records

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)

DEFAULT_SCALE = "people-small"


@dataclass(frozen=True, slots=True)
class Conducted:
    """What a study came to."""

    records: Records | None
    """None where no run is finished."""
    failed: Mapping[str, Failure]
    """Runs that are not in the table, by name."""
    stale: int
    """Runs of other settings that lie in the folder."""
    written: tuple[Path, ...]

    def summary(self) -> str:
        """The headline table of what is finished, and what failed, for a terminal."""
        table = "no run is finished" if self.records is None else self.records.summary()
        return "\n".join([table, *(f"failed: {name}: {failure.reason}" for name, failure in self.failed.items())])

    def to_pandas(self) -> pd.DataFrame:
        """Every number of every model, one per row.

        Raises:
            ValueError: no run is finished.
        """
        if self.records is None:
            raise ValueError("no run of this study is finished; there are no numbers yet.")
        return self.records.to_pandas()

    def _repr_html_(self) -> str:
        return "<p>no run is finished</p>" if self.records is None else self.records._repr_html_()


def plan_study(
    study: str | Path,
    scale: str | None = None,
    *,
    output: Path | None = None,
    seeds: int | None = None,
    presets: Path | None = None,
    configurations: Sequence[str] = (),
    wordings: Sequence[str] = (),
) -> Plan:
    """The plan of a study, with what is left open decided.

    Args:
        scale: where to run it; None for the study's own, else people-small.
        output: folder; None for runs/STUDY-SCALE.
        presets: folder with preset files of one's own.
        configurations: whole configurations that every line is run under, side by side (`atwu.methods.configurations`).
        wordings: files with other wordings of the measured questions, instead of the scale's.

    Raises:
        ValueError, FileNotFoundError: unknown names, impossible settings.
    """
    written = read_study(study).under(configurations)
    place = find_scale(scale) if scale else written.scale or find_scale(DEFAULT_SCALE)
    if wordings:  # a scale whose rows have one wording asks for no other
        asked = {name: value for name, value in place.evaluation.items() if (name, value) != ("paraphrases", 0)}
        place = replace(place, wordings=tuple(wordings), evaluation=asked)
    if seeds is not None:
        written = written.with_seeds(seeds)
    return plan(written, place, output or Path("runs") / f"{written.name}-{place.name}", presets=presets)


def run_study(
    whole: Plan,
    runs: Sequence[Run],
    queue: Queue,
    *,
    judge: Callable[[], Judge] | None = None,
    judge_name: Mapping[str, Any] | None = None,
    keep_models: bool = False,
    overwrite: bool = False,
    command: str,
    left_out: tuple[str, ...] = (),
    say: Say = logger.info,
) -> Conducted:
    """Run what is not finished, and write table, data and page of everything that is.

    Args:
        runs: those of it that are to be done now.
        judge: opens the judge of a process; can be pickled.
        judge_name: how it was chosen, for what decides a result.
        left_out: lines that the rows do not allow, and why.

    Raises:
        ValueError: runs with other settings lie in the folder, another command is at work there, or those who do the work do
            not know a method.
    """
    folder = whole.folder
    if begun := [run for run in runs if not run.finished]:
        check_workers(queue, (run.method for run in begun), (run.options for run in begun), whole.metrics)
    setup = Setup(
        prepare_models(whole.scale, say=say),
        whole.scale,
        whole.metrics,
        judge,
        store=True,
        keep_models=keep_models,
        trace=whole.study.trace,
    )
    work = Work(whole, setup, judge_name=judge_name, device=queue.device, overwrite=overwrite, say=say)
    with only_here(folder):
        work.prepare(runs)
        # Written now as well, so that a report can be made of what is finished at any time.
        write_json(folder / STUDY_NAME, described(whole, command) | {"failed": {}, "left_out": left_out})
        work.work(runs, queue, progress=True)
        current = [run for run in whole.runs if work.settled(run)]
        failed = failures(current)
        found = {
            "budget": replace(whole, runs=tuple(current)).budget,
            "runs": [run.folder.name for run in current],
            "failed": {name: each.reason for name, each in failed.items()},
            "left_out": left_out,
        }
        write_json(folder / STUDY_NAME, described(whole, command) | found)
        stale = sum(run.folder.exists() for run in whole.runs) - len(current)
        if not any(run.finished for run in current):
            return Conducted(None, failed, stale, ())
        records = read_records([folder])
        return Conducted(records, failed, stale, write_outputs(records, folder, command=command, say=say))


def write_outputs(records: Records, folder: Path, *, command: str, say: Say) -> tuple[Path, ...]:
    """Table, data and page of a study; without matplotlib no page, and a line that says so."""
    from atwu.report.formats import to_csv, to_json
    from atwu.report.markdown import to_markdown
    from atwu.report.page.write import write_page

    texts = {"table.md": to_markdown(records), "results.csv": to_csv(records), "results.json": to_json(records)}
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    written = tuple(folder / name for name in texts)
    try:
        write_page(records, folder / "report.html", command=command)
    except ImportError as error:
        say(f"no report.html: {error}")
        return written
    return (*written, folder / "report.html")
