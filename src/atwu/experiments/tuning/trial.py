"""One trial: unlearn with a point, measure what the objective needs, keep the numbers and drop the weights.

Runs that destroy the model are stopped early and count as pruned: a loss that is not finite, or a retain loss worse than
guessing among all tokens.
"""

from __future__ import annotations

import collections
import dataclasses
import importlib.metadata
import json
import logging
import math
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers.trainer_callback import TrainerCallback

from atwu._cache import short_hash
from atwu._files import versions
from atwu._manifest import RECORD_NAME
from atwu.errors import NonFiniteLossError
from atwu.evaluation.columns import RWKU
from atwu.evaluation.result import EvalResult
from atwu.experiments.queue import Queue
from atwu.experiments.run import (
    ORIGINAL,
    Run,
    Setup,
    execute,
    prefers,
    reason_against,
    reference_of,
    run_config,
)
from atwu.experiments.targets import Models, identity
from atwu.experiments.tuning.points import Point
from atwu.experiments.tuning.search import OBJECTIVES, NotPossibleError, Outcome, PrunedError, Search, SearchResult
from atwu.experiments.tuning.trials import run_trials, trials_folder
from atwu.report.values import cell_of
from atwu.training.model import ModelSource
from atwu.training.output import LOG_NAME, unfinished
from atwu.training.progress import Say

logger = logging.getLogger(__name__)

WINDOW = 5
"""Logged retain losses that are averaged before a run is given up."""
_LIKELIHOODS = ("nll", "kl")
"""Retain losses in nats per token, which guessing keeps below log(vocabulary size)."""
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
        file = trials_folder(search, Path(folder)) / f"original-{short_hash(what)[:12]}.json"
        references[ORIGINAL] = reference_of(queue, setup, ORIGINAL, {}, file)
    trial, needs = RunTrial(search, setup, references), setup.needs(search.options)
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
        "space": {name: dataclasses.asdict(where) for name, where in search.space.items()},
        "first": [dict(point) for point in search.first or ()],
        "scale": scale,
        "versions": versions() | {"optuna": importlib.metadata.version("optuna")},
    }
    if models is not None:
        config = run_config(search.scale, search.method, search.options, seed=search.seed)
        here = identity(models, paired=prefers(config))
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
        run_config(search.scale, search.method, search.run_options(point), seed=search.seed)
    check_rows(search, models)


def check_rows(search: Search, models: Models) -> None:
    """Whether the forget rows have what the method needs.

    Raises:
        NotPossibleError: they have not.
    """
    config = run_config(search.scale, search.method, search.options, seed=search.seed)
    if reason := reason_against(config, models.benchmark):
        raise NotPossibleError(f"at {search.scale.name} it {reason}")


@dataclass(frozen=True, slots=True)
class RunTrial:
    """Runs trials of one search."""

    search: Search
    setup: Setup
    references: Mapping[str, EvalResult] = dataclasses.field(default_factory=dict)

    def __call__(self, place: int, point: Point, folder: Path) -> Outcome:
        search = self.search
        if not (folder / RECORD_NAME).is_file():  # the log of a run that was given up
            shutil.rmtree(folder, ignore_errors=True)
        run = Run(f"trial {folder.name}", search.method, search.run_options(point), search.seed, folder)
        try:
            result = execute(self.setup, run, self.references, folder=folder)
        except (NonFiniteLossError, PrunedError) as error:
            _discard(folder)
            raise PrunedError(str(error).partition(";")[0]) from None
        except ValueError as error:
            settings = ", ".join(f"{name} {value:.3g}" for name, value in point.items())
            raise ValueError(f"trial {place} of {search.label} cannot run ({settings}): {error}") from error
        objective = OBJECTIVES[str(search.objective)]
        cells = (cell_of(result, line) for line in (objective.line, objective.forget, objective.retain))
        value, forget, retain = (None if cell is None else cell.value for cell in cells)
        if value is None:
            raise PrunedError(f"{search.objective} could not be measured")
        return Outcome(value, forget, retain)


def _discard(folder: Path) -> None:
    """Remove an unfinished run but its log."""
    folder.mkdir(parents=True, exist_ok=True)
    if (log := unfinished(folder) / LOG_NAME).is_file():
        shutil.copyfile(log, folder / LOG_NAME)
    shutil.rmtree(unfinished(folder), ignore_errors=True)


def stop_if_destroyed(trainer: Any) -> list[TrainerCallback]:
    """A callback for runs whose retain loss tells how well the model still predicts."""
    if trainer.recipe.retain_loss not in _LIKELIHOODS:
        return []
    return [StopDestroyed(int(trainer.model.config.get_text_config().vocab_size))]


class StopDestroyed(TrainerCallback):
    """Stops a run whose retain loss, averaged over the last logs, is worse than guessing."""

    def __init__(self, vocabulary: int) -> None:
        self.limit = math.log(vocabulary)
        self.vocabulary = vocabulary
        self._last: collections.deque[float] = collections.deque(maxlen=WINDOW)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> None:
        """Look at a new log.

        Raises:
            PrunedError: the model is destroyed.
        """
        if logs is None or "retain_loss" not in logs:
            return
        self._last.append(logs["retain_loss"])
        mean = sum(self._last) / len(self._last)
        if len(self._last) == WINDOW and mean > self.limit:
            raise PrunedError(
                f"retain loss {mean:.1f} at step {state.global_step}, worse than guessing among {self.vocabulary} tokens"
            )
