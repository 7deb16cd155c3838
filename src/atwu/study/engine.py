"""Running a plan: models that are compared with first, then run after run; what is finished is left alone.

Every run is held by a file lock while it is worked on, so any number of processes, also on several machines that share the
folder, take runs from the same plan; a lock goes with the process that held it. On CPUs every worker computes with one thread,
so that numbers do not depend on how many workers there are.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from atwu._cache import cache_folder
from atwu._files import write_json
from atwu.evaluation.generations import GenerationStore
from atwu.evaluation.result import EvalResult, read_result
from atwu.judge.verdicts import Judge
from atwu.study.execute import drop_weights, measure, tracing, unlearn
from atwu.study.plan import EVAL_NAME, JOB_NAME, TIMING_NAME, Plan, PlannedRun
from atwu.study.targets import Models
from atwu.training.errors import NonFiniteLossError

logger = logging.getLogger(__name__)

Say = Callable[[str], None]
REFERENCES = "references"
FAILED_NAME = "failed.json"
PROBE_NAME = "probe.json"
PROBE_SCHEMA = "atwu.probe/1"


class Engine:
    """Works on a plan.

    Args:
        plan: what is to be run.
        models: the scale's rows and models.
        judge: checks answers; the offline judge by default.
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
        keep_models: bool = False,
        overwrite: bool = False,
        say: Say = logger.info,
    ) -> None:
        self.plan, self.models, self._judge = plan, models, judge
        self._keep, self._overwrite, self._say = keep_models, overwrite, say
        self._store = GenerationStore(cache_folder() / "generations")

    def references(self) -> dict[str, EvalResult]:
        """Results of the starting and the retain-only model, measured if they are not there yet."""
        found: dict[str, EvalResult] = {}
        names = {"original": self.models.target, "retain-only": self.models.retain_only}
        for role, name in names.items():
            if name is None:
                continue
            folder = self.plan.folder / REFERENCES / role
            key = {"model": name, "metrics": list(self.plan.metrics), "evaluation": dict(self.plan.scale.evaluation)}
            key = json.loads(json.dumps(key, default=str))
            with _held(folder, wait=True):
                if not (folder / EVAL_NAME).is_file() or _json(folder / JOB_NAME) != key:
                    folder.mkdir(parents=True, exist_ok=True)
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
                    result.write(folder / EVAL_NAME)
                    write_json(folder / JOB_NAME, key)
            found[role] = read_result(folder / EVAL_NAME)
        return found

    def probe(self) -> None:
        """What a linear probe finds in the starting model's states, into the folder of its result."""
        from atwu.evaluation.probe import annotated_rows, probe
        from atwu.modeling.device import pick_device
        from atwu.modeling.load import load_model, load_tokenizer

        file = self.plan.folder / REFERENCES / "original" / PROBE_NAME
        if file.is_file():
            return
        self._say("probing the original model")
        rows = annotated_rows(self.models.benchmark.forget)
        model = load_model(self.models.target).to(pick_device())
        results = probe(model, load_tokenizer(self.models.target), rows, progress=False)
        write_json(file, {"schema": PROBE_SCHEMA, "results": [dataclasses.asdict(result) for result in results]})

    def check_finished(self) -> None:
        """Look at the settings of every finished run.

        Raises:
            ValueError: one was made with other settings than the plan's, and may not be done again.
        """
        for run in self.plan.runs:
            if not run.finished or self._overwrite:
                continue
            known, wanted = _json(run.folder / JOB_NAME), self._job(run)
            if known != wanted:
                names = [name for name in wanted if (known or {}).get(name) != wanted[name]]
                raise ValueError(
                    f"{run.folder} was made with other settings ({', '.join(names) or 'unknown'}); choose another --output, "
                    "or do such runs again with --overwrite."
                )

    def work(self) -> int:
        """Do every run that is not finished and that nobody else is working on; returns how many were done here.

        Runs that start from another run's scorer wait for it. A run that diverges, or that its rows do not allow, is
        recorded as failed and left out.
        """
        references = self.references()
        if self.plan.study.probe:
            with _held(self.plan.folder / REFERENCES / "original", wait=True):
                self.probe()
        done = 0
        while True:
            waiting = progressed = False
            for run in self.plan.runs:
                if self._settled(run):
                    continue
                if run.needs is not None and not (run.needs / EVAL_NAME).is_file():
                    waiting = not (run.needs / FAILED_NAME).is_file() or waiting
                    continue
                with _held(run.folder) as mine:
                    if not mine:
                        waiting = True
                    elif not self._settled(run):
                        self._run(run, references)
                        done += 1
                        progressed = True
            if not progressed:
                if not waiting:
                    return done
                time.sleep(0.5)

    def _settled(self, run: PlannedRun) -> bool:
        if (run.folder / FAILED_NAME).is_file() and _json(run.folder / JOB_NAME) == self._job(run):
            return True
        return run.finished and (not self._overwrite or _json(run.folder / JOB_NAME) == self._job(run))

    def _run(self, run: PlannedRun, references: dict[str, EvalResult]) -> None:
        if run.folder.exists() and _json(run.folder / JOB_NAME) not in (None, self._job(run)):
            shutil.rmtree(run.folder)  # other settings; `check_finished` has asked
        config = run.config(self.plan.scale)
        start = time.perf_counter()
        watch, write_trace = tracing(self.models, run.folder) if self.plan.study.trace else (None, lambda: None)
        try:
            if not (run.folder / "run.json").is_file():
                unlearn(self.models, config, run.folder, watch=watch, say=logger.info)
                write_trace()
        except (NonFiniteLossError, ValueError) as error:
            run.folder.mkdir(parents=True, exist_ok=True)
            write_json(run.folder / JOB_NAME, self._job(run))
            write_json(run.folder / FAILED_NAME, {"error": str(error)})
            self._say(f"{run.name}: left out: {error}")
            return
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
        write_json(run.folder / JOB_NAME, self._job(run))
        write_json(
            run.folder / TIMING_NAME,
            {"unlearn": round(middle - start, 2), "measure": round(time.perf_counter() - middle, 2)},
        )
        result.write(run.folder / EVAL_NAME)
        if not self._keep:
            drop_weights(run.folder)
        split, metric = self.plan.scale.objective
        value = (result.overall if split == "overall" else result.sets[split]).get(metric)
        told = "" if value is None or value.value is None else f", {metric} {value.value:.3f}"
        self._say(f"{run.name}: {time.perf_counter() - start:.0f} s{told}")

    def _job(self, run: PlannedRun) -> dict[str, Any]:
        names = {"target": self.models.target, "retain_only": str(self.models.retain_only)}
        job = run.job(self.plan.scale, self.plan.metrics, names)
        job["recipe"] = dataclasses.asdict(run.config(self.plan.scale).recipe()) | {"given": None}
        plain: dict[str, Any] = json.loads(json.dumps(job, default=str))
        return plain


@contextlib.contextmanager
def _held(folder: Path, *, wait: bool = False) -> Iterator[bool]:
    """Hold the lock of a run; False if another process does."""
    lock = folder.parent.parent / "locks" / f"{folder.parent.name}-{folder.name}"
    lock.parent.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # no file locks on this system: one process at a time
        yield True
        return
    with lock.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
