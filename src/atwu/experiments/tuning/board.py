"""Reading a search off its storage: who holds which place of the budget, what was tried there, and what came out.

Every trial in the storage carries its place (`slot`), its `point` and its `owner`. A place belongs to the first trial
there that did not fail; a failed one leaves it free, with its point for the next.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from atwu.experiments.tuning.points import Tried
from atwu.experiments.tuning.presence import Presence
from atwu.experiments.tuning.search import FinishedTrial, Search, SearchResult

BEGUN = "begun"
"""Attribute of a trial whose process has taken it and sent a heartbeat."""


def holders(trials: Sequence[Any], budget: int) -> dict[int, Any]:
    """Place -> the trial that holds it, in the order of places.

    Args:
        trials: `Study.get_trials()`.
        budget: how many places there are.
    """
    held: dict[int, Any] = {}
    for trial in sorted(trials, key=lambda each: int(each.number)):
        slot = trial.user_attrs.get("slot")
        if slot is not None and slot < budget and trial.state.name != "FAIL":
            held.setdefault(int(slot), trial)
    return dict(sorted(held.items()))


def finished(trial: Any) -> bool:
    """With a value, or pruned."""
    return trial.state.name in ("COMPLETE", "PRUNED")


def earlier_point(trials: Sequence[Any], slot: int) -> dict[str, float] | None:
    """The point of a place whose trial failed, such as one whose process was killed."""
    return next((dict(trial.user_attrs["point"]) for trial in trials if trial.user_attrs.get("slot") == slot), None)


def tried(held: dict[int, Any]) -> list[Tried]:
    """What the next point is chosen by."""
    return [
        Tried(slot, trial.user_attrs["point"], trial.value if finished(trial) else None, trial.state.name == "PRUNED")
        for slot, trial in held.items()
    ]


def release_lost(study: Any, presence: Presence, waiting: dict[int, float], states: Any, *, grace: float) -> None:
    """Fail running trials whose process has ended, as far as that can be seen from here.

    Args:
        study: Optuna's study.
        presence: this process, which runs nothing at the moment.
        waiting: trial -> when it was first seen without a sign that it has begun; kept by the caller between calls.
        states: `optuna.trial.TrialState`.
        grace: seconds that such a trial gets. Its process was killed before the first heartbeat.
    """
    now = time.monotonic()
    for trial in study.get_trials(deepcopy=False, states=(states.RUNNING,)):
        owner = trial.user_attrs.get("owner", {})
        if presence.has_left(owner):
            fail(study, trial.number, states)
            presence.forget(owner)
        elif BEGUN not in trial.user_attrs and now - waiting.setdefault(trial.number, now) > grace:
            fail(study, trial.number, states)


def release_silent(study: Any, storage: Any, presence: Presence, states: Any) -> None:
    """Fail running trials whose workers have not been heard of for `storage.GRACE` seconds.

    A worker of this machine that lives keeps its trial: one that slept with the machine goes on when it wakes up.

    Args:
        study: Optuna's study.
        storage: as `open_storage` returns it; a journal file knows of no heartbeats.
        presence: this process, which runs nothing at the moment.
        states: `optuna.trial.TrialState`.
    """
    # Optuna's public function for this gives up every silent trial.
    find = getattr(storage, "_get_stale_trial_ids", None)
    silent = set(find(study._study_id)) if find is not None else set()
    if not silent:
        return
    for trial in study.get_trials(deepcopy=False, states=(states.RUNNING,)):
        if trial._trial_id in silent and not presence.is_alive(trial.user_attrs.get("owner", {})):
            fail(study, trial.number, states)


def fail(study: Any, trial: Any, states: Any) -> None:
    """Mark a trial as failed unless it is finished by now."""
    try:
        study.tell(trial, state=states.FAIL, skip_if_finished=True)
    except RuntimeError:
        return  # another worker did so in this very moment


def result_of(search: Search, study: Any) -> SearchResult:
    """What is finished so far."""
    held = holders(study.get_trials(deepcopy=False), search.trials)
    done = tuple(
        FinishedTrial(
            number=slot,
            point=dict(trial.user_attrs["point"]),
            value=trial.value if trial.state.name == "COMPLETE" else None,
            seconds=float(trial.user_attrs.get("seconds", 0.0)),
            forget=trial.user_attrs.get("forget"),
            retain=trial.user_attrs.get("retain"),
            reason=trial.user_attrs.get("reason"),
        )
        for slot, trial in held.items()
        if finished(trial)
    )
    return SearchResult(search, done)
