"""Execute a study plan: evaluate the reference models, then do the runs; finished runs are skipped.

One process schedules the work and stores what determines a run's result before the run starts (`jobs/`), so that
results of other settings are never reused.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from atwu._cache import short_hash
from atwu._file_reading import read_json
from atwu._files import file_digest, write_json
from atwu._manifest import MANIFEST_NAME, RECORD_NAME
from atwu._progress import progress_bar
from atwu.errors import BudgetReachedError, WorkerError
from atwu.evaluation.auroc import SampleAuroc
from atwu.evaluation.linear_probe import PROBE_SCHEMA as PROBE_SCHEMA
from atwu.evaluation.linear_probe import ProbeResult, labelled_rows, probe
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
    reference_result,
)
from atwu.experiments.study.study_plan import StudyPlan
from atwu.experiments.study_models import models_identity, needs_preferred_answers
from atwu.judge.open_judge import JudgeOptions
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.report.report_records import EVAL_NAME
from atwu.training.progress import Say
from atwu.training.run_folder import unfinished

logger = logging.getLogger(__name__)

REFERENCE_FOLDER = "references"
FAILED_NAME = "failed.json"
PROBE_NAME = "probe.json"


class PlanExecution:
    """Does the runs of a plan.

    Args:
        overwrite: repeat runs that were made with other settings.
    """

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
        self._probed = plan.folder / REFERENCE_FOLDER / ORIGINAL / PROBE_NAME
        judge = setup.judging or JudgeOptions()
        named = {"name": judge.judge, "url": judge.judge_url, "reply": judge.judge_max_tokens}
        self._judge_and_device = {"judge": named, "device": device}
        self._jobs: dict[str, dict[str, Any]] = {}
        self._identities: dict[bool, dict[str, Any]] = {}

    def job(self, run: ExperimentRun) -> dict[str, Any]:
        """Return everything that determines a run's result, as plain JSON."""
        if run.name not in self._jobs:
            setting, config, source = self.plan.setting, run.config(self.plan.setting), self.plan.source(run)
            rate = run.options.get("learning_rate", setting.learning_rate)
            self._jobs[run.name] = _plain(
                {
                    "method": run.method,
                    "seed": run.seed,
                    "options": dict(run.options),
                    "training": {**setting.training, "learning_rate": rate},
                    "evaluation": dict(setting.evaluation),
                    "metrics": list(self.plan.metrics),
                    "recipe": config.recipe().as_plain() | {"given": None},
                    **({} if config.forget_words is None else {"forget_words": file_digest(config.forget_words)}),
                    **self._identity(paired=needs_preferred_answers(config)),
                    **({} if run.start is None else {"start": run.start}),
                    **({} if source is None else {"scorer_from": short_hash(self.job(source))}),
                }
            )
        return self._jobs[run.name]

    def settled(self, run: ExperimentRun) -> bool:
        """Whether a run with the plan's settings is finished or has failed."""
        there = run.finished or (run.folder / FAILED_NAME).is_file()
        return there and job_of(self.plan.folder, run.folder) == self.job(run)

    def prepare(self, runs: Iterable[ExperimentRun]) -> None:
        """Check the existing files of runs, and clear failures."""
        for run in runs:
            failure = run.folder / FAILED_NAME
            if failure.is_file() and not self._overwrite and (run.folder / RECORD_NAME).is_file():
                failure.unlink()  # unlearning is finished, the evaluation failed
            elif failure.is_file():
                shutil.rmtree(run.folder)
            there = run.folder.exists() or unfinished(run.folder).exists()
            known, wanted = job_of(self.plan.folder, run.folder), self.job(run)
            if there and known != wanted and not self._overwrite:
                names = [name for name in wanted if (known or {}).get(name) != wanted[name]]
                raise ValueError(
                    f"{run.folder} was made with other settings ({', '.join(names)}); choose another --output, or "
                    "repeat such runs with --overwrite."
                )

    def work(self, runs: Sequence[ExperimentRun], executor: Executor, *, progress: bool = False) -> None:
        """Do the unfinished runs, and the linear probe if the study requests it.

        A run that starts from another run's scorer waits for it. A failed run is recorded and skipped. When the judge's
        cost limit is reached, no further run starts.
        """
        waiting = {
            run.name: run
            for run in runs
            # The manifest is written last; without it the run was killed after its result was written.
            if not self.settled(run) or (run.finished and not (run.folder / MANIFEST_NAME).is_file())
        }
        if not waiting and (not self.plan.study.probe or self._probed.is_file()):
            return
        references = self._references(executor)
        if self.plan.study.probe and not self._probed.is_file():
            self._say("probing the original model")
            task = Task(probe_original, (self._setup,), needs=self._setup.needs())
            write_json(self._probed, {"schema": PROBE_SCHEMA, "results": executor.run_one(PROBE_NAME, task)})
        begun: dict[str, ExperimentRun] = {}
        there = len(runs) - len(waiting)
        bar = progress_bar(total=len(runs), desc="runs", unit="run", shown=progress, initial=there)

        def begin() -> tuple[str, Task] | None:
            for run in tuple(waiting.values()):
                source = self.plan.source(run)
                if source is not None and not self.settled(source):
                    continue
                begun[run.name] = waiting.pop(run.name)
                begin_job(self.plan.folder, run.folder, self.job(run))
                if source is None or source.finished:
                    given, needs = (self._setup, run, references), self._setup.needs(run.options)
                    return run.name, Task(execute_run, given, run.folder, run.scorer_from, needs)
                finish(run.name, None, WorkerError(f"{source.name}, whose scorer it starts from, failed."))
            return None

        def finish(name: str, value: Any, error: Exception | None) -> None:
            if error is not None:  # is recorded, and other runs continue
                folder = begun[name].folder
                folder.mkdir(parents=True, exist_ok=True)
                write_json(folder / FAILED_NAME, {"error": f"{type(error).__name__}: {error}"})
                logger.error("%s failed", name, exc_info=error)
            if isinstance(error, BudgetReachedError):
                waiting.clear()
            bar.update()

        with bar:
            executor.run(begin, finish)

    def _identity(self, *, paired: bool = False) -> dict[str, Any]:
        """Return what identifies rows, models, judge and device."""
        if paired not in self._identities:
            self._identities[paired] = models_identity(self._setup.models, paired=paired)
        return {**self._identities[paired], **self._judge_and_device}

    def _references(self, executor: Executor) -> dict[str, EvalResult]:
        """Return the results of the original and the retain-only model, evaluating them if needed."""
        found: dict[str, EvalResult] = {}
        plan = self.plan
        job = _plain({"metrics": list(plan.metrics), "evaluation": dict(plan.setting.evaluation), **self._identity()})
        for role, name in ((ORIGINAL, self._setup.models.target), (RETAIN_ONLY, self._setup.models.retain_only)):
            file = plan.folder / REFERENCE_FOLDER / role / EVAL_NAME
            if name is None:
                continue
            if job_of(self.plan.folder, file.parent) != job or not file.is_file():
                self._say(f"evaluating the {role} model")
                begin_job(self.plan.folder, file.parent, job)
            found[role] = reference_result(executor, self._setup, role, dict(found), file)
        return found


def failures(runs: Iterable[ExperimentRun]) -> dict[str, str]:
    files = {run.name: run.folder / FAILED_NAME for run in runs}
    return {name: str(read_json(file)["error"]) for name, file in files.items() if file.is_file()}


def probe_original(setup: RunContext) -> list[dict[str, Any]]:
    """Train a linear probe on the original model; returns the results as plain JSON."""
    training = setup.setting.training
    given = {name: training[name] for name in ("system", "max_length") if training.get(name) is not None}
    rows = labelled_rows(setup.models.benchmark.forget)
    found = probe(*open_model(setup.models.target, ModelLoadArgs()), rows, progress=False, **given)
    return [dataclasses.asdict(result) for result in found]


def read_probe(folder: Path) -> list[ProbeResult]:
    """Read the linear probe results of a study; empty if the study did not request a probe."""
    file = folder / REFERENCE_FOLDER / ORIGINAL / PROBE_NAME
    plain = read_json(file)["results"] if file.is_file() else []
    return [ProbeResult(**{**found, "auroc": SampleAuroc(**found["auroc"])}) for found in plain]


def _plain(value: Mapping[str, Any]) -> dict[str, Any]:
    return dict(json.loads(json.dumps(value, default=str)))
