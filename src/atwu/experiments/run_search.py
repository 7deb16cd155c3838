"""Run a search with Optuna: ask for the next point, run the trial, tell its result.

The first ten points are the given ones, then quasi-random ones (Sobol 1967); the others are those of Optuna's TPE
(Bergstra et al. 2011). The storage (an SQLite file, or a journal file for network folders) keeps finished trials when a
command is killed; trials that were running start again under their numbers, so every search ends with exactly its budget
of trials.
"""

from __future__ import annotations

import contextlib
import logging
import math
import sqlite3
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from atwu._cache import key_differences, short_hash
from atwu._extras import require
from atwu._progress import progress_bar
from atwu.experiments.executors import Executor, Task
from atwu.experiments.experiment_run import begin_job, job_of, lock_folder
from atwu.experiments.search import FinishedTrial, Search, SearchPoint, SearchResult, TrialFunction
from atwu.methods.component import Range
from atwu.training.progress import Say

logger = logging.getLogger(__name__)

STARTUP_TRIALS = 10
"""Number of trials before TPE starts, including the first points: Optuna's default."""
_STORED = ("seconds", "forget", "retain", "reason")
"""Fields of a finished trial that Optuna stores as its attribute."""


def run_search(
    search: Search,
    trial_function: TrialFunction,
    executor: Executor,
    *,
    folder: Path,
    what: Mapping[str, Any],
    say: Say = logger.info,
) -> SearchResult:
    """Run a new or continued search until `search.trials` trials are finished, pruned ones included.

    Its folder is locked against other commands.

    Args:
        trial_function: runs one trial; picklable, unless trials run in this process.
        what: definition, which must match that of a search with the same name in the storage.
    """
    optuna = require("optuna", extra="tune")
    states = optuna.trial.TrialState
    own = folder / "trials" / search.label.replace("/", "_")
    taken = f"another command is running {search.label} in the same storage; wait for it."
    running: dict[int, Any] = {}
    with lock_folder(own):
        study = open_study(search, folder, what)
        known = stored_trials(study)
        # Of a command that was killed: the lock excludes another one that is still at it.
        stopped = study.get_trials(deepcopy=False, states=(states.RUNNING,))
        repeated = {trial.number: trial._trial_id for trial in stopped}
        # An earlier command may have asked for more trials.
        done = sum(number < search.trials for number in known)
        if done:
            say(f"{search.label}: {done} of {search.trials} trials are already finished")

        def begin() -> tuple[str, Task] | None:
            unbegun = (number for number in range(search.trials) if number not in known and number not in running)
            number = next(unbegun, None)
            if number is None:
                return None
            if number in repeated:
                trial = optuna.trial.Trial(study, repeated[number])
            else:
                trial = study.ask()
            if trial.number != number:  # Optuna numbers trials in the order in which any command asks for them
                raise ValueError(taken)
            point, place = draw_point(trial, search.space), own / f"{number:03d}"
            if place.exists() and job_of(own, place) is None:
                raise FileExistsError(f"{place} exists and is not a trial of atwu; choose another output.")
            begin_job(own, place, {"search": short_hash(what), "point": point})
            running[number] = trial
            return f"{search.label}, trial {number}", partial(trial_function, number, point, folder=place)

        shown = done < search.trials
        with progress_bar(total=search.trials, desc=search.label, unit="trial", shown=shown, initial=done) as bar:
            for _, finished, error in executor.run(begin):
                if error is not None:
                    raise error
                trial = running.pop(finished.number)
                state = states.COMPLETE
                if finished.value is None:
                    state = states.PRUNED
                try:
                    # The attribute first: a trial that is told counts as finished, also if the command is killed here.
                    trial.set_user_attr("result", {name: getattr(finished, name) for name in _STORED})
                    study.tell(trial, finished.value, state)
                except optuna.exceptions.UpdateFinishedTrialError:
                    raise ValueError(taken) from None
                known[finished.number] = finished
                values = [trial.value for trial in known.values() if trial.value is not None]
                if values:
                    bar.set_postfix_str(f"best {search.objective} {max(values):.3f}", refresh=False)
                bar.update()
        return SearchResult(search, tuple(known[number] for number in range(search.trials)))


