"""A search with a cheap objective as a process of its own: FOLDER STORAGE TRIALS SECONDS HOST.

Writes a line to FOLDER/HOST.log when a trial begins, and prints the finished search. Unless HOST is
"here" the process pretends to work on another machine: it shares the storage, and nothing else.
"""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path
from typing import Any

from atwu.experiments.study.scales import find_scale
from atwu.experiments.tuning import storage
from atwu.experiments.tuning.points import Point
from atwu.experiments.tuning.run import run_trials
from atwu.experiments.tuning.search import Outcome, PrunedError, Search


def value(point: Point) -> float:
    return -sum(abs(math.log(number / 0.7)) for number in point.values())


class Sleeper:
    """Largest where all numbers are 0.7; the largest betas are no good."""

    def __init__(self, folder: Path, host: str, seconds: float) -> None:
        self.log, self.seconds = folder / f"{host}.log", seconds

    def __call__(self, slot: int, point: Point) -> Outcome:
        with self.log.open("a", encoding="utf-8") as file:
            file.write(f"{slot}\n")
        time.sleep(self.seconds)
        if point["beta"] > 8:
            raise PrunedError("beta is too large")
        return Outcome(value(point), 0.25, 0.5)


def search(
    folder: Path, where: str | None = None, *, trials: int, seconds: float = 0.0, host: str = "here"
) -> list[Any]:
    what = Search("atwu", find_scale("people-tiny"), trials=trials, seed=3, storage=where).decided()
    own = folder if host == "here" else folder / host
    folder.mkdir(parents=True, exist_ok=True)
    found = run_trials(what, Sleeper(folder, host, seconds), folder=own, what={"seed": 3})
    return [[trial.number, dict(trial.point), trial.value, trial.reason] for trial in found.trials]


def main(folder: str, where: str, trials: str, seconds: str, host: str) -> None:
    storage.HEARTBEAT, storage.GRACE = 1, 3
    storage_name = None if where == "-" else where
    print(json.dumps(search(Path(folder), storage_name, trials=int(trials), seconds=float(seconds), host=host)))


if __name__ == "__main__":
    main(*sys.argv[1:])
