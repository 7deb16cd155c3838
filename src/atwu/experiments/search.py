"""A hyperparameter search for one method: its objective, space, first points and result; and one trial of it.

A trial unlearns, computes the metrics of the objective, keeps the numbers and deletes the weights. Runs that destroy
the model are stopped early and pruned: if the loss is not finite, or the retain loss is worse than that of uniform
guessing. `run_search.py` runs the trials.
"""

from __future__ import annotations

import collections
import dataclasses
import importlib.metadata
import math
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from transformers.trainer_callback import TrainerCallback

from atwu._cache import run_key, short_hash
from atwu._manifest import LOG_NAME, RECORD_NAME
from atwu._names import lookup
from atwu.errors import NonFiniteLossError
from atwu.evaluation.columns import OVERALL, RWKU
from atwu.evaluation.registry import find_metric
from atwu.evaluation.result import EvalResult
from atwu.experiments.benchmark_settings import BenchmarkSetting
from atwu.experiments.executors import Executor
from atwu.experiments.experiment_run import (
    COMPONENT_KINDS,
    ORIGINAL,
    ExperimentRun,
    RunContext,
    execute_run,
    format_options,
    reference_result,
    run_config,
)
from atwu.experiments.study_models import Models, missing_requirement, models_identity, needs_preferred_answers
from atwu.methods.component import Range, options_of_component
from atwu.methods.method_table import METHODS, Method
from atwu.methods.recipe import Recipe, recipe, split_weighting
from atwu.report.metric_table import MetricKey, cell_of
from atwu.training.config import UnlearnConfig
from atwu.training.run_folder import unfinished


@dataclass(frozen=True, slots=True)
class Objective:
    key: MetricKey
    """Set (or "overall") and metric."""
    groups: tuple[str, ...]
    """Names of the metrics that compute it."""
    forget: MetricKey
    retain: MetricKey
    names: tuple[str, str]
    """Names of the two terms in tables."""


OBJECTIVES: dict[str, Objective] = {
    "ES_delta": Objective(
        (OVERALL, "ES_delta"),
        ("memorization",),
        ("forget", "extraction_strength"),
        ("retain", "extraction_strength"),
        ("ES_forget", "ES_retain"),
    ),
    "N_delta": Objective(
        (OVERALL, "N_delta_official"),
        ("rwku",),
        (OVERALL, "forget_all_official"),
        (OVERALL, "neighbour_all_official"),
        ("forget_all", "neighbour_all"),
    ),
    "UQ": Objective((OVERALL, "UQ"), ("memorization", "judge"), (OVERALL, "FQ"), (OVERALL, "RD"), ("FQ", "RD")),
}


def objective_name(name: str | None, setting: BenchmarkSetting) -> str:
    """Return the name of an objective, by default the setting's."""
    if name is None:
        metric = setting.objective[1]
        name = next((key for key, goal in OBJECTIVES.items() if metric in (key, goal.key[1])), metric)
    lookup("objective", name, OBJECTIVES)
    return name


SearchPoint = Mapping[str, float]
"""Searched option -> its value."""


