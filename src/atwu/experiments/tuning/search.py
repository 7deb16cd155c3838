"""A hyperparameter search for one method: its objective, options, trials and result."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from atwu._cache import short_hash
from atwu._names import lookup
from atwu.evaluation.columns import OVERALL
from atwu.evaluation.registry import find_metric
from atwu.experiments.benchmark_settings import BenchmarkSetting
from atwu.experiments.experiment_run import COMPONENT_KINDS, run_config
from atwu.experiments.tuning.search_space import first_points, search_space
from atwu.methods.component import Range
from atwu.report.metric_labels import MetricKey
from atwu.training.config import UnlearnConfig


@dataclass(frozen=True, slots=True)
class Objective:
    """An objective to maximize."""

    key: MetricKey
    """Set (or "overall") and metric."""
    groups: tuple[str, ...]
    """Groups of metrics needed to compute it."""
    forget: MetricKey
    """Term that measures forgetting."""
    retain: MetricKey
    """Term that measures retention."""
    names: tuple[str, str]
    """Names of the two terms in tables."""

    @property
    def needs_original(self) -> bool:
        """Whether it compares with the original model's result."""
        return any((found := find_metric(name).needs_reference) and found[0] == "original" for name in self.groups)


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
        name = next((key for key, each in OBJECTIVES.items() if metric in (key, each.key[1])), metric)
    lookup("objective", name, OBJECTIVES)
    return name


SearchPoint = Mapping[str, float]
"""Searched option -> its value."""


@dataclass(frozen=True, slots=True)
class FinishedTrial:
    """One finished trial of the budget."""

    number: int
    """Trial number, from 0."""
    point: SearchPoint
    value: float | None
    """The objective; None if it was pruned."""
    seconds: float = 0.0
    forget: float | None = None
    """Forget term of the objective."""
    retain: float | None = None
    """Retain term of the objective."""
    reason: str | None = None
    """Why it was pruned."""

    @property
    def content_hash(self) -> str:
        """Hash of all fields, stored beside them: a storage of Optuna has no checksums."""
        return short_hash(dataclasses.asdict(self))


class PrunedError(Exception):
    """Raised by a trial whose settings fail; the message says why."""


class NotPossibleError(ValueError):
    """The rows of a setting lack what a method needs."""


TrialFunction = Callable[[int, SearchPoint, Path], FinishedTrial]
"""Runs one trial of the budget in its own folder; its duration is set by the caller."""


@dataclass(frozen=True, slots=True)
class Search:
    """A search for one method at one setting."""

    method: str
    setting: BenchmarkSetting
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of `UnlearnConfig` shared by all trials, such as `weighting`; they are not searched."""
    trials: int = 20
    """Total number of finished trials. A larger number later continues the same search."""
    seed: int = 0
    """Seed of the sampler and of every run."""
    objective: str | None = None
    """A name in `OBJECTIVES`; None for the setting's own."""
    storage: str | None = field(default=None, repr=False)
    """Database URL, NAME.db or NAME.journal; None for an SQLite file in the folder of the search."""
    name: str | None = None
    """Name in the storage; None for SETTING/METHOD."""
    space: Mapping[str, Range] | None = None
    """Option -> range; None for the ranges of the method table."""
    first: Sequence[SearchPoint] | None = None
    """Points of the first trials; None for the method's recommended values."""

    def __post_init__(self) -> None:
        if self.trials < 1:
            raise ValueError(f"a search needs at least 1 trial, got {self.trials}.")
        objective_name(self.objective, self.setting)

    @property
    def label(self) -> str:
        """Name in the storage."""
        return self.name or f"{self.setting.name}/{self.method}"

    def decided(self, layers: int | None = None) -> Search:
        """Return the search with objective, space and first points resolved.

        Args:
            layers: number of decoder layers of the original model, for RMU's layer index.
        """
        parts = {name: self.options.get(name) for name in COMPONENT_KINDS}
        space, first = self.space, self.first
        if space is None:
            space = search_space(self.method, learning_rate=self.setting.learning_rates, **parts, layers=layers)
        space = {name: where for name, where in space.items() if name not in self.options}
        if not space:
            raise ValueError(
                f"nothing is left to search for {self.method}: options fix every hyperparameter; leave one of them out."
            )
        if first is None:
            rates = self.setting.first_rates or (self.setting.learning_rate,)
            first = [point for rate in rates for point in first_points(self.method, learning_rate=rate, **parts)]
        # SimNPO's published first beta and ETW's tuned forget weight are outside their ranges and are clipped.
        clipped = [{name: where.clip(point[name]) for name, where in space.items() if name in point} for point in first]
        unique = tuple(point for place, point in enumerate(clipped) if point not in clipped[:place])
        objective = objective_name(self.objective, self.setting)
        return dataclasses.replace(self, objective=objective, space=space, first=unique)

    def run_options(self, point: SearchPoint) -> dict[str, Any]:
        """Return a trial's options of `UnlearnConfig`, in addition to those of its setting."""
        whole = {name for name, where in (self.space or {}).items() if where.integer}
        return {**self.options, **{name: int(value) if name in whole else value for name, value in point.items()}}

    def config(self, point: SearchPoint | None = None) -> UnlearnConfig:
        """Build the configuration of a trial; without a point, with the shared options only.

        Raises:
            ValueError: the options are invalid.
        """
        return run_config(self.setting, self.method, self.run_options(point or {}), seed=self.seed)


@dataclass(frozen=True, slots=True)
class PreparedSearch:
    """A search that is ready to start."""

    search: Search
    """With all defaults resolved."""
    evaluate: TrialFunction
    """Picklable, unless trials run in this process."""
    what: Mapping[str, Any]
    """Definition, which must match that of a search with the same name in the storage."""
    needs: tuple[Path, ...] = ()
    """Local models and files of rows that trials read."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Result of a search."""

    search: Search
    """With all defaults resolved."""
    trials: tuple[FinishedTrial, ...]
    """In order of trial number."""

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
        """Total duration of all trials."""
        return sum(trial.seconds for trial in self.trials)

    @property
    def budget(self) -> str:
        """Description of the budget for tables."""
        count = f"{len(self.trials)} trial{'s' if len(self.trials) != 1 else ''}"
        return f"{count}, {self.pruned} pruned, {self.seconds:.0f} s"
