"""Filling a search's budget: ask for the point of a place, have it run, and keep what came out in the storage.

The storage holds finished trials only, each with its place in the budget; one process, the driver, talks to it. With n runs
at once the point of a place follows from the results n and more places before it, and from the points of those between,
which count as bad: it does not depend on which run ends first, nor on whether the search was stopped on the way.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from atwu._cache import short_hash
from atwu._extras import require
from atwu._progress import bar_of
from atwu.experiments.jobs import Jobs, only_here
from atwu.experiments.queue import Done, Queue, Task, work_off
from atwu.experiments.tuning.points import FinishedTrial, Point, optuna_trial, propose
from atwu.experiments.tuning.search import Evaluate, Outcome, PrunedError, Search, SearchResult
from atwu.experiments.tuning.storage import masked, open_storage, storage_url
from atwu.training.progress import Say

logger = logging.getLogger(__name__)


def trials_folder(search: Search, folder: Path) -> Path:
    """Where the trials of a search lie."""
    return folder / "trials" / search.label.replace("/", "_")


def run_trials(
    search: Search,
    evaluate: Evaluate,
    queue: Queue,
    *,
    folder: str | Path,
    what: Mapping[str, Any],
    needs: tuple[Path, ...] = (),
    progress: bool = False,
    say: Say = logger.info,
) -> SearchResult:
    """Run or continue a search with any evaluation of a point.

    Args:
        evaluate: runs one trial; can be pickled, unless the queue works in this process.
        what: its definition, which a search of the same name in the storage must share.
        needs: models and files of rows that trials read and that lie on this machine.

    Raises:
        Exception: what a trial failed with; the search can be continued.
        ValueError: the storage holds another search of that name, or another command is at work on it.
    """
    place_folder = trials_folder(search, Path(folder))
    with _quiet_optuna(), only_here(place_folder):
        study = _open_study(search, Path(folder), what)
        known = _finished(study)
        if there := sum(place in known for place in range(search.trials)):
            say(f"{search.label}: {there} of {search.trials} trials are there already")
        if there < search.trials:
            task = Task(run_trial, (evaluate,), needs=needs)
            with bar_of(total=search.trials, desc=search.label, unit="trial", shown=progress, initial=there) as bar:
                _fill(search, task, queue, study, known, place_folder, what, bar)
        return _result(search, known)


def _fill(
    search: Search,
    task: Task,
    queue: Queue,
    study: Any,
    known: dict[int, FinishedTrial],
    folder: Path,
    what: Mapping[str, Any],
    bar: Any,
) -> None:
    """Run the trials that are missing, and add them to the study and to what is known."""
    jobs, slots, points = Jobs(folder), queue.slots, {place: trial.point for place, trial in known.items()}

    def show() -> None:
        found = _result(search, known)
        if found.best is not None:
            bar.set_postfix_str(f"best {search.objective} {found.best.value:.3f}", refresh=False)
        bar.update(len(found.trials) - bar.n)

    def begin() -> tuple[str, Task] | None:
        first = next((place for place in range(search.trials) if place not in known), search.trials)
        place = next((place for place in range(first, search.trials) if place not in points), search.trials)
        if place >= min(first + slots, search.trials):
            return None
        before = [points[number] for number in range(place)]
        found = {number: trial for number, trial in known.items() if number <= place - slots}
        point = points[place] = propose(
            search.space or {}, seed=search.seed, points=before, found=found, first=search.first or ()
        )
        own = folder / f"{place:03d}"
        if own.exists() and jobs.known(own) is None:
            raise FileExistsError(f"{own} exists and is not a trial of atwu; choose another output.")
        jobs.begin(own, {"search": short_hash(what), "point": point})
        return f"{search.label}, trial {place}", dataclasses.replace(task, args=(*task.args, place, point), folder=own)

    def finish(key: str, done: Done) -> None:
        trial = done.get()
        if trial.number in _finished(study):
            raise ValueError(f"another command is at work on {search.label} in the same storage; wait for it.")
        study.add_trial(optuna_trial(search.space or {}, trial.point, trial))
        known[trial.number] = trial
        show()

    show()
    work_off(queue, begin, finish)


def run_trial(
    evaluate: Evaluate, place: int, point: Point, *, folder: Path, source: Path | None = None
) -> FinishedTrial:
    """Run the trial of a place; what is no good is pruned."""
    start = time.perf_counter()
    outcome, reason = Outcome(math.nan), None
    try:
        outcome = evaluate(place, point, folder)
        if math.isnan(outcome.value):
            reason = "the objective is not a number"
    except PrunedError as error:
        reason = str(error)
    seconds = round(time.perf_counter() - start, 3)
    if reason is not None:
        return FinishedTrial(place, point, None, seconds, reason=reason)
    return FinishedTrial(place, point, outcome.value, seconds, outcome.forget, outcome.retain)


def _open_study(search: Search, folder: Path, what: Mapping[str, Any]) -> Any:
    """The search in its storage, made there if need be.

    Raises:
        ValueError: the storage holds another search of that name.
    """
    optuna = require("optuna", extra="tune")
    url = storage_url(search.storage, folder)
    study = optuna.create_study(
        study_name=search.label, storage=open_storage(url), direction="maximize", load_if_exists=True
    )
    there = study.user_attrs.get("definition")
    if there is None:
        study.set_user_attr("definition", dict(what))
    elif changed := differences(there, what):
        more = f" and {len(changed) - 4} more" if len(changed) > 4 else ""
        raise ValueError(
            f"{masked(url)} holds another search named {search.label!r}: {'; '.join(changed[:4])}{more}. Continue it with "
            "its own settings, or choose another name, folder or storage."
        )
    return study


def _finished(study: Any) -> dict[int, FinishedTrial]:
    """Place -> its trial, as the storage has it."""
    states = require("optuna.trial", extra="tune").TrialState
    found: dict[int, FinishedTrial] = {}
    for trial in study.get_trials(deepcopy=False, states=(states.COMPLETE, states.PRUNED)):
        facts = dict(trial.user_attrs)
        value, place = trial.value if trial.state == states.COMPLETE else None, int(facts.pop("slot"))
        found.setdefault(place, FinishedTrial(number=place, value=value, **facts))
    return found


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """One text per value that differs."""
    old, new = dict(_leaves(there)), dict(_leaves(here))
    return [
        f"{name} is {old.get(name)!r} there and {new.get(name)!r} here"
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    ]


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if entries is None:
        yield name, value
        return
    for key, inner in entries:
        yield from _leaves(inner, f"{name}.{key}" if name else str(key))


def _result(search: Search, known: Mapping[int, FinishedTrial]) -> SearchResult:
    """What is finished so far."""
    return SearchResult(search, tuple(known[place] for place in range(search.trials) if place in known))


@contextlib.contextmanager
def _quiet_optuna() -> Iterator[None]:
    """Only errors from Optuna; what is worth knowing is said here."""
    log = require("optuna.logging", extra="tune")
    before = log.get_verbosity()
    log.set_verbosity(log.ERROR)
    try:
        yield
    finally:
        log.set_verbosity(before)
