"""A search with a cheap objective as a process of its own: FOLDER STORAGE TRIALS SECONDS PROCESSES.

Writes a line to FOLDER/begun.log when a trial begins, and prints the finished search.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from atwu.experiments.benchmark_settings import find_setting
from atwu.experiments.executors import Executor
from atwu.experiments.open_executor import open_executor
from atwu.experiments.tuning.search import (
    FinishedTrial,
    PreparedSearch,
    PrunedError,
    Search,
    SearchPoint,
    SearchResult,
    TrialFunction,
)
from atwu.experiments.tuning.trials import Searches, open_trials, search_all


def run_trials(
    search: Search, evaluate: TrialFunction, executor: Executor, *, folder: Path, what: Mapping[str, Any]
) -> SearchResult:
    """One search with any evaluation of a point, to its end."""
    found = []

    def line() -> Searches:
        with open_trials(PreparedSearch(search, evaluate, what), folder=folder) as trials:
            yield trials
            found.append(trials.result())

    search_all([line()], executor)
    return found[0]


def value(point: SearchPoint) -> float:
    return -sum(abs(math.log(number / 0.7)) for number in point.values())


class Sleeper:
    """Largest where all numbers are 0.7; the largest betas are no good. Every third trial takes longer."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.log, self.seconds = folder / "begun.log", seconds

    def __call__(self, place: int, point: SearchPoint, folder: Path) -> FinishedTrial:
        with self.log.open("a", encoding="utf-8") as file:
            file.write(f"{place}\n")
        time.sleep(self.seconds * (1 if place % 3 else 3))
        if point["beta"] > 8:
            raise PrunedError("beta is too large")
        return FinishedTrial(place, point, value(point), forget=0.25, retain=0.5)


def search(
    folder: Path, where: str | None = None, *, trials: int, seconds: float = 0.0, processes: int = 1
) -> list[Any]:
    what = Search("atwu", find_setting("people-tiny"), trials=trials, seed=3, storage=where).decided()
    folder.mkdir(parents=True, exist_ok=True)
    with open_executor(processes, folder=folder, say=print) as executor:
        found = run_trials(what, Sleeper(folder, seconds), executor, folder=folder, what={"seed": 3})
    return [[trial.number, dict(trial.point), trial.value, trial.reason] for trial in found.trials]


def main(folder: str, where: str, trials: str, seconds: str, processes: str) -> None:
    storage = None if where == "-" else where
    found = search(Path(folder), storage, trials=int(trials), seconds=float(seconds), processes=int(processes))
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
