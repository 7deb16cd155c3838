"""Trials of a search: propose the point of the next trial, run it, and store its result.

The storage contains only finished trials, each with its number; one process, the driver, accesses it. With n parallel
runs, the point of a trial depends on the results of trials at least n before it, and on the points of those between,
which count as bad. So it depends neither on which run ends first nor on interruptions.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from atwu._cache import short_hash
from atwu._extras import require
from atwu._progress import progress_bar
from atwu._renamed import rename_keys
from atwu.experiments.job_files import JobFiles, lock_folder
from atwu.experiments.queue import Task, TaskResult
from atwu.experiments.tuning.sampler import FinishedTrial, optuna_trial, propose
from atwu.experiments.tuning.search import PreparedSearch, Search, SearchResult
from atwu.experiments.tuning.trial import run_trial
from atwu.experiments.tuning.trial_storage import masked, open_storage, storage_url
from atwu.training.progress import Say

logger = logging.getLogger(__name__)


def trials_folder(search: Search, folder: Path) -> Path:
    """Folder of a search's trials."""
    return folder / "trials" / search.label.replace("/", "_")


class Trials:
    """A search in progress."""

    def __init__(self, prepared: PreparedSearch, study: Any, *, slots: int, folder: Path, bar: Any) -> None:
        self._prepared, self._search, self._space = prepared, prepared.search, prepared.search.space or {}
        self._study, self._slots, self._folder, self._bar = study, slots, folder, bar
        self._jobs, self._known = JobFiles(folder), _finished(study)
        self._points = {place: trial.point for place, trial in self._known.items()}
        self._show()

    @property
    def over(self) -> bool:
        """Whether all trials of the budget are finished."""
        return all(place in self._known for place in range(self._search.trials))

    def result(self) -> SearchResult:
        """Result so far."""
        trials = tuple(self._known[place] for place in range(self._search.trials) if place in self._known)
        return SearchResult(self._search, trials)

    def begin(self) -> tuple[str, Task] | None:
        """Return the next task with its key; None if there is none at present."""
        trials, slots, known, points = self._search.trials, self._slots, self._known, self._points
        first = next((place for place in range(trials) if place not in known), trials)
        place = next((place for place in range(first, trials) if place not in points), trials)
        if place >= min(first + slots, trials):
            return None
        before = [points[number] for number in range(place)]
        found = {number: trial for number, trial in known.items() if number <= place - slots}
        point = points[place] = propose(
            self._space, seed=self._search.seed, points=before, found=found, first=self._search.first or ()
        )
        own = self._folder / f"{place:03d}"
        if own.exists() and self._jobs.known(own) is None:
            raise FileExistsError(f"{own} exists and is not a trial of atwu; choose another output.")
        self._jobs.begin(own, {"search": short_hash(self._prepared.what), "point": point})
        task = Task(run_trial, (self._prepared.evaluate, place, point), own, needs=self._prepared.needs)
        return f"{self._search.label}, trial {place}", task

    def finish(self, done: TaskResult) -> None:
        """Store the outcome of a trial.

        Raises:
            Exception: the error of the trial; the search can be continued.
            ValueError: another command is using the same storage.
        """
        trial = done.get()
        if trial.number in _finished(self._study):
            raise ValueError(f"another command is running {self._search.label} in the same storage; wait for it.")
        self._study.add_trial(optuna_trial(self._space, trial.point, trial))
        self._known[trial.number] = trial
        self._show()

    def _show(self) -> None:
        found = self.result()
        if found.best is not None:
            best = f"best {self._search.objective} {found.best.value:.3f}"
            self._bar.set_postfix_str(best, refresh=False)
        self._bar.update(len(found.trials) - self._bar.n)


@contextlib.contextmanager
def open_trials(
    prepared: PreparedSearch, *, slots: int, folder: str | Path, progress: bool = False, say: Say = logger.info
) -> Iterator[Trials]:
    """Open the trials of a new or continued search; locks them against other commands.

    Args:
        slots: number of parallel trials.

    Raises:
        ValueError: the storage cannot be opened, contains another search of that name, or is used by another command.
        ImportError: Optuna is not installed (extra `tune`).
    """
    search = prepared.search
    own = trials_folder(search, Path(folder))
    with lock_folder(own):
        study = _open_study(search, Path(folder), prepared.what)
        if there := sum(place < search.trials for place in _finished(study)):
            say(f"{search.label}: {there} of {search.trials} trials are already finished")
        shown = progress and there < search.trials
        with progress_bar(total=search.trials, desc=search.label, unit="trial", shown=shown, initial=there) as bar:
            yield Trials(prepared, study, slots=slots, folder=own, bar=bar)


def _open_study(search: Search, folder: Path, what: Mapping[str, Any]) -> Any:
    """Open the search in its storage, creating it if needed.

    Raises:
        ValueError: the storage contains another search of that name.
    """
    optuna = require("optuna", extra="tune")
    url = storage_url(search.storage, folder)
    study = optuna.create_study(
        study_name=search.label, storage=open_storage(url), direction="maximize", load_if_exists=True
    )
    there = study.user_attrs.get("definition")
    if there is None:
        study.set_user_attr("definition", dict(what))
    elif changed := definition_differences(rename_keys(there), what):
        more = f" and {len(changed) - 4} more" if len(changed) > 4 else ""
        raise ValueError(
            f"{masked(url)} contains another search named {search.label!r}: {'; '.join(changed[:4])}{more}. Continue "
            "it with its own settings, or choose another name, folder or storage."
        )
    return study


def _finished(study: Any) -> dict[int, FinishedTrial]:
    """Return the trials in the storage, by number.

    Raises:
        ValueError: the values of a trial are not those that were stored.
    """
    states = require("optuna.trial", extra="tune").TrialState
    found: dict[int, FinishedTrial] = {}
    for trial in study.get_trials(deepcopy=False, states=(states.COMPLETE, states.PRUNED)):
        facts = dict(trial.user_attrs)
        value, place = trial.value if trial.state == states.COMPLETE else None, int(facts.pop("slot"))
        stored = facts.pop("hash", None)
        finished = FinishedTrial(number=place, value=value, **facts)
        if stored != finished.content_hash:
            raise ValueError(
                f"trial {place} of {study.study_name} was changed in the storage, or stored by an older version; restore "
                "the storage from a backup, or start the search anew with another --storage or --output."
            )
        found.setdefault(place, finished)
    return found


def definition_differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """Describe each value that differs, one text per value."""
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


@contextlib.contextmanager
def quiet_optuna() -> Iterator[None]:
    """Show only errors of Optuna; progress is shown by this package."""
    log = require("optuna.logging", extra="tune")
    before = log.get_verbosity()
    log.set_verbosity(log.ERROR)
    try:
        yield
    finally:
        log.set_verbosity(before)
