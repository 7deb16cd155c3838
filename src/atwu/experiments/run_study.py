"""Run a study: evaluate the reference models, do the runs of its plan, and write tables and the report page.

Finished runs are skipped. One process schedules the work and stores what determines a run's result before the run starts
(`jobs/`), so that results of other settings are never reused.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from atwu._cache import key_differences, run_key, short_hash
from atwu._file_reading import read_json
from atwu._files import file_digest, write_json, write_text
from atwu._manifest import MANIFEST_NAME, RECORD_NAME, damage
from atwu._progress import progress_bar
from atwu.errors import BudgetReachedError, WorkerError
from atwu.evaluation.registry import EvaluateConfig, check_installed
from atwu.evaluation.result import EvalResult
from atwu.experiments.executors import Executor, Task
from atwu.experiments.experiment_run import (
    ORIGINAL,
    RETAIN_ONLY,
    ExperimentRun,
    RunContext,
    begin_job,
    execute_run,
    job_of,
    lock_folder,
    reference_result,
)
from atwu.experiments.study_models import models_identity, needs_preferred_answers, prepare_models, setting_rows
from atwu.experiments.study_plan import StudyPlan, study_record
from atwu.judge.open_judge import JudgeOptions, open_judge
from atwu.report.read_records import read_records
from atwu.report.report_records import EVAL_NAME, STUDY_NAME, Records
from atwu.training.progress import Say
from atwu.training.run_folder import unfinished

logger = logging.getLogger(__name__)

REFERENCE_FOLDER = "references"
FAILED_NAME = "failed.json"


@dataclass(frozen=True, slots=True)
class StudyResult:
    records: Records | None
    failed: Mapping[str, str]
    """Errors of failed runs, which are not in the table, by name."""
    written: tuple[Path, ...]


class PlanExecution:
    """Does the runs of a plan; `overwrite` repeats runs that were made with other settings."""

    def __init__(
        self,
        plan: StudyPlan,
        setup: RunContext,
        *,
        device: str,
        overwrite: bool = False,
        say: Say = logger.info,
    ) -> None:
        self.plan, self._setup, self._overwrite, self._say = plan, setup, overwrite, say
        judge = setup.judging or JudgeOptions()
        named = {"name": judge.judge, "url": judge.judge_url, "reply": judge.judge_max_tokens}
        configs = {run.name: run.config(plan.setting) for run in plan.runs}
        # Two at most, since all runs share their models and rows: hashing them takes seconds.
        identities = {
            paired: models_identity(setup.models, paired=paired)
            for paired in {False, *map(needs_preferred_answers, configs.values())}
        }
        measured = {"metrics": list(plan.metrics), "evaluation": dict(plan.setting.evaluation)}
        around = {"judge": named, "device": device, "versions": identities[False]["versions"]}

        def job(run: ExperimentRun) -> dict[str, Any]:
            config, source = configs[run.name], plan.source(run)
            rate = run.options.get("learning_rate", plan.setting.learning_rate)
            identity = identities[needs_preferred_answers(config)]
            return run_key(
                "study run",
                options={
                    "method": run.method,
                    "seed": run.seed,
                    "training": {**plan.setting.training, "learning_rate": rate, **run.options},
                    "recipe": config.recipe().as_plain() | {"given": None},
                    **measured,
                },
                model=identity["models"],
                rows=identity["rows"],
                inputs={
                    **around,
                    # A file is known by its contents, a scorer by what determined its run.
                    "forget_words": None if config.forget_words is None else file_digest(config.forget_words),
                    "start": run.start,
                    "scorer_from": None if source is None else short_hash(job(source)),
                },
            )

        self.jobs = {run.name: job(run) for run in plan.runs}
        """Everything that determines a run's result, as plain JSON, by name of the run."""
        self._reference_job = run_key(
            "reference result",
            options=measured,
            model=identities[False]["models"],
            rows=identities[False]["rows"],
            inputs=around,
        )

    def settled(self, run: ExperimentRun) -> bool:
        """Whether a run with the plan's settings is finished or has failed."""
        ended = run.finished or (run.folder / FAILED_NAME).is_file()
        return ended and not self.other_settings(run)

    def other_settings(self, run: ExperimentRun) -> list[str]:
        """Names of the settings that the existing files of a run were made with other values of."""
        known, wanted = job_of(self.plan.folder, run.folder), self.jobs[run.name]
        if known is None:
            return ["unknown, since jobs/ has no record of them"]
        return key_differences(known, wanted)

    def prepare(self, runs: Iterable[ExperimentRun]) -> None:
        """Check the existing files of runs, and clear failures and, with `overwrite`, damaged ones."""
        for run in runs:
            failure = run.folder / FAILED_NAME
            if failure.is_file() and not self._overwrite and (run.folder / RECORD_NAME).is_file():
                failure.unlink()  # unlearning is finished, the evaluation failed
            elif failure.is_file():
                shutil.rmtree(run.folder)
            # Without a manifest the run was killed before its end, and goes on.
            wrong = None
            if (run.folder / MANIFEST_NAME).is_file():
                wrong = damage(run.folder, weights=False)
            if wrong:
                if not self._overwrite:
                    raise ValueError(f"{run.folder} is damaged ({wrong}); repeat such runs with --overwrite.")
                shutil.rmtree(run.folder)
            if self._overwrite or not (run.folder.exists() or unfinished(run.folder).exists()):
                continue
            names = self.other_settings(run)
            if names:
                raise ValueError(
                    f"{run.folder} was made with other settings ({', '.join(names)}); choose another --output, or "
                    "repeat such runs with --overwrite."
                )

    def work(self, runs: Sequence[ExperimentRun], executor: Executor) -> None:
        """Do the unfinished runs.

        A run that starts from another run's scorer waits for it. A failed run is recorded and skipped. When the judge's
        cost limit is reached, no further run starts.
        """
        waiting = {
            run.name: run
            for run in runs
            # The manifest is written last; without it the run was killed after its result was written.
            if not self.settled(run) or (run.finished and not (run.folder / MANIFEST_NAME).is_file())
        }
        if not waiting:
            return
        # Before any run: FQ, RD and UQ are relative to the original model.
        setup = replace(self._setup, references=self._references(executor))
        done = len(runs) - len(waiting)
        begun: dict[str, ExperimentRun] = {}

        def begin() -> tuple[str, Task] | None:
            # A copy, since a run that begins is taken out.
            for run in tuple(waiting.values()):
                source = self.plan.source(run)
                if source is not None and not self.settled(source):
                    continue
                begun[run.name] = waiting.pop(run.name)
                begin_job(self.plan.folder, run.folder, self.jobs[run.name])
                if source is None or source.finished:
                    return run.name, partial(execute_run, setup, run)
                _record_failure(run, WorkerError(f"{source.name}, whose scorer it starts from, failed."))
                bar.update()
            return None

        with progress_bar(total=len(runs), desc="runs", unit="run", initial=done) as bar:
            for name, _, error in executor.run(begin):
                if error is not None:  # other runs continue
                    _record_failure(begun[name], error)
                # Every further run would pay for training and then stop before its evaluation.
                if isinstance(error, BudgetReachedError):
                    waiting.clear()
                bar.update()

    def _references(self, executor: Executor) -> dict[str, EvalResult]:
        results: dict[str, EvalResult] = {}
        # The original model first: the retain-only one is compared with it.
        for role, name in ((ORIGINAL, self._setup.models.target), (RETAIN_ONLY, self._setup.models.retain_only)):
            file = self.plan.folder / REFERENCE_FOLDER / role / EVAL_NAME
            if name is None:
                continue
            if job_of(self.plan.folder, file.parent) != self._reference_job or not file.is_file():
                self._say(f"evaluating the {role} model")
                begin_job(self.plan.folder, file.parent, self._reference_job)
            setup = replace(self._setup, references=dict(results))
            results[role] = reference_result(executor, setup, role, file)
        return results


