"""Evaluations during an unlearning run: how far the forget rows are from the goals, and the loss on retained data."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import numpy as np

from atwu._file_reading import read_json, type_adapter, validated
from atwu.data.encode import EncodedRow
from atwu.data.question_forms import OPTION_FORMS
from atwu.data.schema import Example
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.metrics.key_tokens import key_token_accuracy, key_token_probability
from atwu.evaluation.teacher_forced import read_tokens
from atwu.modeling.device import release_freed_memory
from atwu.modeling.modes import bfloat16_weights, full_precision
from atwu.request.answer_check import AnswerCheck, Leak, is_row_of
from atwu.training.sharding import broadcast_from_main

_T = TypeVar("_T")

MAX_TRAINED_ROWS = 1000
"""Largest number of rows, in all their forms, of which each evaluation step measures all."""

HISTORY_SCHEMA: Final = "atwu.history/2"


@dataclass(frozen=True, slots=True)
class EvaluationRecord:
    step: int
    probability: float
    """Mean `key_token_probability` of the forget rows, as written or with other prompts, whichever is higher."""
    accuracy: float
    """The same for `key_token_accuracy`."""
    retain_losses: tuple[float, ...]
    """Mean loss of each set of retained data, in nats/token."""
    learning_rate: float
    leak: float | None = None
    """`Leak.excess` at the goal, 0 without a leak; None for an evaluation that is not at the goal. If it is higher than an
    earlier one, it may be a lower bound."""
    known_share: float | None = None
    """Share of the rows trained on, in all their forms, that are still known; None if they were not measured."""


@dataclass(frozen=True, slots=True)
class TrainingHistory:
    """All evaluations of a run, as its history file stores them."""

    eval_steps: tuple[EvaluationRecord, ...]
    """All evaluations in order; the file format fixes the name."""
    kept_step: int
    rollbacks: int
    retain_loss_increase: float | None
    """Increase of the loss on retained data at that step, in nats/token; None if it is not a number."""
    change_scale: float = 1.0
    """Factor on the change of the weights since the start, chosen after training."""
    schema: Literal["atwu.history/2"] = HISTORY_SCHEMA


def read_history(file: Path) -> TrainingHistory:
    """Read the training history of a run; an increase that is not a number is NaN."""
    history: TrainingHistory = validated(read_json(file), type_adapter(TrainingHistory), what=str(file))
    known = history.retain_loss_increase is not None
    return history if known else dataclasses.replace(history, retain_loss_increase=math.nan)


@dataclass(frozen=True, slots=True)
class ControllerGoals:
    """Goals that end a run once it reaches all of them, and the limit above which the controller restores earlier weights."""

    probability: float
    """Goal: mean `key_token_probability` of holdout rows."""
    accuracy: float
    """Goal: `key_token_accuracy` of holdout rows, upper end of its interval. The upper end, because later
    sub-word tokens are predictable from earlier ones, so accuracy rarely falls to the mean."""
    max_retain_increase: float
    """Limit: largest accepted increase of the loss on any set of retained data, in nats/token."""
    accepted_probability: float
    """Largest `key_token_probability` of forget rows at which a smaller change of the weights still forgets them: between the
    goal and the upper end of the interval of holdout rows."""


@dataclass(frozen=True, slots=True)
class ControllerRows:
    forget: tuple[tuple[Sequence[Example], Sequence[EncodedRow]], ...]
    """Forget rows as written, and with other prompts."""
    retain: tuple[Sequence[EncodedRow], ...]
    answers: AnswerCheck
    """Finds facts in greedy answers. Answers are slow to generate, so it is used only when every other goal is reached."""


class GoalEvaluations:
    """Measures the model of a trainer on some rows, and compares it with the goals and with the first evaluation."""

    def __init__(self, trainer: Any, rows: ControllerRows, goals: ControllerGoals) -> None:
        self.trainer, self.rows, self.goals = trainer, rows, goals
        self.history: list[EvaluationRecord] = []

    def measure(self, step: int) -> EvaluationRecord:
        return self._from_first_process(lambda: self._measure(step))

    def find_leak(self, *, at_most: float = math.inf, first: Sequence[int] = ()) -> Leak | None:
        return self._check_answers(lambda asked: self.rows.answers.find_leak(asked, at_most=at_most, first=first))

    def likely_facts(self) -> int:
        return self._check_answers(self.rows.answers.likely_facts)

    def estimate_check_seconds(self) -> float:
        """Estimate the duration of `find_leak`."""
        return self._check_answers(self.rows.answers.estimate_seconds)

    def known_rows(self) -> tuple[list[int], list[int]]:
        """Return the indices of the rows trained on that are still known, and of those that are forgotten.

        Left out are rows that list the key text in their question, where its probability says little, and all rows of a large
        set or of one that was not given as text.
        """
        return self._from_first_process(self._known_rows)

    def _known_rows(self) -> tuple[list[int], list[int]]:
        rows = self.trainer.rows.forget
        served = len(rows.rows) - rows.waiting
        if rows.examples is None or served > MAX_TRAINED_ROWS:
            return [], []
        forms = rows.forms or ("question",) * served
        with self._rounded():
            read = read_tokens(self.trainer.model, rows.rows[:served], entropy=False)
        found: tuple[list[int], list[int]] = ([], [])
        for place, (row, tokens, form) in enumerate(zip(rows.examples[:served], read, forms[:served], strict=True)):
            probability = key_token_probability(row, tokens)
            if form not in OPTION_FORMS and probability is not None:
                found[probability <= self.goals.probability].append(place)
        return found

    def leaking_rows(self, leak: Leak) -> tuple[int, ...]:
        """Return the places of the forget rows, trained on or waiting, whose questions were answered with their facts."""
        rows, answers = self.trainer.rows.forget, self.rows.answers
        askings = [answers.askings[place] for place in leak.places]
        return tuple(
            place
            for place, (row, form) in enumerate(zip(rows.examples, rows.forms, strict=True))
            if any(is_row_of(asking, answers.rows[asking.fact], row, form) for asking in askings)
        )

    def _check_answers(self, check: Callable[[TransformersGenerator], _T]) -> _T:
        """Generate answers at full precision, as for the verdict: bfloat16 takes less than half as long on a CPU, but near its
        ties an answer of a row that is just forgotten depends on the rows in its batch."""

        def checked() -> _T:
            model = self.trainer.model
            with full_precision(model):
                return check(TransformersGenerator(model, self.rows.answers.encoder.tokenizer))

        return self._from_first_process(checked)

    @contextmanager
    def _rounded(self) -> Iterator[None]:
        """Let the model compute in bfloat16 if training does; data parallelism does not let weights change their precision."""
        args, model = self.trainer.args, self.trainer.model
        if args.world_size > 1:
            with self.trainer.accelerator.autocast():
                yield
        else:
            with full_precision(model), bfloat16_weights(model, args.bf16):
                yield

    def _from_first_process(self, measure: Callable[[], _T]) -> _T:
        """Return what the first process measures, so that all processes decide alike; with sharded weights all measure."""
        found = measure() if self.trainer.sharded else broadcast_from_main(self.trainer.args, measure)
        release_freed_memory(self.trainer.args.device)
        return found

    def _measure(self, step: int) -> EvaluationRecord:
        model = self.trainer.model
        with self._rounded():
            forget = [
                list(zip(rows, read_tokens(model, encoded, entropy=False), strict=True))
                for rows, encoded in self.rows.forget
            ]
            retain = [read_tokens(model, rows, entropy=False) for rows in self.rows.retain]
        return EvaluationRecord(
            step,
            max(_mean(key_token_probability(row, tokens) for row, tokens in rows) for rows in forget),
            max(_mean(key_token_accuracy(row, tokens) for row, tokens in rows) for rows in forget),
            tuple(-float(np.mean(np.concatenate([row.logps for row in rows]))) for rows in retain),
            self.learning_rate,
        )

    @property
    def learning_rate(self) -> float:
        """The learning rate after warmup."""
        scheduler = self.trainer.lr_scheduler
        return float(scheduler.base_lrs[0]) if scheduler is not None else float(self.trainer.args.learning_rate)

    def remaining(self, measured: EvaluationRecord) -> float:
        """Return the share of the way to the goal that remains: 1 at the start, 0 at the goal; the larger of two metrics."""
        first, goals = self.history[0], self.goals
        logs = (math.log(max(value, 1e-9)) for value in (first.probability, measured.probability, goals.probability))
        if measured.known_share == 0:
            # A few tokens inside words stay predictable ("mg of"), and would keep the accuracy of few rows above its goal.
            return _share(*logs)
        return max(_share(*logs), _share(first.accuracy, measured.accuracy, goals.accuracy))

    def forgotten(self, measured: EvaluationRecord) -> bool:
        """Whether the forget rows are no better known than holdout rows."""
        goals = self.goals
        predicted = measured.known_share != 0 and measured.accuracy > goals.accuracy
        return measured.probability <= goals.accepted_probability and not predicted

    def retain_loss_increase(self, measured: EvaluationRecord) -> float:
        """Return the largest increase of the loss on a set of retained data since the start, in nats/token."""
        first = self.history[0].retain_losses
        changes = [now - then for now, then in zip(measured.retain_losses, first, strict=True)]
        return float(np.max(changes)) if changes else 0.0  # NaN stays NaN

    def within_limit(self, measured: EvaluationRecord) -> bool:
        """Whether the loss on retained data is at most at its limit; NaN is above every limit."""
        return self.retain_loss_increase(measured) <= self.goals.max_retain_increase


def _mean(values: Iterable[float | None]) -> float:
    return float(np.mean([value for value in values if value is not None]))


def _share(first: float, now: float, goal: float) -> float:
    return (now - goal) / max(first - goal, 1e-9) if now > goal else 0.0
