"""Prepare a search at a setting: define and check it, and evaluate the original model that trials compare with."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
from functools import partial
from pathlib import Path
from typing import Any

from atwu._cache import short_hash
from atwu._files import versions
from atwu.evaluation.columns import RWKU
from atwu.evaluation.result import EvalResult, read_result
from atwu.experiments.experiment_run import (
    ORIGINAL,
    RunContext,
    missing_requirement,
    needs_preferred_answers,
    reference_result,
)
from atwu.experiments.queue import Queue
from atwu.experiments.study_models import Models, models_identity
from atwu.experiments.tuning.sampler import SAMPLER_VERSION
from atwu.experiments.tuning.search import OBJECTIVES, NotPossibleError, PreparedSearch, Search
from atwu.experiments.tuning.trial import compute_objective, stop_if_destroyed
from atwu.training.load_to_train import ModelSource

_RESULT_FIELDS = ("name", "benchmark", "forget", "retain", "training", "evaluation")
"""Fields of a setting that affect the value of a trial."""


def prepare_search(search: Search, models: Models, queue: Queue | None, *, folder: Path) -> PreparedSearch:
    """Prepare a search: resolve defaults, check it and, if the objective compares with the original model, load that
    model's result, which is computed once for the searches of all methods.

    Args:
        queue: an idle queue; None if it is busy, in which case the result must already exist.

    Raises:
        NotPossibleError: the rows lack what the method needs.
        ValueError: the options cannot run, or rows or model changed since the result was computed.
    """
    layers = ModelSource(model=models.target).architecture().get_text_config().num_hidden_layers
    search = search.decided(int(layers))
    check_search(search, models)
    objective, what = OBJECTIVES[str(search.objective)], search_definition(search, models)
    setup = RunContext(models, search.setting, objective.groups, watch=stop_if_destroyed)
    references: dict[str, EvalResult] = {}
    if objective.needs_original:
        # The file name hashes everything that determines the result, so that searches can share it.
        measured = {name: what[name] for name in ("objective", "setting", "rows", "model", "versions")}
        file = folder / "trials" / f"original-{short_hash(measured)[:12]}.json"
        if queue is not None:
            references[ORIGINAL] = reference_result(queue, setup, ORIGINAL, {}, file)
        elif file.is_file():
            references[ORIGINAL] = read_result(file)
        else:
            raise ValueError(
                f"{file} is missing: rows or model of {search.setting.name} changed after the command started; "
                "run it again."
            )
    return PreparedSearch(
        search, partial(compute_objective, search, setup, references), what, setup.needs(search.options)
    )


def search_definition(search: Search, models: Models) -> dict[str, Any]:
    """Return everything that determines the points and their values, except the number of trials."""
    assert search.space is not None
    setting = {name: value for name, value in dataclasses.asdict(search.setting).items() if name in _RESULT_FIELDS}
    here = models_identity(models, paired=needs_preferred_answers(search.config()))
    plain: dict[str, Any] = {
        "method": search.method,
        "options": dict(search.options),
        "objective": search.objective,
        "seed": search.seed,
        "points": SAMPLER_VERSION,
        "space": {name: dataclasses.asdict(where) for name, where in search.space.items()},
        "first": [dict(point) for point in search.first or ()],
        "setting": setting,
        "versions": versions() | {"optuna": importlib.metadata.version("optuna")},
        "rows": here["rows"],
        # Only the original model matters: no objective compares with the retain-only model.
        "model": here["models"]["target"],
    }
    return dict(json.loads(json.dumps(plain)))


def check_search(search: Search, models: Models) -> None:
    """Check whether a search can run, before any work starts.

    Raises:
        NotPossibleError: the rows lack what the method needs.
        ValueError: the setting lacks rows for the objective, or the options are incompatible.
    """
    if RWKU in OBJECTIVES[str(search.objective)].groups and models.benchmark.probes is None:
        raise ValueError(
            f"objective {search.objective} needs RWKU's probes, which setting {search.setting.name} does not have."
        )
    for point in search.first or ():
        search.config(point)
    if reason := missing_requirement(search.config(), models.benchmark):
        raise NotPossibleError(f"at {search.setting.name} it {reason}")
