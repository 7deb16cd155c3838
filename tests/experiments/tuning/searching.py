"""A search with a cheap objective."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from atwu.experiments.benchmark_settings import find_setting
from atwu.experiments.executors import Executor, InProcessExecutor
from atwu.experiments.run_search import run_search
from atwu.experiments.search import FinishedTrial, Search, SearchPoint, SearchResult, TrialFunction

SETTING = find_setting("people-tiny")


class Objective:
    """Maximal where all numbers are 0.7; the largest betas are no good; fails at some trials the first time."""

    def __init__(self, fail_at: Mapping[int, BaseException] | None = None) -> None:
        self.fail_at = dict(fail_at or {})
        self.asked: list[int] = []

    def __call__(self, number: int, point: SearchPoint, **folders: Path | None) -> FinishedTrial:
        self.asked.append(number)
        if number in self.fail_at:
            raise self.fail_at.pop(number)
        if point.get("beta", 0) > 8:
            return FinishedTrial(number, point, None, reason="beta is too large")
        value = -sum(abs(math.log(number / 0.7)) for number in point.values())
        return FinishedTrial(number, point, value, forget=0.25, retain=0.5)


def search_for(method: str = "atwu", **changes: Any) -> Search:
    return Search.of(method, **{"setting": SETTING, "trials": 13, **changes})


def run(
    search: Search,
    folder: Path,
    evaluate: TrialFunction | None = None,
    executor: Executor | None = None,
    what: Mapping[str, Any] | None = None,
) -> SearchResult:
    evaluate, executor = evaluate or Objective(), executor or InProcessExecutor()
    return run_search(search, evaluate, executor, folder=folder, what=what or {})


def points(found: SearchResult) -> list[tuple[int, SearchPoint, float | None]]:
    return [(trial.number, trial.point, trial.value) for trial in found.trials]