def open_study(search: Search, folder: Path, what: Mapping[str, Any]) -> Any:
    """Open the search in its storage, creating it if needed."""
    optuna = require("optuna", extra="tune")
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # progress is shown by this package
    place = storage_place(search.storage, folder)
    storage = open_storage(place)
    with _explain_errors(place):
        study = optuna.create_study(study_name=search.label, storage=storage, direction="maximize", load_if_exists=True)
    stored = study.user_attrs.get("definition")
    if stored is None:
        study.set_user_attr("definition", dict(what))
    elif stored != what:
        raise ValueError(
            f"{place} contains another search named {search.label!r}, with other values of "
            f"{', '.join(key_differences(stored, what))}. Continue it with its own settings, or choose another name, folder or "
            "storage."
        )
    # Also trials of a command that was killed: their points are taken, and not queued again.
    begun = len(study.get_trials(deepcopy=False))
    for point in startup_points(search.space, seed=search.seed, first=search.first)[begun:]:
        study.enqueue_trial(point)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study.sampler = optuna.samplers.TPESampler(
            seed=search.seed + begun,  # a continued search does not draw the same numbers again
            n_startup_trials=STARTUP_TRIALS,
            # The best learning rate depends on the loss weights, so they are drawn jointly.
            multivariate=True,
            # Trials that still run count as bad ones, or parallel workers would try the same place.
            constant_liar=True,
        )
    return study


def startup_points(space: Mapping[str, Range], *, seed: int, first: Sequence[SearchPoint]) -> list[dict[str, float]]:
    """Return the points of the first trials: the given ones, completed, then Sobol points, which cover the space well."""
    from scipy.stats import qmc

    wanted = [*first, *[{}] * (STARTUP_TRIALS - len(first))]
    # Sobol points are balanced only in numbers that are powers of two.
    units = qmc.Sobol(len(space), seed=seed).random_base2(math.ceil(math.log2(len(wanted)))).tolist()
    return [
        {name: point.get(name, where.at(unit)) for (name, where), unit in zip(space.items(), row, strict=True)}
        for point, row in zip(wanted, units, strict=False)
    ]


def draw_point(trial: Any, space: Mapping[str, Range]) -> dict[str, float]:
    """Return the point of a trial; numbers that it lacks are drawn."""
    point: dict[str, float] = {}
    for name, where in space.items():
        if where.integer:
            point[name] = trial.suggest_int(name, round(where.low), round(where.high), log=where.log)
        else:
            point[name] = trial.suggest_float(name, where.low, where.high, log=where.log)
    return point


def stored_trials(study: Any) -> dict[int, FinishedTrial]:
    """Return the finished trials of a storage, by number."""
    states = require("optuna.trial", extra="tune").TrialState
    trials = {}
    for trial in study.get_trials(deepcopy=False, states=(states.COMPLETE, states.PRUNED)):
        result = trial.user_attrs.get("result", {})
        trials[trial.number] = FinishedTrial(trial.number, trial.params, trial.value, **result)
    return trials


def storage_place(storage: str | None, folder: Path) -> str:
    """Return the absolute path of the storage."""
    if storage is None:
        return str(folder.absolute() / "search.db")
    path = Path(storage).expanduser().absolute()
    if path.suffix not in (".journal", ".db"):
        raise ValueError(f"storage must be a file NAME.db (SQLite) or NAME.journal, got {storage!r}.")
    return str(path)


def open_storage(place: str) -> Any:
    optuna = require("optuna", extra="tune")
    Path(place).parent.mkdir(parents=True, exist_ok=True)
    with _explain_errors(place):
        if place.endswith(".journal"):
            journal = require("optuna.storages.journal", extra="tune")
            # The default lock is a symbolic link, which Windows does not create without a privilege.
            lock = journal.JournalFileOpenLock(place)
            return optuna.storages.JournalStorage(journal.JournalFileBackend(place, lock_obj=lock))

        def connect() -> sqlite3.Connection:
            connection = sqlite3.connect(place, check_same_thread=False)
            # With a write-ahead log a write takes microseconds instead of up to a second. Nothing is lost if a process is
            # killed; a power failure loses at most the last few writes.
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            return connection

        # The connection has the path, in which a URL would give some characters another meaning.
        return optuna.storages.RDBStorage("sqlite:///search.db", engine_kwargs={"creator": connect})


@contextlib.contextmanager
def _explain_errors(place: str) -> Iterator[None]:
    """Turn the errors of Optuna about a storage that it cannot read into one that names the storage."""
    try:
        yield
    except ImportError:
        raise
    except Exception as error:  # of a parser, a database, or an assertion
        first = str(error).strip().partition("\n")[0]
        raise ValueError(f"cannot open the storage {place}: {first}") from None
