"""Which point a trial tries: the given first points, some spread over the space (Sobol 1967), then TPE (Bergstra et al. 2011)
on what was found so far.

A point follows from (space, seed, place in the budget, what was found): a search that was killed and continued asks for
the same points as one that was not.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from atwu._extras import require
from atwu.methods.component_options import Range

SearchPoint = Mapping[str, float]

SAMPLER_VERSION = "sobol and tpe/1"
"""How points are drawn; a search that was begun with another way is not continued."""
STARTUP_TRIALS = 10
"""Trials whatever was found, the first points among them, before TPE takes over: Optuna's own number."""
CANDIDATES = 24
"""Candidates among which TPE chooses: Optuna's own number."""


@dataclass(frozen=True, slots=True)
class FinishedTrial:
    """One place of the budget."""

    number: int
    """From 0."""
    point: SearchPoint
    value: float | None
    """The objective; None when it was pruned."""
    seconds: float = 0.0
    forget: float | None = None
    """The objective's part on the forget side."""
    retain: float | None = None
    """Its part on the retain side."""
    reason: str | None = None
    """Why it was pruned."""


def distributions(space: Mapping[str, Range]) -> dict[str, Any]:
    """The ranges as Optuna knows them."""
    optuna = require("optuna", extra="tune")
    return {
        name: optuna.distributions.IntDistribution(round(where.low), round(where.high), log=where.log)
        if where.integer
        else optuna.distributions.FloatDistribution(where.low, where.high, log=where.log)
        for name, where in space.items()
    }


def optuna_trial(space: Mapping[str, Range], point: SearchPoint, trial: FinishedTrial | None) -> Any:
    """A trial as Optuna keeps it; None for one that runs."""
    optuna = require("optuna", extra="tune")
    states = optuna.trial.TrialState
    state, facts = states.RUNNING, {}
    if trial is not None:
        state = states.PRUNED if trial.value is None else states.COMPLETE
        facts = {"slot": trial.number, **dataclasses.asdict(trial)}
    return optuna.trial.create_trial(
        state=state,
        value=None if trial is None else trial.value,
        params=dict(point),
        distributions=distributions(space),
        user_attrs={name: fact for name, fact in facts.items() if name not in ("number", "value") and fact is not None},
    )


def propose(
    space: Mapping[str, Range],
    *,
    seed: int,
    points: Sequence[SearchPoint] = (),
    found: Mapping[int, FinishedTrial] = MappingProxyType({}),
    first: Sequence[SearchPoint] = (),
) -> dict[str, float]:
    """The point of the next trial.

    Args:
        points: of the places before it, in order.
        found: place -> its result; the others among them still run.
        first: points of the first trials; numbers outside their range are moved to its end, missing ones are as in any other.

    Returns:
        Option -> number inside its range.
    """
    optuna = require("optuna", extra="tune")
    place = len(points)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(
            seed=_number(seed, place),
            n_startup_trials=STARTUP_TRIALS,
            n_ei_candidates=CANDIDATES,
            multivariate=True,
            constant_liar=True,
        )
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.add_trials([optuna_trial(space, point, found.get(number)) for number, point in enumerate(points)])
    given = first[place] if place < len(first) else {}
    fixed: dict[str, float] = _spread(space, seed, place) if place < STARTUP_TRIALS else {}
    fixed |= {name: where.clip(given[name]) for name, where in space.items() if name in given}
    if fixed:
        study.enqueue_trial(fixed)
    return dict(study.ask(distributions(space)).params)


def _spread(space: Mapping[str, Range], seed: int, place: int) -> dict[str, float]:
    """One of the points of a search that are spread over its space, however few of them there is a budget for."""
    from scipy.stats import qmc

    units = qmc.Sobol(len(space), seed=seed).random_base2(math.ceil(math.log2(STARTUP_TRIALS)))[place]
    return {name: where.at(unit) for (name, where), unit in zip(space.items(), units.tolist(), strict=True)}


def _number(seed: int, place: int) -> int:
    """A seed of its own for every trial, from those of the search and its place."""
    return int.from_bytes(hashlib.blake2b(f"{seed}/{place}".encode(), digest_size=4).digest(), "big")