@dataclass(frozen=True, slots=True)
class FinishedTrial:
    number: int
    point: SearchPoint
    value: float | None
    seconds: float = 0.0
    forget: float | None = None
    retain: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Search:
    """A search for one method at one setting."""

    method: str
    setting: BenchmarkSetting
    options: Mapping[str, Any]
    """Options of `UnlearnConfig` shared by all trials, such as `weighting`; they are not searched."""
    space: Mapping[str, Range]
    """Searched option -> its range."""
    first: tuple[SearchPoint, ...]
    """Points of the first trials."""
    objective: str
    """A name in `OBJECTIVES`."""
    label: str
    """Name in the storage."""
    trials: int = 20
    """Total number of finished trials. A larger number later continues the same search."""
    seed: int = 0
    """Seed of the sampler and of every run."""
    storage: str | None = None
    """NAME.db or NAME.journal; None for an SQLite file in the folder of the search."""

    def __post_init__(self) -> None:
        if self.trials < 1:
            raise ValueError(f"a search needs at least 1 trial, got {self.trials}.")

    @classmethod
    def of(
        cls,
        method: str,
        setting: BenchmarkSetting,
        options: Mapping[str, Any] = MappingProxyType({}),
        *,
        objective: str | None = None,
        label: str | None = None,
        layers: int | None = None,
        **more: Any,
    ) -> Search:
        """Return a search of everything that the options leave open, from the method's recommended values on.

        Args:
            objective: by default the setting's.
            label: by default SETTING/METHOD.
            layers: decoder layers of the original model, for RMU.
            more: number of trials, seed and storage.
        """
        parts = {name: options.get(name) for name in COMPONENT_KINDS}
        every = search_space(method, learning_rate=setting.learning_rates, **parts, layers=layers)
        space = {name: where for name, where in every.items() if name not in options}
        if not space:
            raise ValueError(
                f"nothing is left to search for {method}: options fix every hyperparameter; leave one of them out."
            )
        rates = setting.first_rates or (setting.learning_rate,)
        first = [point for rate in rates for point in first_points(method, learning_rate=rate, **parts)]
        # SimNPO's published first beta and ETW's tuned forget weight are outside their ranges and are clipped.
        clipped = [{name: where.clip(point[name]) for name, where in space.items() if name in point} for point in first]
        # The first trial of the published search may equal its best values.
        unique = tuple(point for place, point in enumerate(clipped) if point not in clipped[:place])
        name = label or f"{setting.name}/{method}"
        return cls(method, setting, options, space, unique, objective_name(objective, setting), name, **more)

    def run_options(self, point: SearchPoint) -> dict[str, Any]:
        """Return a trial's options of `UnlearnConfig`, in addition to those of its setting."""
        options = {**self.options, **point}
        for name, where in self.space.items():
            if where.integer and name in point:
                options[name] = int(point[name])  # a point may hold the float that a preset has
        return options

    def as_plain(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "options": dict(self.options),
            "objective": self.objective,
            "seed": self.seed,
            "space": {name: asdict(where) for name, where in self.space.items()},
        }

    def config(self, point: SearchPoint | None = None) -> UnlearnConfig:
        """Build the configuration of a trial; without a point, with the shared options only."""
        return run_config(self.setting, self.method, self.run_options(point or {}), seed=self.seed)


@dataclass(frozen=True, slots=True)
class SearchResult:
    search: Search
    trials: tuple[FinishedTrial, ...]

    @property
    def best(self) -> FinishedTrial | None:
        """Return the trial with the largest value (the first of equal ones); None if all were pruned."""
        finished = (trial for trial in self.trials if trial.value is not None)
        return max(finished, key=lambda trial: trial.value or 0.0, default=None)

    @property
    def pruned(self) -> int:
        return sum(trial.value is None for trial in self.trials)

    @property
    def seconds(self) -> float:
        return sum(trial.seconds for trial in self.trials)

    @property
    def count(self) -> str:
        if len(self.trials) == 1:
            return "1 trial"
        return f"{len(self.trials)} trials"

    @property
    def budget(self) -> str:
        return f"{self.count}, {self.pruned} pruned, {self.seconds:.0f} s"


def search_space(
    method: str, *, learning_rate: tuple[float, float], layers: int | None = None, **parts: Any
) -> dict[str, Range]:
    """Return the searched options with their ranges, the learning rate first.

    An option of a component is searched if the methods with that component search it. So `npo` with another forget loss
    does not search NPO's beta.

    Args:
        learning_rate: lowest and highest learning rate, which depend on model and benchmark.
        layers: number of decoder layers, for RMU's layer index; None for models with at least 13.
        parts: weighting, forget_loss and retain_loss that replace the method's.
    """
    decided = recipe(method, **parts)
    space = {"learning_rate": Range(*learning_rate)}
    for name, option in decided.options.items():
        where = _owner(name, METHODS[method], decided).search.get(name, option.search)
        if where is not None:
            space[name] = where
    if layers is not None and "layer" in space:
        low, high = space["layer"].low, space["layer"].high
        if low >= layers:  # all layers if the range starts after the last
            low = 0
        space["layer"] = Range(low, min(high, layers - 1), log=False, integer=True)
    return space


def first_points(method: str, *, learning_rate: float, **parts: Any) -> list[dict[str, float]]:
    """Return the first points of a search: the first trial of the published search, then its best values.

    Numbers that the published first trial does not set have their defaults; `Search.of` clips those outside their
    range. Arguments are those of `search_space`.
    """
    decided = recipe(method, **parts)
    row = METHODS[method]
    searched = search_space(method, learning_rate=(learning_rate, learning_rate), **parts)
    points: list[dict[str, float]] = []
    for kind in ("first_trial", "defaults"):
        if kind == "first_trial" and not row.first_trial:
            continue
        points.append({"learning_rate": learning_rate})
        for name, option in decided.options.items():
            if name in searched:
                values = getattr(_owner(name, row, decided), kind)
                points[-1][name] = values.get(name, option.default)
    return points


