"""Run searches with Optuna: ask for the next point, run the trial, tell its result; all searches share one executor.

The first ten points are the given ones, then quasi-random ones (Sobol 1967); the others are those of Optuna's TPE
(Bergstra et al. 2011). The storage keeps finished trials when a command is killed; trials that were running start again
under their numbers, so every search ends with exactly its budget of trials.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import warnings
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from atwu._cache import short_hash
from atwu._extras import require
from atwu._progress import progress_bar
from atwu._renamed import rename_keys
from atwu.experiments.executors import Executor, Task
from atwu.experiments.job_files import JobFiles, lock_folder
from atwu.experiments.tuning.search import FinishedTrial, PreparedSearch, Search, SearchPoint, SearchResult
from atwu.experiments.tuning.trial import run_trial
from atwu.experiments.tuning.trial_storage import masked, open_storage, storage_url
from atwu.methods.component import Range
from atwu.training.progress import Say

logger = logging.getLogger(__name__)

STARTUP_TRIALS = 10
"""Number of trials before TPE starts, including the first points: Optuna's default."""
_FACTS = ("seconds", "forget", "retain", "reason")
"""Fields of a finished trial that Optuna stores as its attribute."""

Searches = Generator["Trials"]
"""Searches of one method, in sequence: the next is requested when the last one is finished."""


def search_all(every: Iterable[Searches], executor: Executor) -> None:
    """Run the searches of all methods; a later one starts when earlier ones leave workers idle.

    Raises:
        Exception: the error of a trial or method; all searches can be continued.
    """
    later, begun, running = iter(every), dict[Searches, Trials](), dict[str, Searches]()

    def advance(searches: Searches) -> None:
        begun.pop(searches, None)
        if (trials := next((each for each in searches if not each.over), None)) is not None:
            begun[searches] = trials

    def opened() -> Iterator[Searches]:
        for searches in later:
            leaving.callback(searches.close)
            advance(searches)
            if searches in begun:
                yield searches

    def begin() -> tuple[str, Task] | None:
        for searches in itertools.chain(tuple(begun), opened()):
            if (found := begun[searches].begin()) is not None:
                running[found[0]] = searches
                return found
        return None

    def finish(name: str, trial: FinishedTrial, error: Exception | None) -> None:
        if error is not None:
            raise error
        searches = running.pop(name)
        begun[searches].finish(trial)
        if begun[searches].over:
            advance(searches)

    with contextlib.ExitStack() as leaving:
        executor.run(begin, finish)


class Trials:
    """A search in progress."""

    def __init__(self, prepared: PreparedSearch, study: Any, *, folder: Path, bar: Any) -> None:
        self._prepared, self._search, self._study = prepared, prepared.search, study
        self._folder, self._jobs, self._bar = folder, JobFiles(folder), bar
        self._known, self._running = stored_trials(study), dict[int, Any]()
        states = require("optuna.trial", extra="tune").TrialState
        # Of a command that was killed: the lock excludes another one that is still at it.
        stopped = study.get_trials(deepcopy=False, states=(states.RUNNING,))
        self._stopped = {trial.number: trial._trial_id for trial in stopped}
        self._show()

    @property
    def over(self) -> bool:
        """Whether all trials of the budget are finished."""
        return all(number in self._known for number in range(self._search.trials))

    def result(self) -> SearchResult:
        """Result so far."""
        trials = tuple(self._known[number] for number in range(self._search.trials) if number in self._known)
        return SearchResult(self._search, trials)

    def begin(self) -> tuple[str, Task] | None:
        """Return the next task with its name; None if there is none at present."""
        begun = {*self._known, *self._running}
        if (number := next((each for each in range(self._search.trials) if each not in begun), None)) is None:
            return None
        optuna = require("optuna", extra="tune")
        again = self._stopped.get(number)
        trial = self._study.ask() if again is None else optuna.trial.Trial(self._study, again)
        if trial.number != number:
            raise self._taken()
        point = suggested(trial, self._search.space or {})
        own = self._folder / f"{number:03d}"
        if own.exists() and self._jobs.known(own) is None:
            raise FileExistsError(f"{own} exists and is not a trial of atwu; choose another output.")
        self._jobs.begin(own, {"search": short_hash(self._prepared.what), "point": point})
        self._running[number] = trial
        task = Task(run_trial, (self._prepared.evaluate, number, point), own, needs=self._prepared.needs)
        return f"{self._search.label}, trial {number}", task

    def finish(self, found: FinishedTrial) -> None:
        """Store the outcome of a trial."""
        optuna, trial = require("optuna", extra="tune"), self._running.pop(found.number)
        states = optuna.trial.TrialState
        try:
            facts = {name: getattr(found, name) for name in _FACTS}
            trial.set_user_attr("result", facts | {"hash": found.content_hash})
            self._study.tell(trial, found.value, states.PRUNED if found.value is None else states.COMPLETE)
        except optuna.exceptions.UpdateFinishedTrialError:
            raise self._taken() from None
        self._known[found.number] = found
        self._show()

    def _taken(self) -> ValueError:
        return ValueError(f"another command is running {self._search.label} in the same storage; wait for it.")

    def _show(self) -> None:
        found = self.result()
        if found.best is not None:
            best = f"best {self._search.objective} {found.best.value:.3f}"
            self._bar.set_postfix_str(best, refresh=False)
        self._bar.update(len(found.trials) - self._bar.n)


