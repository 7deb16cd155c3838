"""Sampler of a search: the given first points, then quasi-random points (Sobol 1967), then TPE (Bergstra et al. 2011).

A point depends only on (space, seed, trial number, results so far), so a search that was killed and continued proposes
the same points as an uninterrupted one.
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

from atwu._cache import short_hash
from atwu._extras import require
from atwu.methods.component import Range

SearchPoint = Mapping[str, float]

SAMPLER_VERSION = "sobol and tpe/1"
"""Version of the sampler; a search started with another version is not continued."""
STARTUP_TRIALS = 10
"""Number of trials before TPE starts, including the first points: Optuna's default."""
CANDIDATES = 24
"""Number of candidates from which TPE chooses: Optuna's default."""


@dataclass(frozen=True, slots=True)
class FinishedTrial:
    """One finished trial of the budget."""

    number: int
    """Trial number, from 0."""
    point: SearchPoint
    value: float | None
    """The objective; None if it was pruned."""
    seconds: float = 0.0
    forget: float | None = None
    """Forget term of the objective."""
    retain: float | None = None
    """Retain term of the objective."""
    reason: str | None = None
    """Why it was pruned."""

    @property
    def content_hash(self) -> str:
        """Hash of all fields, stored beside them: a storage of Optuna has no checksums."""
        return short_hash(dataclasses.asdict(self))


def distributions(space: Mapping[str, Range]) -> dict[str, Any]:
    """Convert ranges to Optuna's distributions."""
    optuna = require("optuna", extra="tune")
    return {
        name: optuna.distributions.IntDistribution(round(where.low), round(where.high), log=where.log)
        if where.integer
        else optuna.distributions.FloatDistribution(where.low, where.high, log=where.log)
        for name, where in space.items()
    }


def optuna_trial(space: Mapping[str, Range], point: SearchPoint, trial: FinishedTrial | None) -> Any:
    """Convert a trial to Optuna's type; None for a running one."""
    optuna = require("optuna", extra="tune")
    states = optuna.trial.TrialState
    state, facts = states.RUNNING, {}
    if trial is not None:
        state = states.PRUNED if trial.value is None else states.COMPLETE
        facts = {"slot": trial.number, "hash": trial.content_hash, **dataclasses.asdict(trial)}
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
    """Return the point of the next trial.

    Args:
        points: points of the previous trials, in order.
        found: trial number -> result; the others are still running.
        first: points of the first trials; numbers outside their range are clipped, missing ones are sampled.

    Returns:
        Option -> number within its range.
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
    """Return one of the quasi-random points of a search, which cover its space well for any budget."""
    from scipy.stats import qmc

    units = qmc.Sobol(len(space), seed=seed).random_base2(math.ceil(math.log2(STARTUP_TRIALS)))[place]
    return {name: where.at(unit) for (name, where), unit in zip(space.items(), units.tolist(), strict=True)}


def _number(seed: int, place: int) -> int:
    """Derive a seed for each trial from the seed of the search and the trial number."""
    return int.from_bytes(hashlib.blake2b(f"{seed}/{place}".encode(), digest_size=4).digest(), "big")
