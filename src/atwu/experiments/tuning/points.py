"""Which point a trial tries: the given first points, then TPE (Bergstra et al. 2011) on what was found so far.

A point follows from (space, seed, place in the budget, what was found): a search that was killed and continued asks for
the same points as one that was not.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from atwu._extras import require
from atwu.methods.options import Range

Point = Mapping[str, float]

STARTUP_TRIALS = 10
"""Trials at random, the first points among them, before TPE takes over: Optuna's own number."""
CANDIDATES = 24
"""Candidates among which TPE chooses: Optuna's own number."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A trial that counts for the choice of the next point."""

    slot: int
    """Place in the budget, from 0."""
    point: Point
    value: float | None = None
    """None while it runs, or when it was pruned."""
    pruned: bool = False


def distributions(space: Mapping[str, Range]) -> dict[str, Any]:
    """The ranges as Optuna knows them."""
    optuna = require("optuna", extra="tune")
    return {
        name: optuna.distributions.IntDistribution(round(where.low), round(where.high), log=where.log)
        if where.integer
        else optuna.distributions.FloatDistribution(where.low, where.high, log=where.log)
        for name, where in space.items()
    }


def propose(
    space: Mapping[str, Range],
    *,
    seed: int,
    slot: int,
    tried: Sequence[Tried] = (),
    first: Sequence[Point] = (),
) -> dict[str, float]:
    """The point of one trial.

    Args:
        space: option -> range.
        seed: of the search.
        slot: the trial's place in the budget, from 0.
        tried: trials that are finished or running, in any order.
        first: points of the first trials; numbers outside their range are moved to its end, missing ones are drawn.

    Returns:
        Option -> number inside its range.
    """
    optuna = require("optuna", extra="tune")
    states = optuna.trial.TrialState
    ranges = distributions(space)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(
            seed=_number(seed, slot),
            n_startup_trials=STARTUP_TRIALS,
            n_ei_candidates=CANDIDATES,
            multivariate=True,
            constant_liar=True,
        )
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for each in sorted(tried, key=lambda one: one.slot):
        state = states.PRUNED if each.pruned else states.RUNNING if each.value is None else states.COMPLETE
        study.add_trial(
            optuna.trial.create_trial(
                state=state, value=each.value, params=dict(each.point), distributions=dict(ranges)
            )
        )
    if slot < len(first):
        study.enqueue_trial(
            {name: where.clip(first[slot][name]) for name, where in space.items() if name in first[slot]}
        )
    return dict(study.ask(ranges).params)


def _number(seed: int, slot: int) -> int:
    """A seed of its own for every trial, from those of the search and its place."""
    return int.from_bytes(hashlib.blake2b(f"{seed}/{slot}".encode(), digest_size=4).digest(), "big")