@contextlib.contextmanager
def open_trials(
    prepared: PreparedSearch, *, folder: str | Path, progress: bool = False, say: Say = logger.info
) -> Iterator[Trials]:
    """Open the trials of a new or continued search; locks them against other commands."""
    search = prepared.search
    own = Path(folder) / "trials" / search.label.replace("/", "_")
    with lock_folder(own):
        study = open_study(search, Path(folder), prepared.what)
        if there := sum(number < search.trials for number in stored_trials(study)):
            say(f"{search.label}: {there} of {search.trials} trials are already finished")
        shown = progress and there < search.trials
        with progress_bar(total=search.trials, desc=search.label, unit="trial", shown=shown, initial=there) as bar:
            yield Trials(prepared, study, folder=own, bar=bar)


def open_study(search: Search, folder: Path, what: Mapping[str, Any]) -> Any:
    """Open the search in its storage, creating it if needed."""
    optuna = require("optuna", extra="tune")
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # progress is shown by this package
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
    space, there = search.space or {}, len(study.get_trials(deepcopy=False))
    for point in startup_points(space, seed=search.seed, first=search.first or ())[there:]:
        study.enqueue_trial(point)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study.sampler = optuna.samplers.TPESampler(
            seed=search.seed + there,  # a continued search does not draw the same numbers again
            n_startup_trials=STARTUP_TRIALS,
            multivariate=True,
            constant_liar=True,
        )
    return study


def startup_points(space: Mapping[str, Range], *, seed: int, first: Sequence[SearchPoint]) -> list[dict[str, float]]:
    """Return the points of the first trials: the given ones, completed, then quasi-random ones.

    Sobol points cover the space well for any budget.
    """
    from scipy.stats import qmc

    given = [*first, *[{}] * (STARTUP_TRIALS - len(first))]
    units = qmc.Sobol(len(space), seed=seed).random_base2(math.ceil(math.log2(len(given)))).tolist()
    return [
        {name: point.get(name, where.at(unit)) for (name, where), unit in zip(space.items(), row, strict=True)}
        for point, row in zip(given, units, strict=False)
    ]


def suggested(trial: Any, space: Mapping[str, Range]) -> dict[str, float]:
    """Return the point of a trial; numbers that it lacks are drawn."""
    return {
        name: trial.suggest_int(name, round(where.low), round(where.high), log=where.log)
        if where.integer
        else trial.suggest_float(name, where.low, where.high, log=where.log)
        for name, where in space.items()
    }


def stored_trials(study: Any) -> dict[int, FinishedTrial]:
    """Return the finished trials in the storage, by number.

    Raises:
        ValueError: a trial was changed.
    """
    states = require("optuna.trial", extra="tune").TrialState
    found: dict[int, FinishedTrial] = {}
    for trial in study.get_trials(deepcopy=False, states=(states.COMPLETE, states.PRUNED)):
        facts = dict(trial.user_attrs.get("result", {}))
        value, stored = trial.value if trial.state == states.COMPLETE else None, facts.pop("hash", None)
        finished = found[trial.number] = FinishedTrial(trial.number, trial.params, value, **facts)
        if stored != finished.content_hash:
            raise ValueError(
                f"trial {trial.number} of {study.study_name} was changed in the storage, or stored by an older "
                "version; restore the storage from a backup, or start the search anew with another --storage or "
                "--output."
            )
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
