"""A whole search: ask for the point of a place in its budget, have it run, and keep what came out in the storage.

The storage holds finished trials only, each with its place in the budget; one process, the driver, talks to it. With n runs
at once the point of a place follows from the results n and more places before it, and from the points of those between,
which count as bad: it does not depend on which run ends first, nor on whether the search was stopped on the way.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.metadata
import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from atwu._cache import short_hash
from atwu._extras import require
from atwu._files import versions
from atwu._progress import bar_of
from atwu.evaluation.columns import RWKU
from atwu.evaluation.result import EvalResult
from atwu.experiments.jobs import Jobs, only_here
from atwu.experiments.queue import Done, Queue, Task, work_off
from atwu.experiments.run import ORIGINAL, Setup, prefers, reason_against, reference_of
from atwu.experiments.targets import Models, identity
from atwu.experiments.tuning.points import POINTS, FinishedTrial, optuna_trial, propose
from atwu.experiments.tuning.search import OBJECTIVES, Evaluate, NotPossibleError, Search, SearchResult
from atwu.experiments.tuning.storage import masked, open_storage, storage_url
from atwu.experiments.tuning.trial import reach, run_trial, stop_if_destroyed
from atwu.training.model import ModelSource
from atwu.training.progress import Say

logger = logging.getLogger(__name__)

_SCALE = ("name", "benchmark", "forget", "retain", "training", "evaluation")
"""Fields of a scale that change the value of a trial."""


def run_search(
    search: Search,
    models: Models,
    queue: Queue,
    *,
    folder: str | Path,
    progress: bool = False,
    say: Say = logger.info,
) -> SearchResult:
    """Search, or continue a search that was stopped.

    Raises:
        NotPossibleError: the rows lack what the method needs.
        ValueError: settings that cannot run, a storage that cannot be opened, or one that holds another search of that
            name.
        ImportError: Optuna is not installed (extra `tune`).
    """
    layers = ModelSource(model=models.target).architecture().get_text_config().num_hidden_layers
    search = search.decided(int(layers))
    check_search(search, models)
    what = definition(search, models)
    objective = OBJECTIVES[str(search.objective)]
    setup = Setup(models, search.scale, objective.groups, watch=stop_if_destroyed)
    references: dict[str, EvalResult] = {}
    if objective.needs_original:
        # Named by all that its numbers follow from, so that the searches of all methods share it.
        measured = {name: what[name] for name in ("objective", "scale", "rows", "model", "versions")}
        file = Path(folder) / "trials" / f"original-{short_hash(measured)[:12]}.json"
        references[ORIGINAL] = reference_of(queue, setup, ORIGINAL, {}, file)
    trial, needs = functools.partial(reach, search, setup, references), setup.needs(search.options)
    return run_trials(search, trial, queue, folder=folder, what=what, needs=needs, progress=progress, say=say)


def definition(search: Search, models: Models | None = None) -> dict[str, Any]:
    """Everything that decides which points are tried and what they reach; the number of trials is not among it."""
    assert search.space is not None
    scale = {name: value for name, value in dataclasses.asdict(search.scale).items() if name in _SCALE}
    plain: dict[str, Any] = {
        "method": search.method,
        "options": dict(search.options),
        "objective": search.objective,
        "seed": search.seed,
        "points": POINTS,
        "space": {name: dataclasses.asdict(where) for name, where in search.space.items()},
        "first": [dict(point) for point in search.first or ()],
        "scale": scale,
        "versions": versions() | {"optuna": importlib.metadata.version("optuna")},
    }
    if models is not None:
        here = identity(models, paired=prefers(search.config()))
        # Of the models only the starting one: no objective compares with the retain-only model.
        plain |= {"rows": here["rows"], "model": here["models"]["target"]}
    return dict(json.loads(json.dumps(plain)))


def check_search(search: Search, models: Models) -> None:
    """Whether a search can run, before anything is spent.

    Raises:
        NotPossibleError: the rows lack what the method needs.
        ValueError: the scale has no rows for the objective, or the options cannot work together.
    """
    if RWKU in OBJECTIVES[str(search.objective)].groups and models.benchmark.probes is None:
        raise ValueError(
            f"objective {search.objective} is measured on RWKU's probes; scale {search.scale.name} has none."
        )
    for point in search.first or ():
        search.config(point)
    check_rows(search, models)


def check_rows(search: Search, models: Models) -> None:
    """Whether the forget rows have what the method needs.

    Raises:
        NotPossibleError: they have not.
    """
    if reason := reason_against(search.config(), models.benchmark):
        raise NotPossibleError(f"at {search.scale.name} it {reason}")


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
    place_folder, space = trials_folder(search, Path(folder)), search.space or {}
    with _quiet_optuna(), only_here(place_folder):
        study = _open_study(search, Path(folder), what)
        known = _finished(study)
        if there := sum(place in known for place in range(search.trials)):
            say(f"{search.label}: {there} of {search.trials} trials are there already")
        if there == search.trials:
            return _result(search, known)
        jobs, slots, points = Jobs(place_folder), queue.slots, {place: trial.point for place, trial in known.items()}
        bar = bar_of(total=search.trials, desc=search.label, unit="trial", shown=progress, initial=there)

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
                space, seed=search.seed, points=before, found=found, first=search.first or ()
            )
            own = place_folder / f"{place:03d}"
            if own.exists() and jobs.known(own) is None:
                raise FileExistsError(f"{own} exists and is not a trial of atwu; choose another output.")
            jobs.begin(own, {"search": short_hash(what), "point": point})
            return f"{search.label}, trial {place}", Task(run_trial, (evaluate, place, point), own, needs=needs)

        def finish(key: str, done: Done) -> None:
            trial = done.get()
            if trial.number in _finished(study):
                raise ValueError(f"another command is at work on {search.label} in the same storage; wait for it.")
            study.add_trial(optuna_trial(space, trial.point, trial))
            known[trial.number] = trial
            show()

        with bar:
            show()
            work_off(queue, begin, finish)
        return _result(search, known)


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
