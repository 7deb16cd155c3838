"""Check and define a search, and run one of its points. `run_search.py` runs them all.

A trial unlearns, computes the metrics of the objective, keeps the numbers and deletes the weights. Runs that destroy the
model are stopped early and pruned: if the loss is not finite, or the retain loss is worse than that of uniform guessing.
"""

from __future__ import annotations

import collections
import dataclasses
import importlib.metadata
import math
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers.trainer_callback import TrainerCallback

from atwu._cache import short_hash
from atwu._manifest import LOG_NAME, RECORD_NAME
from atwu._run_key import run_key
from atwu.errors import NonFiniteLossError
from atwu.evaluation.columns import RWKU
from atwu.evaluation.registry import find_metric
from atwu.evaluation.result import EvalResult
from atwu.experiments.benchmark_settings import BenchmarkSetting
from atwu.experiments.executors import Executor
from atwu.experiments.experiment_run import (
    ORIGINAL,
    ExperimentRun,
    RunContext,
    execute_run,
    format_options,
    reference_result,
)
from atwu.experiments.study_models import Models, missing_requirement, models_identity, needs_preferred_answers
from atwu.experiments.tuning.search import OBJECTIVES, FinishedTrial, Search, SearchPoint
from atwu.report.metric_table import cell_of
from atwu.training.run_folder import unfinished

WINDOW = 5
"""Number of logged retain losses that are averaged before a run may be stopped."""
_LIKELIHOODS = ("nll", "kl", "kl_rows", "kl_first")
"""Retain losses in nats per token, for which uniform guessing gives log(vocabulary size)."""
_RESULT_FIELDS = ("name", "benchmark", "forget", "retain", "training", "evaluation")
"""Fields of a setting that affect the value of a trial."""

TrialFunction = Callable[..., FinishedTrial]
"""Runs one trial of the budget: takes its number and point, its own `folder`, and an unused `source`."""


class DestroyedModelError(Exception):
    """Ends a run that has destroyed its model; the message says why."""


def original_result(context: RunContext, objective: str, executor: Executor, *, folder: Path) -> dict[str, EvalResult]:
    """Return the original model's result if the objective compares with it; it is evaluated once for all methods."""
    if not any((found := find_metric(name).needs_reference) and found[0] == "original" for name in context.metrics):
        return {}
    measured = {"objective": objective, "setting": _result_fields(context.setting), **_identity(context.models)}
    file = folder / "trials" / f"original-{short_hash(measured)[:12]}.json"
    return {ORIGINAL: reference_result(executor, context, ORIGINAL, file)}


def search_definition(search: Search, models: Models) -> dict[str, Any]:
    """Return everything that determines the points and their values, except the number of trials."""
    identity = _identity(models, paired=needs_preferred_answers(search.config()))
    return run_key(
        "search",
        options={
            **search.as_plain(),
            "first": [dict(point) for point in search.first],
            "setting": _result_fields(search.setting),
        },
        model=identity["model"],
        rows=identity["rows"],
        inputs={"versions": identity["versions"] | {"optuna": importlib.metadata.version("optuna")}},
    )


def _result_fields(setting: BenchmarkSetting) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(setting).items() if name in _RESULT_FIELDS}


def _identity(models: Models, *, paired: bool = False) -> dict[str, Any]:
    """Return rows, original model and versions; no objective compares with the retain-only model."""
    here = models_identity(models, paired=paired)
    return {"rows": here["rows"], "model": here["models"]["target"], "versions": here["versions"]}


def check_search(search: Search, models: Models) -> str | None:
    """Check a search before any work; returns why the rows do not support the method, if so."""
    if RWKU in OBJECTIVES[search.objective].groups and (
        models.benchmark.probes is None or models.benchmark.probes.name != RWKU
    ):
        raise ValueError(
            f"objective {search.objective} needs RWKU's probes, which setting {search.setting.name} does not have."
        )
    for point in search.first:
        search.config(point)
    reason = missing_requirement(search.config(), models.benchmark)
    return reason and f"at {search.setting.name} it {reason}"


def compute_objective(
    search: Search, setup: RunContext, number: int, point: SearchPoint, *, folder: Path, source: Path | None = None
) -> FinishedTrial:
    """Unlearn with a point and compute the objective; it is pruned if the model is destroyed or it is undefined."""
    start = time.perf_counter()

    def finished(value: float | None, **more: Any) -> FinishedTrial:
        return FinishedTrial(number, point, value, round(time.perf_counter() - start, 3), **more)

    if not (folder / RECORD_NAME).is_file():  # log of a run that was stopped
        shutil.rmtree(folder, ignore_errors=True)
    run = ExperimentRun(f"trial {folder.name}", search.method, search.run_options(point), search.seed, folder)
    try:
        result = execute_run(setup, run, folder=folder)
    except (NonFiniteLossError, DestroyedModelError) as error:
        folder.mkdir(parents=True, exist_ok=True)  # keeps its log only
        if (log := unfinished(folder) / LOG_NAME).is_file():
            shutil.copyfile(log, folder / LOG_NAME)
        shutil.rmtree(unfinished(folder), ignore_errors=True)
        return finished(None, reason=str(error).partition(";")[0])
    except ValueError as error:
        raise ValueError(f"trial {number} of {search.label} cannot run ({format_options(point)}): {error}") from error
    objective = OBJECTIVES[search.objective]
    cells = (cell_of(result, key) for key in (objective.key, objective.forget, objective.retain))
    value, forget, retain = (None if cell is None else cell.value for cell in cells)
    if value is None or math.isnan(value):  # values relative to an original model without any knowledge are undefined
        return finished(None, reason=f"{search.objective} is undefined for this trial")
    return finished(value, forget=forget, retain=retain)


def stop_if_destroyed(trainer: Any) -> list[TrainerCallback]:
    """Return a callback for runs whose retain loss measures how well the model predicts."""
    if trainer.recipe.retain_loss not in _LIKELIHOODS:
        return []
    return [StopDestroyed(int(trainer.model.config.get_text_config().vocab_size))]


class StopDestroyed(TrainerCallback):
    """Stops a run whose retain loss, averaged over the last logs, is worse than uniform guessing."""

    def __init__(self, vocabulary: int) -> None:
        self.limit = math.log(vocabulary)
        self.vocabulary = vocabulary
        self._last: collections.deque[float] = collections.deque(maxlen=WINDOW)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> None:
        if logs is None or "retain_loss" not in logs:
            return
        self._last.append(logs["retain_loss"])
        mean = sum(self._last) / len(self._last)
        if len(self._last) == WINDOW and mean > self.limit:
            raise DestroyedModelError(
                f"retain loss {mean:.1f} at step {state.global_step}, worse than uniform guessing among "
                f"{self.vocabulary} tokens"
            )
