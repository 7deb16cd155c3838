"""A search at a scale: what decides its trials, whether it can run, and the starting model that trials compare with."""

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
from atwu._files import versions
from atwu.evaluation.columns import RWKU
from atwu.evaluation.result import EvalResult
from atwu.experiments.queue import Queue
from atwu.experiments.run import ORIGINAL, Setup, prefers, reason_against, reference_of
from atwu.experiments.targets import Models, identity
from atwu.experiments.tuning.points import POINTS
from atwu.experiments.tuning.search import OBJECTIVES, NotPossibleError, Search
from atwu.experiments.tuning.trial import reach, stop_if_destroyed
from atwu.experiments.tuning.trials import Trials, open_trials
from atwu.training.model import ModelSource
from atwu.training.progress import Say

logger = logging.getLogger(__name__)

_SCALE = ("name", "benchmark", "forget", "retain", "training", "evaluation")
"""Fields of a scale that change the value of a trial."""


def references_for(search: Search, models: Models, queue: Queue, *, folder: Path) -> dict[str, EvalResult]:
    """What the trials of a search compare with, once it is sure that it can run: the starting model's result, where the
    objective asks for it, measured once for the searches of all methods.

    Args:
        queue: idle.

    Raises:
        NotPossibleError: the rows lack what the method needs.
        ValueError: settings that cannot run.
    """
    search = _decided(search, models)
    check_search(search, models)
    if not OBJECTIVES[str(search.objective)].needs_original:
        return {}
    what = definition(search, models)
    # Named by all that its numbers follow from, so that searches share it.
    measured = {name: what[name] for name in ("objective", "scale", "rows", "model", "versions")}
    file = folder / "trials" / f"original-{short_hash(measured)[:12]}.json"
    return {ORIGINAL: reference_of(queue, _setup(search, models), ORIGINAL, {}, file)}


@contextlib.contextmanager
def open_search(
    search: Search,
    models: Models,
    references: Mapping[str, EvalResult],
    *,
    slots: int,
    folder: Path,
    progress: bool = False,
    say: Say = logger.info,
) -> Iterator[Trials]:
    """The trials of a search, new or to be continued.

    Args:
        references: from `references_for`.
        slots: how many trials run at once.

    Raises:
        NotPossibleError: the rows lack what the method needs.
        ValueError: settings that cannot run, a storage that cannot be opened, or one that holds another search of that
            name.
        ImportError: Optuna is not installed (extra `tune`).
    """
    search = _decided(search, models)
    check_search(search, models)
    setup = _setup(search, models)
    with open_trials(
        search,
        functools.partial(reach, search, setup, references),
        slots=slots,
        folder=folder,
        what=definition(search, models),
        needs=setup.needs(search.options),
        progress=progress,
        say=say,
    ) as trials:
        yield trials


def _decided(search: Search, models: Models) -> Search:
    layers = ModelSource(model=models.target).architecture().get_text_config().num_hidden_layers
    return search.decided(int(layers))


def _setup(search: Search, models: Models) -> Setup:
    groups = OBJECTIVES[str(search.objective)].groups
    return Setup(models, search.scale, groups, watch=stop_if_destroyed)


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
