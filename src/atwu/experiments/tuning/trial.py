"""Run one trial: unlearn with a point, compute the metrics of the objective, keep the numbers and delete the weights.

Runs that destroy the model are stopped early and pruned: if the loss is not finite, or if the retain loss is worse than
that of uniform guessing.
"""

from __future__ import annotations

import collections
import math
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers.trainer_callback import TrainerCallback

from atwu._manifest import RECORD_NAME
from atwu.errors import NonFiniteLossError
from atwu.evaluation.result import EvalResult
from atwu.experiments.experiment_run import ExperimentRun, RunContext, execute_run, format_options
from atwu.experiments.tuning.sampler import FinishedTrial, SearchPoint
from atwu.experiments.tuning.search import OBJECTIVES, PrunedError, Search, TrialFunction
from atwu.report.table_values import cell_of
from atwu.training.output_folder import LOG_NAME, unfinished

WINDOW = 5
"""Number of logged retain losses that are averaged before a run may be stopped."""
_LIKELIHOODS = ("nll", "kl")
"""Retain losses in nats per token, for which uniform guessing gives log(vocabulary size)."""


def run_trial(
    evaluate: TrialFunction, place: int, point: SearchPoint, *, folder: Path, source: Path | None = None
) -> FinishedTrial:
    """Run a trial; failures of the settings are pruned."""
    start = time.perf_counter()
    try:
        found = evaluate(place, point, folder)
    except PrunedError as error:
        found = FinishedTrial(place, point, None, reason=str(error))
    return replace(found, seconds=round(time.perf_counter() - start, 3))


def compute_objective(
    search: Search,
    setup: RunContext,
    references: Mapping[str, EvalResult],
    place: int,
    point: SearchPoint,
    folder: Path,
) -> FinishedTrial:
    """Unlearn with a point and compute the objective.

    Raises:
        PrunedError: the model is destroyed, or the objective cannot be computed.
        ValueError: the settings cannot run.
    """
    if not (folder / RECORD_NAME).is_file():  # log of a run that was stopped
        shutil.rmtree(folder, ignore_errors=True)
    run = ExperimentRun(f"trial {folder.name}", search.method, search.run_options(point), search.seed, folder)
    try:
        result = execute_run(setup, run, references, folder=folder)
    except (NonFiniteLossError, PrunedError) as error:
        _discard(folder)
        raise PrunedError(str(error).partition(";")[0]) from None
    except ValueError as error:
        raise ValueError(f"trial {place} of {search.label} cannot run ({format_options(point)}): {error}") from error
    objective = OBJECTIVES[str(search.objective)]
    cells = (cell_of(result, key) for key in (objective.key, objective.forget, objective.retain))
    value, forget, retain = (None if cell is None else cell.value for cell in cells)
    if value is None or math.isnan(value):  # values relative to an original model without any knowledge are undefined
        raise PrunedError(f"{search.objective} is undefined for this trial")
    return FinishedTrial(place, point, value, forget=forget, retain=retain)


def _discard(folder: Path) -> None:
    """Remove an unfinished run except for its log."""
    folder.mkdir(parents=True, exist_ok=True)
    if (log := unfinished(folder) / LOG_NAME).is_file():
        shutil.copyfile(log, folder / LOG_NAME)
    shutil.rmtree(unfinished(folder), ignore_errors=True)


def stop_if_destroyed(trainer: Any) -> list[TrainerCallback]:
    """Return a callback for runs whose retain loss measures how well the model predicts."""
    if trainer.recipe.retain_loss not in _LIKELIHOODS:
        return []
    return [StopDestroyed(int(trainer.model.config.get_text_config().vocab_size))]


class StopDestroyed(TrainerCallback):
    """Stops a run whose retain loss, averaged over the last logs, is worse than uniform guessing."""

    def __init__(self, vocabulary: int) -> None:
        self.limit = math.log(vocabulary)
        self.vocabulary = vocabulary
        self._last: collections.deque[float] = collections.deque(maxlen=WINDOW)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> None:
        """Check a new log.

        Raises:
            PrunedError: the model is destroyed.
        """
        if logs is None or "retain_loss" not in logs:
            return
        self._last.append(logs["retain_loss"])
        mean = sum(self._last) / len(self._last)
        if len(self._last) == WINDOW and mean > self.limit:
            raise PrunedError(
                f"retain loss {mean:.1f} at step {state.global_step}, worse than uniform guessing among "
                f"{self.vocabulary} tokens"
            )
