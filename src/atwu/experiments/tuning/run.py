"""Filling a search's budget: take a free place, ask for its point, run it, and tell the storage; in one process or several."""

from __future__ import annotations

import contextlib
import logging
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from atwu._extras import require
from atwu.experiments.tuning.board import (
    BEGUN,
    earlier_point,
    fail,
    finished,
    holders,
    release_lost,
    release_silent,
    result_of,
    tried,
)
from atwu.experiments.tuning.definition import differences
from atwu.experiments.tuning.points import distributions, propose
from atwu.experiments.tuning.presence import Presence
from atwu.experiments.tuning.search import Evaluate, PrunedError, Say, Search, SearchResult
from atwu.experiments.tuning.storage import GRACE, Heartbeat, masked, open_storage, storage_url

logger = logging.getLogger(__name__)

POLL = 0.5
"""Seconds between two looks at trials that others run."""

Watch = Callable[[SearchResult], None]


def run_trials(
    search: Search,
    evaluate: Evaluate,
    *,
    folder: str | Path,
    what: Mapping[str, Any],
    processes: int = 1,
    progress: bool = False,
    say: Say = logger.info,
) -> SearchResult:
    """Run or continue a search with any evaluation of a point.

    Args:
        search: with everything decided.
        evaluate: runs one trial; several processes need one that can be pickled.
        folder: of the search.
        what: its definition, which a search of the same name in the storage must share.
        processes: workers on this machine.
        progress: show a bar.
        say: receives lines of text.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with quiet_optuna():
        study, storage = open_study(search, folder, what)
        found = result_of(search, study)
        if found.trials:
            say(f"{search.label}: {len(found.trials)} of {search.trials} trials are there already")
        if len(found.trials) < search.trials:
            with _bar(search, shown=progress) as watch:
                watch(found)
                if processes == 1:
                    work(search, evaluate, study, storage, folder, watch)
                else:
                    from atwu.experiments.tuning.workers import run_workers

                    run_workers(search, evaluate, folder, what, study, processes=processes, watch=watch, say=say)
        return result_of(search, study)


def open_study(search: Search, folder: Path, what: Mapping[str, Any]) -> tuple[Any, Any]:
    """The search in its storage, made there if need be, and the storage.

    Raises:
        ValueError: the storage holds another search of that name.
    """
    optuna = require("optuna", extra="tune")
    url = storage_url(search.storage, folder)
    storage = open_storage(url)
    study = optuna.create_study(
        study_name=search.label,
        storage=storage,
        direction="maximize",
        load_if_exists=True,
        sampler=optuna.samplers.RandomSampler(seed=0),  # of no consequence: `propose` decides on points
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
    return study, storage


def work(search: Search, evaluate: Evaluate, study: Any, storage: Any, folder: Path, watch: Watch) -> None:
    """Run trials until the budget is filled."""
    states = require("optuna.trial", extra="tune").TrialState
    presence = Presence(folder)
    space = search.space or {}
    waiting: dict[int, float] = {}
    while True:
        release_lost(study, presence, waiting, states, grace=GRACE)
        release_silent(study, storage, presence, states)
        trials = study.get_trials(deepcopy=False)
        held = holders(trials, search.trials)
        if sum(map(finished, held.values())) == search.trials:
            break
        slot = next((slot for slot in range(search.trials) if slot not in held), None)
        if slot is not None:
            point = earlier_point(trials, slot) or propose(
                space, seed=search.seed, slot=slot, tried=tried(held), first=search.first or ()
            )
            study.enqueue_trial(point, user_attrs={"slot": slot, "point": point, "owner": presence.owner()})
        elif not any(trial.state == states.WAITING for trial in held.values()):
            time.sleep(POLL)
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # heartbeats here do not need Study.optimize
            trial = study.ask(distributions(space))
        holder = holders(study.get_trials(deepcopy=False), search.trials).get(trial.user_attrs.get("slot"))
        if holder is None or holder.number != trial.number:
            fail(study, trial, states)  # another worker was after the same place, and first
            continue
        _run(evaluate, study, storage, trial, presence, states)
        watch(result_of(search, study))
    presence.leave()


def _run(evaluate: Evaluate, study: Any, storage: Any, trial: Any, presence: Presence, states: Any) -> None:
    """Run one trial and tell what came out."""
    facts: dict[str, Any] = {}
    state, value = states.COMPLETE, None
    start = time.perf_counter()
    with Heartbeat(storage, trial):
        try:
            trial.set_user_attr("owner", presence.owner())
            trial.set_user_attr(BEGUN, True)
        except RuntimeError:
            return  # it was given to another worker in this very moment
        try:
            outcome = evaluate(int(trial.user_attrs["slot"]), dict(trial.user_attrs["point"]))
            value, facts = outcome.value, {"forget": outcome.forget, "retain": outcome.retain}
            if math.isnan(value):
                raise PrunedError("the objective is not a number")
        except PrunedError as reason:
            state, value, facts = states.PRUNED, None, {"reason": str(reason)}
        except BaseException:
            fail(study, trial, states)
            raise
        facts["seconds"] = round(time.perf_counter() - start, 3)
        try:
            for name, fact in facts.items():
                trial.set_user_attr(name, fact)
            study.tell(trial, value, state=state, skip_if_finished=True)
        except RuntimeError:
            logger.warning("trial %s had been given to another worker; its result is dropped", trial.number)


@contextlib.contextmanager
def quiet_optuna() -> Iterator[None]:
    """Only errors from Optuna; what is worth knowing is said here."""
    log = require("optuna.logging", extra="tune")
    before = log.get_verbosity()
    log.set_verbosity(log.ERROR)
    try:
        yield
    finally:
        log.set_verbosity(before)


@contextlib.contextmanager
def _bar(search: Search, *, shown: bool) -> Iterator[Watch]:
    """A bar over trials with the best value so far."""
    bar = tqdm(
        total=search.trials,
        desc=search.label,
        unit="trial",
        disable=not shown,
        dynamic_ncols=True,
        mininterval=0.2 if sys.stderr.isatty() else 15,  # a log file wants few lines
    )

    def watch(found: SearchResult) -> None:
        best = found.best
        if best is not None:
            bar.set_postfix_str(f"best {search.objective} {best.value:.3f}", refresh=False)
        bar.update(len(found.trials) - bar.n)

    with bar:
        yield watch
