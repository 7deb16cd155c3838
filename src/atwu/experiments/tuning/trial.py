"""One trial: unlearn with a point, measure what the objective needs, keep the numbers and drop the weights.

Runs that destroy the model are stopped early and count as pruned: a loss that is not finite, or a retain loss worse than
guessing among all tokens.
"""

from __future__ import annotations

import collections
import json
import math
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers.trainer_callback import TrainerCallback

from atwu._cache import short_hash
from atwu._files import write_json
from atwu.benchmarks.sources import load_rows
from atwu.errors import NonFiniteLossError
from atwu.evaluation.result import EvalResult, read_result
from atwu.experiments.study.execute import drop_weights, free_memory, measure, reason_against, run_config, unlearn
from atwu.experiments.study.targets import Models
from atwu.experiments.tuning.objectives import OBJECTIVES, Objective, number
from atwu.experiments.tuning.points import Point
from atwu.experiments.tuning.search import NotPossibleError, Outcome, PrunedError, Search
from atwu.modeling.load import quiet_transformers
from atwu.training.source import ModelSource

RECORD_NAME = "trial.json"
WINDOW = 5
"""Logged retain losses that are averaged before a run is given up."""
_LIKELIHOODS = ("nll", "kl")
"""Retain losses in nats per token, which guessing keeps below log(vocabulary size)."""


def decoder_layers(models: Models) -> int:
    """Decoder layers of the starting model."""
    return int(ModelSource(model=models.target).architecture().get_text_config().num_hidden_layers)


def check_rows(search: Search, models: Models) -> None:
    """Whether the forget rows have what the method needs.

    Raises:
        NotPossibleError: they have not.
    """
    config = run_config(search.scale, search.method, search.options, seed=search.seed)
    if reason := reason_against(config, load_rows(models.benchmark.forget_source).rows):
        raise NotPossibleError(f"at {search.scale.name} it {reason}")


@dataclass(frozen=True, slots=True)
class RunTrial:
    """Runs trials of one search, each in a folder of its own."""

    search: Search
    models: Models
    folder: Path
    what: Mapping[str, Any]
    """Definition of the search."""

    @property
    def objective(self) -> Objective:
        return OBJECTIVES[str(self.search.objective)]

    def prepare(self) -> None:
        """Check the search, and measure the starting model where the objective compares with it.

        Raises:
            NotPossibleError: the rows lack what the method needs.
            ValueError: the scale has no rows for the objective, or the options cannot work together.
        """
        if self.objective.needs_probes and self.models.benchmark.probes is None:
            raise ValueError(
                f"objective {self.search.objective} is measured on RWKU's probes; scale {self.search.scale.name} has none."
            )
        for point in self.search.first or ():
            run_config(self.search.scale, self.search.method, self.search.run_options(point), seed=self.search.seed)
        check_rows(self.search, self.models)
        if self.objective.needs_original and not self._original.is_file():
            quiet_transformers()
            self.folder.mkdir(parents=True, exist_ok=True)
            result = measure(
                self.models,
                self.search.scale,
                self.models.target,
                metrics=self.objective.groups,
                name="original",
                reference=True,
            )
            result.write(self._original)

    @property
    def _original(self) -> Path:
        return self.folder / f"original-{short_hash(self.what)[:12]}.json"

    def __call__(self, slot: int, point: Point) -> Outcome:
        quiet_transformers()
        folder = self.folder / f"{slot:03d}"
        self._claim(folder, point)
        evaluation = folder / "eval.json"
        if not evaluation.is_file():
            self._unlearn_and_measure(folder, point).write(evaluation)
        drop_weights(folder / "run")
        result = read_result(evaluation)
        value = number(result, self.objective.line)
        if value is None:
            raise PrunedError(f"{self.search.objective} could not be measured")
        return Outcome(value, number(result, self.objective.forget), number(result, self.objective.retain))

    def _unlearn_and_measure(self, folder: Path, point: Point) -> EvalResult:
        search, run = self.search, folder / "run"
        try:
            config = run_config(search.scale, search.method, search.run_options(point), seed=search.seed)
            unlearn(self.models, config, run, watch=_stop_if_destroyed)
            return measure(
                self.models,
                search.scale,
                run,
                metrics=self.objective.groups,
                name=f"trial {folder.name}",
                original=read_result(self._original) if self.objective.needs_original else None,
            )
        except NonFiniteLossError as error:
            _discard(run)
            raise PrunedError(str(error).partition(";")[0]) from None
        except PrunedError:
            _discard(run)
            raise
        except ValueError as error:
            settings = ", ".join(f"{name} {value:.3g}" for name, value in point.items())
            raise ValueError(f"trial {int(folder.name)} of {search.label} cannot run ({settings}): {error}") from error
        finally:
            free_memory()

    def _claim(self, folder: Path, point: Point) -> None:
        """Make a trial's folder; one of another search's trial is emptied, one of this trial is taken up again.

        Raises:
            FileExistsError: the folder is not a trial's.
        """
        key = {"schema": "atwu.trial/1", "search": short_hash(self.what), "point": dict(point)}
        record = folder / RECORD_NAME
        if folder.exists():
            if not record.is_file():
                if any(folder.iterdir()):
                    raise FileExistsError(f"{folder} exists and is not a trial of atwu; choose another output.")
            elif json.loads(record.read_text(encoding="utf-8")) != key:
                shutil.rmtree(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_json(record, key)


def _discard(run: Path) -> None:
    """Remove an unfinished run but its log."""
    unfinished = run.with_name(f"{run.name}.incomplete")
    if (log := unfinished / "log.jsonl").is_file():
        shutil.copyfile(log, run.with_name("log.jsonl"))
    shutil.rmtree(unfinished, ignore_errors=True)


def _stop_if_destroyed(trainer: Any) -> list[TrainerCallback]:
    """A callback for runs whose retain loss tells how well the model still predicts."""
    if trainer.recipe.retain_loss not in _LIKELIHOODS:
        return []
    return [StopDestroyed(int(trainer.model.config.get_text_config().vocab_size))]


class StopDestroyed(TrainerCallback):
    """Stops a run whose retain loss, averaged over the last logs, is worse than guessing.

    Args:
        vocabulary: tokens there are; guessing costs log(vocabulary) nats per token.
    """

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
