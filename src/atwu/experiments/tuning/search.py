"""A hyperparameter search for one method: its objective, options, space, first points, trials and result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

from atwu._names import lookup
from atwu.evaluation.columns import OVERALL
from atwu.experiments.benchmark_settings import BenchmarkSetting
from atwu.experiments.experiment_run import COMPONENT_KINDS, run_config
from atwu.methods.component import Range, options_of_component
from atwu.methods.method_table import METHODS, Method
from atwu.methods.recipe import Recipe, recipe, split_weighting
from atwu.report.metric_table import MetricKey
from atwu.training.config import UnlearnConfig


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
        name = next((key for key, each in OBJECTIVES.items() if metric in (key, each.key[1])), metric)
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
    storage: str | None = field(default=None, repr=False)
    """Database URL, NAME.db or NAME.journal; None for an SQLite file in the folder of the search."""

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
        unique = tuple(point for place, point in enumerate(clipped) if point not in clipped[:place])
        name = label or f"{setting.name}/{method}"
        return cls(method, setting, options, space, unique, objective_name(objective, setting), name, **more)

    def run_options(self, point: SearchPoint) -> dict[str, Any]:
        """Return a trial's options of `UnlearnConfig`, in addition to those of its setting."""
        whole = {name for name, where in self.space.items() if where.integer}
        return {**self.options, **{name: int(value) if name in whole else value for name, value in point.items()}}

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
        return f"{len(self.trials)} trial{'s' if len(self.trials) != 1 else ''}"

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
        where = space["layer"]
        low = where.low if where.low < layers else 0  # all layers if the range starts after the last
        space["layer"] = Range(low, min(where.high, layers - 1), log=False, integer=True)
    return space


def first_points(method: str, *, learning_rate: float, **parts: Any) -> list[dict[str, float]]:
    """Return the first points of a search: the first trial of the published search, then its best values.

    Numbers that the published first trial does not set have their defaults; `Search.of` clips those outside their
    range. Arguments are those of `search_space`.
    """
    decided = recipe(method, **parts)
    row = METHODS[method]
    searched = search_space(method, learning_rate=(learning_rate, learning_rate), **parts)
    owners = {name: _owner(name, row, decided) for name, option in decided.options.items() if name in searched}
    return [
        {"learning_rate": learning_rate}
        | {name: getattr(owner, kind).get(name, decided.options[name].default) for name, owner in owners.items()}
        for kind in (("first_trial", "defaults") if row.first_trial else ("defaults",))
    ]


def _owner(name: str, row: Method, decided: Recipe) -> Method:
    """Return the method that defines an option: `row`, unless the component with this option was replaced."""
    of_loss = any(option.name == name for option in options_of_component(decided.forget_component))
    named = zip(decided.weighting_names, decided.weighting_components, strict=True)
    weightings = {part for part, made in named if any(option.name == name for option in options_of_component(made))}
    for each in (row, *METHODS.values()):
        # Loss weights belong to the method itself.
        shared = not weightings or bool(weightings & set(split_weighting(each.weighting)[0]))
        if each.forget_loss == decided.forget_loss if of_loss else shared:
            return each
    return Method("", "", "", "", "")  # of a component that no method of the table uses
