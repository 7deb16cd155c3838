"""A search for the numbers of one method: what it makes large, what it is, and what it found.

The budget is exact: a trial counts when it is finished, with a value or pruned, and every place of the budget is filled
once, whatever was killed on the way.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from atwu._names import lookup
from atwu.evaluation.columns import OVERALL
from atwu.evaluation.registry import find_metric
from atwu.experiments.benchmark_settings import BenchmarkSetting
from atwu.experiments.experiment_run import COMPONENT_KINDS, run_config
from atwu.experiments.tuning.sampler import FinishedTrial, SearchPoint
from atwu.experiments.tuning.search_space import first_points, search_space
from atwu.methods.component_options import Range
from atwu.report.table_values import TableLine
from atwu.training.config import UnlearnConfig


@dataclass(frozen=True, slots=True)
class Objective:
    """One objective; larger is better."""

    line: TableLine
    """Set (or "overall") and metric."""
    groups: tuple[str, ...]
    """Groups of metrics that measure it."""
    forget: TableLine
    """The part that says how much was forgotten."""
    retain: TableLine
    """The part that says how much was kept."""
    names: tuple[str, str]
    """What the two parts are called in tables."""

    @property
    def needs_original(self) -> bool:
        """Whether it compares with the starting model's result."""
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
    """The name of an objective in the table; of the setting's own where none is given.

    Raises:
        ValueError: there is none of that name.
    """
    if name is None:
        metric = setting.objective[1]
        name = next((key for key, each in OBJECTIVES.items() if metric in (key, each.line[1])), metric)
    lookup("objective", name, OBJECTIVES)
    return name


class PrunedError(Exception):
    """Raised by an evaluation: these settings are no good, and the message says why."""


class NotPossibleError(ValueError):
    """The rows of a setting lack what a method needs."""


class AllPrunedError(ValueError):
    """A search found nothing that a second stage could go on with."""


TrialFunction = Callable[[int, SearchPoint, Path], FinishedTrial]
"""Runs the trial of a place in the budget with a point, in a folder of its own; its time is not filled in."""


@dataclass(frozen=True, slots=True)
class Search:
    """A search for one method at one setting."""

    method: str
    setting: BenchmarkSetting
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of `UnlearnConfig` that all trials share, such as `weighting`; those named here are not searched."""
    trials: int = 20
    """Trials that are finished in the end. Asking for more of them later continues the same search."""
    seed: int = 0
    """Of the sampler and of every run."""
    objective: str | None = None
    """A name in `OBJECTIVES`; None for the setting's own."""
    storage: str | None = field(default=None, repr=False)
    """Database URL, NAME.db or NAME.journal; None for an SQLite file in the folder of the search."""
    name: str | None = None
    """In the storage; None for SCALE/METHOD."""
    space: Mapping[str, Range] | None = None
    """Option -> range; None for what the method table says."""
    first: Sequence[SearchPoint] | None = None
    """Points of the first trials; None for the method's recommended values."""

    def __post_init__(self) -> None:
        if self.trials < 1:
            raise ValueError(f"a search needs at least 1 trial, got {self.trials}.")
        objective_name(self.objective, self.setting)

    @property
    def label(self) -> str:
        """Its name in the storage."""
        return self.name or f"{self.setting.name}/{self.method}"

    def decided(self, layers: int | None = None) -> Search:
        """The same with objective, space and first points written out.

        Args:
            layers: decoder layers of the starting model, where RMU's may be.

        Raises:
            ValueError: unknown names, or nothing is left to search.
        """
        parts = {name: self.options.get(name) for name in COMPONENT_KINDS}
        space, first = self.space, self.first
        if space is None:
            space = search_space(self.method, learning_rate=self.setting.learning_rates, **parts, layers=layers)
        space = {name: where for name, where in space.items() if name not in self.options}
        if not space:
            raise ValueError(f"nothing is left to search for {self.method}: the options fix every number.")
        if first is None:
            rates = self.setting.first_rates or (self.setting.learning_rate,)
            first = [point for rate in rates for point in first_points(self.method, learning_rate=rate, **parts)]
        # SimNPO's published first beta and ETW's tuned forget weight lie outside their ranges; they start at the end.
        clipped = [{name: where.clip(point[name]) for name, where in space.items() if name in point} for point in first]
        unique = tuple(point for place, point in enumerate(clipped) if point not in clipped[:place])
        objective = objective_name(self.objective, self.setting)
        return dataclasses.replace(self, objective=objective, space=space, first=unique)

    def run_options(self, point: SearchPoint) -> dict[str, Any]:
        """A trial's options of `UnlearnConfig`, beside those of its setting."""
        whole = {name for name, where in (self.space or {}).items() if where.integer}
        return {**self.options, **{name: int(value) if name in whole else value for name, value in point.items()}}

    def config(self, point: SearchPoint | None = None) -> UnlearnConfig:
        """Settings of a trial; without a point, what all of them share.

        Raises:
            ValueError: they are impossible.
        """
        return run_config(self.setting, self.method, self.run_options(point or {}), seed=self.seed)


@dataclass(frozen=True, slots=True)
class PreparedSearch:
    """A search that can begin."""

    search: Search
    """With everything decided."""
    evaluate: TrialFunction
    """Can be pickled, unless the queue works in this process."""
    what: Mapping[str, Any]
    """Its definition, which a search of the same name in the storage must share."""
    needs: tuple[Path, ...] = ()
    """Models and files of rows that trials read and that lie on this machine."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a search found."""

    search: Search
    """With everything decided."""
    trials: tuple[FinishedTrial, ...]
    """In the order of the budget."""

    @property
    def best(self) -> FinishedTrial | None:
        """The trial with the largest value, the earliest of equal ones; None when all were pruned."""
        finished = (trial for trial in self.trials if trial.value is not None)
        return max(finished, key=lambda trial: trial.value or 0.0, default=None)

    @property
    def pruned(self) -> int:
        return sum(trial.value is None for trial in self.trials)

    @property
    def seconds(self) -> float:
        """Time of all trials together."""
        return sum(trial.seconds for trial in self.trials)

    @property
    def budget(self) -> str:
        """For tables."""
        count = f"{len(self.trials)} trial{'s' if len(self.trials) != 1 else ''}"
        return f"{count}, {self.pruned} pruned, {self.seconds:.0f} s"