def _record_failure(run: ExperimentRun, error: Exception) -> None:
    run.folder.mkdir(parents=True, exist_ok=True)
    write_json(run.folder / FAILED_NAME, {"error": f"{type(error).__name__}: {error}"})
    logger.error("%s failed", run.name, exc_info=error)


def supported_plan(planned: StudyPlan, *, without_rows: bool = False, say: Say = logger.info) -> StudyPlan:
    """Drop and report the variants that the rows do not support; `without_rows` allows rows that are not available."""
    try:
        rows = setting_rows(planned.setting)
    except OSError as error:  # no such file, or no network
        if not without_rows:
            raise
        say(f"the rows are not available, so variants that they do not support are still counted: {error}")
    else:
        planned = planned.possible_with(rows)
        for warning in rows.warnings:
            say(f"{rows.name}: {warning}")
    for name, reason in planned.left_out.items():
        say(f"{name} is left out: {reason}")
    return planned


def shared_judge(judging: JudgeOptions, slots: int) -> JudgeOptions:
    """Return the judge options of one of several processes, with its share of the calls."""
    if judging.max_calls is not None:
        # Every process has its own judge, and they do not know of each other's calls.
        judging = replace(judging, max_calls=judging.max_calls // slots)
    open_judge(judging)  # wrong options fail before any run begins
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
    """Do unfinished runs of a plan of `supported_plan`, and write table, data and report page of all finished ones."""
    folder, runs = whole.folder, whole.now.runs
    if any(not run.finished for run in runs):  # a missing package is found before a model is trained
        check_installed(whole.metrics, EvaluateConfig(**whole.setting.evaluation))
    setup = RunContext(
        prepare_models(whole.setting, say=say),
        whole.setting,
        whole.metrics,
        judging=judging,
        store=True,
        keep_models=keep_models,
        trace=True,
    )
    work = PlanExecution(whole, setup, device=executor.device, overwrite=overwrite, say=say)
    # Two commands would take each other's runs for unfinished ones of a kill.
    with lock_folder(folder):
        work.prepare(runs)
        # Written before the runs, so that a report of the finished ones can be made at any time.
        write_json(folder / STUDY_NAME, study_record(whole, command, whole.runs, {}))
        work.work(runs, executor)
        current = [run for run in whole.runs if work.settled(run)]
        files = {run.name: run.folder / FAILED_NAME for run in current}
        failed = {name: str(read_json(file)["error"]) for name, file in files.items() if file.is_file()}
        write_json(folder / STUDY_NAME, study_record(whole, command, current, failed))
        if not any(run.finished for run in current):
            return StudyResult(None, failed, ())
        records = read_records([folder])
        return StudyResult(records, failed, write_outputs(records, folder, command=command, say=say))


def write_outputs(records: Records, folder: Path, *, command: str, say: Say) -> tuple[Path, ...]:
    """Write table, data and page of a study; without matplotlib only a message instead of the page."""
    from atwu.report.report_page import render_report_page
    from atwu.report.table_writers import WRITERS

    written = [folder / name for name in ("table.md", "results.csv", "results.json")]
    for path in written:
        write_text(path, WRITERS[path.suffix[1:]](records))
    page = folder / "report.html"
    try:
        write_text(page, render_report_page(records, command=command))
    except ImportError as error:  # the tables need no further packages, the page needs those of the extra report
        say(f"no report.html: {error}")
        return tuple(written)
    return (*written, page)
