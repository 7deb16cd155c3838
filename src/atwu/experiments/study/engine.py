"""Running a plan: models that are compared with first, then run after run; what is finished is left alone.

Every run is held by a file lock while it is worked on, so any number of processes, also on several machines that share the
folder, take runs from the same plan; a lock goes with the process that held it. What decides a run's result is written down
before the run begins (`jobs/`), so a result is never taken for that of other settings.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from atwu._cache import cache_folder, short_hash
from atwu._files import held, write_json
from atwu.errors import BudgetReached, NonFiniteLossError
from atwu.evaluation.generations import GenerationStore
from atwu.evaluation.result import EvalResult, read_result
from atwu.experiments.study.execute import drop_weights, free_memory, measure, tracing, unlearn
from atwu.experiments.study.plan import EVAL_NAME, TIMING_NAME, Plan, PlannedRun
from atwu.experiments.study.targets import Models, identity
from atwu.judge.verdicts import Judge
from atwu.modeling.device import pick_device

logger = logging.getLogger(__name__)

Say = Callable[[str], None]
REFERENCES = "references"
RUN_NAME = "run.json"
FAILED_NAME = "failed.json"
PROBE_NAME = "probe.json"
PROBE_SCHEMA = "atwu.probe/1"


class Engine:
    """Works on a plan.

    Args:
        plan: what is to be run.
        models: the scale's rows and models.
        judge: checks answers; None where nothing is measured.
        judge_name: how the judge was chosen, for what decides a result.
        keep_models: keep the unlearned weights; else only scorer, records and measurements stay.
        overwrite: do runs again that were made with other settings.
        say: receives one line per run.
    """

    def __init__(
        self,
        plan: Plan,
        models: Models,
        *,
        judge: Judge | None = None,
        judge_name: Mapping[str, Any] | None = None,
        keep_models: bool = False,
        overwrite: bool = False,
        say: Say = logger.info,
    ) -> None:
        self.plan, self.models, self._judge = plan, models, judge
        self._keep, self._overwrite, self._say = keep_models, overwrite, say
        self._store = GenerationStore(cache_folder() / "generations")
        judged = dict(judge_name or {"name": "offline"})
        self._where = {**identity(models), "judge": judged, "device": pick_device().type}

    def references(self) -> dict[str, EvalResult]:
        """Results of the starting and the retain-only model, measured if they are not there yet."""
        found: dict[str, EvalResult] = {}
        names = {"original": self.models.target, "retain-only": self.models.retain_only}
        for role, name in names.items():
            if name is None:
                continue
            folder = self.plan.folder / REFERENCES / role
            job = {"metrics": list(self.plan.metrics), "evaluation": dict(self.plan.scale.evaluation), **self._where}
            job = json.loads(json.dumps(job, default=str))
            with self._held(folder, wait=True):
                if not (folder / EVAL_NAME).is_file() or self._known(folder) != job:
                    shutil.rmtree(folder, ignore_errors=True)
                    folder.mkdir(parents=True)
                    self._say(f"measuring the {role} model")
                    result = measure(
                        self.models,
                        self.plan.scale,
                        name,
                        metrics=self.plan.metrics,
                        name=role,
                        original=found.get("original"),
                        reference=True,
                        judge=self._judge,
                        store=self._store,
                    )
                    self._note(folder, job)
                    result.write(folder / EVAL_NAME)
            found[role] = read_result(folder / EVAL_NAME)
        return found

    def probe(self) -> None:
        """What a linear probe finds in the starting model's states, into the folder of its result."""
        from atwu.evaluation.probe import annotated_rows, probe
        from atwu.modeling.load import load_model, load_tokenizer

        folder = self.plan.folder / REFERENCES / "original"
        with self._held(folder, wait=True):
            if (folder / PROBE_NAME).is_file():
                return
            self._say("probing the original model")
            rows = annotated_rows(self.models.benchmark.forget)
            model = load_model(self.models.target).to(pick_device())
            tokenizer = load_tokenizer(self.models.target)
            training = self.plan.scale.training
            given = {name: training[name] for name in ("system", "max_length") if training.get(name) is not None}
            results = probe(model, tokenizer, rows, progress=False, **given)
            write_json(
                folder / PROBE_NAME,
                {"schema": PROBE_SCHEMA, "results": [dataclasses.asdict(result) for result in results]},
            )

    def prepare(self) -> None:
        """Look at what lies there, before workers start: forget failures that may not happen again.

        Raises:
            ValueError: a run was made or begun with other settings than the plan's, and may not be done again.
        """
        for run in self.plan.runs:
            failure = _json(run.folder / FAILED_NAME)
            if failure is not None and (self._overwrite or not failure["final"]):
                if self._overwrite or not (run.folder / RUN_NAME).is_file():
                    shutil.rmtree(run.folder)
                else:  # unlearned already; it was the measurement that failed
                    (run.folder / FAILED_NAME).unlink()
            there = run.folder.exists() or run.folder.with_name(f"{run.folder.name}.incomplete").exists()
            known, wanted = self._known(run.folder), self.job(run)
            if there and known != wanted and not self._overwrite:
                names = [name for name in wanted if (known or {}).get(name) != wanted[name]]
                raise ValueError(
                    f"{run.folder} was made with other settings ({', '.join(names)}); choose another --output, or do such "
                    "runs again with --overwrite."
                )

    def work(self) -> int:
        """Do every run that is not finished and that nobody else is working on; returns how many were done here.

        A run that starts from another run's scorer waits for it. A run that fails is recorded and left out; when the judge's
        limit is reached, no further run is begun.
        """
        references = self.references()
        if self.plan.study.probe:
            self.probe()
        done = 0
        while True:
            waiting = progressed = False
            for run in self.plan.runs:
                if self.settled(run):
                    continue
                source = self._source(run)
                if source is not None and not self.settled(source):
                    waiting = True
                    continue
                with self._held(run.folder) as mine:
                    if not mine:
                        waiting = True
                    elif not self.settled(run):
                        if not self._attempt(run, source, references):
                            return done
                        done += 1
                        progressed = True
            if not progressed:
                if not waiting:
                    return done
                time.sleep(0.5)

    def settled(self, run: PlannedRun) -> bool:
        """Whether a run is finished or has failed, with the plan's settings."""
        there = run.finished or (run.folder / FAILED_NAME).is_file()
        return there and self._known(run.folder) == self.job(run)

    def job(self, run: PlannedRun) -> dict[str, Any]:
        """Everything that decides a run's result, as plain JSON."""
        source = self._source(run)
        where = self._where if source is None else {**self._where, "scorer_from": short_hash(self.job(source))}
        return run.job(self.plan.scale, self.plan.metrics, where)

    def _source(self, run: PlannedRun) -> PlannedRun | None:
        """The run whose scorer it starts from."""
        return next((other for other in self.plan.runs if other.folder == run.needs), None)

    def _attempt(self, run: PlannedRun, source: PlannedRun | None, references: dict[str, EvalResult]) -> bool:
        """Do one run; what goes wrong is recorded, so that the others go on. Returns whether they can."""
        job = self.job(run)
        if self._known(run.folder) != job:
            for folder in (run.folder, run.folder.with_name(f"{run.folder.name}.incomplete")):
                shutil.rmtree(folder, ignore_errors=True)
            self._note(run.folder, job)
        try:
            if source is not None and (source.folder / FAILED_NAME).is_file():
                raise ValueError(f"{source.name}, whose scorer it starts from, failed.")
            self._run(run, references)
        except Exception as error:
            # What the settings and rows alone decide will not come out otherwise; a full disk or device might.
            final = isinstance(error, NonFiniteLossError | ValueError)
            run.folder.mkdir(parents=True, exist_ok=True)
            write_json(run.folder / FAILED_NAME, {"error": f"{type(error).__name__}: {error}", "final": final})
            logger.exception("%s failed", run.name)
            self._say(f"{run.name} failed: {error}")
            return not isinstance(error, BudgetReached)
        return True

    def _run(self, run: PlannedRun, references: dict[str, EvalResult]) -> None:
        config = run.config(self.plan.scale, scorer_from=run.needs)
        start = time.perf_counter()
        watch, write_trace = tracing(self.models, run.folder) if self.plan.study.trace else (None, lambda: None)
        if not (run.folder / RUN_NAME).is_file():
            unlearn(self.models, config, run.folder, watch=watch, say=logger.info)
            write_trace()
        free_memory()
        middle = time.perf_counter()
        result = measure(
            self.models,
            self.plan.scale,
            run.folder,
            metrics=self.plan.metrics,
            name=run.name,
            original=references.get("original"),
            retain_only=references.get("retain-only"),
            judge=self._judge,
            store=self._store,
        )
        end = time.perf_counter()
        write_json(run.folder / TIMING_NAME, {"unlearn": round(middle - start, 2), "measure": round(end - middle, 2)})
        result.write(run.folder / EVAL_NAME)
        if not self._keep:
            drop_weights(run.folder)
        split, metric = self.plan.scale.objective
        value = (result.overall if split == "overall" else result.sets[split]).get(metric)
        told = "" if value is None or value.value is None else f", {metric} {value.value:.3f}"
        self._say(f"{run.name}: {end - start:.0f} s{told}")

    def _known(self, folder: Path) -> Any:
        """The job under which a folder was begun."""
        return _json(self._job_file(folder))

    def _note(self, folder: Path, job: Mapping[str, Any]) -> None:
        self._job_file(folder).parent.mkdir(parents=True, exist_ok=True)
        write_json(self._job_file(folder), job)

    def _job_file(self, folder: Path) -> Path:
        return self.plan.folder / "jobs" / f"{folder.parent.name}-{folder.name}.json"

    @contextlib.contextmanager
    def _held(self, folder: Path, *, wait: bool = False) -> Iterator[bool]:
        """Hold the lock of a folder; False if another process does."""
        lock = self.plan.folder / "locks" / f"{folder.parent.name}-{folder.name}"
        with held(lock, waiting=(lambda: None) if wait else None) as mine:
            yield mine


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