def _owner(name: str, row: Method, decided: Recipe) -> Method:
    """Return the method that defines an option: `row`, unless the component with this option was replaced."""
    of_loss = any(option.name == name for option in options_of_component(decided.forget_component))
    named = zip(decided.weighting_names, decided.weighting_components, strict=True)
    weightings = {
        part for part, component in named if any(option.name == name for option in options_of_component(component))
    }
    for method in (row, *METHODS.values()):
        if of_loss:
            owns = method.forget_loss == decided.forget_loss
        else:  # loss weights are of neither component: they belong to the method itself
            owns = not weightings or bool(weightings & set(split_weighting(method.weighting)[0]))
        if owns:
            return method
    return Method("", "", "", "", "")  # of a component that no method of the table uses


WINDOW = 5
"""Number of logged retain losses that are averaged before a run may be stopped: the loss of a single batch is noisy."""
_LIKELIHOODS = ("nll", "kl", "kl_rows", "kl_first")
"""Retain losses in nats per token, for which uniform guessing gives log(vocabulary size)."""
_RESULT_FIELDS = ("name", "benchmark", "forget", "retain", "training", "evaluation")
"""Fields of a setting that affect the value of a trial."""

TrialFunction = Callable[..., FinishedTrial]
"""Runs one trial of the budget: takes its number and point, and its own `folder`."""


class DestroyedModelError(Exception):
    """Ends a run that has destroyed its model; the message says why."""


def original_result(context: RunContext, objective: str, executor: Executor, *, folder: Path) -> dict[str, EvalResult]:
    """Return the original model's result if the objective compares with it; it is evaluated once for all methods."""
    needed = [find_metric(name).needs_reference for name in context.metrics]
    if not any(roles and roles[0] == ORIGINAL for roles in needed):
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
        # Another version of Optuna would draw other points.
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
    # A point that is no valid configuration would end the search after hours.
    for point in search.first:
        search.config(point)
    reason = missing_requirement(search.config(), models.benchmark)
    if reason is None:
        return None
    return f"at {search.setting.name} it {reason}"


def compute_objective(
    search: Search, setup: RunContext, number: int, point: SearchPoint, *, folder: Path
) -> FinishedTrial:
    """Unlearn with a point and compute the objective; it is pruned if the model is destroyed or it is undefined."""
    start = time.perf_counter()

    def finish(value: float | None, **more: Any) -> FinishedTrial:
        return FinishedTrial(number, point, value, round(time.perf_counter() - start, 3), **more)

    if not (folder / RECORD_NAME).is_file():  # log of a run that was stopped
        shutil.rmtree(folder, ignore_errors=True)
    run = ExperimentRun(f"trial {folder.name}", search.method, search.run_options(point), search.seed, folder)
    try:
        result = execute_run(setup, run)
    except (NonFiniteLossError, DestroyedModelError) as error:
        folder.mkdir(parents=True, exist_ok=True)  # keeps its log only
        log = unfinished(folder) / LOG_NAME
        if log.is_file():
            shutil.copyfile(log, folder / LOG_NAME)
        shutil.rmtree(unfinished(folder), ignore_errors=True)
        return finish(None, reason=str(error).partition(";")[0])
    except ValueError as error:
        raise ValueError(f"trial {number} of {search.label} cannot run ({format_options(point)}): {error}") from error
    objective = OBJECTIVES[search.objective]
    cells = (cell_of(result, key) for key in (objective.key, objective.forget, objective.retain))
    value, forget, retain = (None if cell is None else cell.value for cell in cells)
    if value is None or math.isnan(value):  # values relative to an original model without any knowledge are undefined
        return finish(None, reason=f"{search.objective} is undefined for this trial")
    return finish(value, forget=forget, retain=retain)


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
        # Of the last logs alone: a run that recovers is not stopped for its worst moment.
        self._last: collections.deque[float] = collections.deque(maxlen=WINDOW)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> None:
        if logs is None or "retain_loss" not in logs:
            return
        self._last.append(logs["retain_loss"])
        mean = sum(self._last) / len(self._last)
        # Guessing every token with the same probability costs log(vocabulary) nats per token.
        if len(self._last) == WINDOW and mean > self.limit:
            raise DestroyedModelError(
                f"retain loss {mean:.1f} at step {state.global_step}, worse than uniform guessing among "
                f"{self.vocabulary} tokens"
            )
