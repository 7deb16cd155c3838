"""Evaluations during an unlearning run: how many forget rows are still known, and the retain loss."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import numpy as np

from atwu._file_reading import read_json, type_adapter, validated
from atwu.benchmarks.base import evenly_spaced
from atwu.data.encode import EncodedRow
from atwu.data.question_forms import OPTION_FORMS
from atwu.data.schema import Example
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.metrics.key_tokens import fact_probability
from atwu.evaluation.teacher_forced import read_tokens
from atwu.methods.weightings.contrast import ReadRows
from atwu.modeling.device import release_freed_memory
from atwu.modeling.layers import bfloat16_weights, full_precision
from atwu.request.answer_check import AnswerCheck, Leak, is_row_of
from atwu.training.saving_trainer import broadcast_from_main

_T = TypeVar("_T")

KNOWN_PROBABILITY = 0.03
"""Probability of a fact above which its row is known, at least. A model that was fine-tuned on few different answers gives any
of them a higher one, so that the mean of holdout rows may be higher (`measure_chance`)."""
MAX_KNOWN_SHARE = 0.05
"""Share of the rows in all their forms up to which they count as forgotten: a single word, such as "Asia" in "East Asia", may
never disappear."""
MAX_MEASURED_ROWS = 1000
"""Forget rows in their forms that an evaluation reads, at most; evenly spaced."""

MAX_HOLDOUT_ROWS = 40
"""Holdout rows that are read, at most; evenly spaced."""

HISTORY_SCHEMA: Final = "atwu.history/3"


@dataclass(frozen=True, slots=True)
class EvaluationRecord:
    step: int
    known_rows: int
    """Forget rows, in all forms trained on that list no options, whose fact is likelier than chance (`fact_probability`)."""
    measured_rows: int
    """Rows in forms of which this was measured."""
    retain_losses: tuple[float, ...]
    """Mean loss of each retain set, in nats/token."""
    learning_rate: float
    leak: float | None = None
    """`Leak.severity` at the goal, 0 without a leak; None for an evaluation that is not at the goal. If it is higher than an
    earlier one, it may be a lower bound."""

    @property
    def known_share(self) -> float:
        """Share of the measured rows that are known; 0 without any."""
        return self.known_rows / max(self.measured_rows, 1)


@dataclass(frozen=True, slots=True)
class TrainingHistory:
    """All evaluations of a run, as its history file stores them."""

    eval_steps: tuple[EvaluationRecord, ...]
    """All evaluations in order; the file format fixes the name."""
    kept_step: int
    rollbacks: int
    retain_loss_increase: float | None
    """Increase of the retain loss at that step, in nats/token; None if it is not a number."""
    schema: Literal["atwu.history/3"] = HISTORY_SCHEMA


def read_history(file: Path) -> TrainingHistory:
    """Read the training history of a run; an increase that is not a number is NaN."""
    history: TrainingHistory = validated(read_json(file), type_adapter(TrainingHistory), what=str(file))
    known = history.retain_loss_increase is not None
    return history if known else dataclasses.replace(history, retain_loss_increase=math.nan)


@dataclass(frozen=True, slots=True)
class ControllerRows:
    """What the controller measures, besides the rows that the trainer trains on."""

    retain: tuple[Sequence[EncodedRow], ...]
    """Retain sets."""
    answers: AnswerCheck
    """Finds facts in greedy answers. Answers are slow to generate, so it is used only when every other goal is reached."""
    question_chance: float = KNOWN_PROBABILITY
    """`fact_probability` above which a question is known."""
    text_chance: float | None = None
    """The same of a text to be recited: the highest one of texts that the model never saw; None without texts."""


@dataclass(frozen=True, slots=True)
class KnownRows:
    """Places of forget rows."""

    known: list[int]
    forgotten: list[int]


def measure_chance(holdout: Sequence[Example], read: ReadRows) -> float:
    """Return the mean probability of facts that the model never saw, at least `KNOWN_PROBABILITY`.

    Args:
        holdout: rows; texts are left out.
        read: reads rows with the model.
    """
    questions = evenly_spaced([row for row in holdout if row.messages], MAX_HOLDOUT_ROWS)
    measured = [fact_probability(row, tokens) for row, tokens in zip(questions, read(questions), strict=True)]
    probabilities = [probability for probability in measured if probability is not None]
    return max(KNOWN_PROBABILITY, float(np.mean(probabilities or [0.0])))


class GoalEvaluations:
    """Measures the model of a trainer on some rows, and compares it with the goals and with the first evaluation.

    Args:
        max_retain_increase: largest accepted increase of the retain loss on any set, in nats/token.
    """

    def __init__(self, trainer: Any, rows: ControllerRows, max_retain_increase: float) -> None:
        self.trainer, self.rows, self.max_retain_increase = trainer, rows, max_retain_increase
        self.history: list[EvaluationRecord] = []

    def measure(self, step: int) -> tuple[EvaluationRecord, KnownRows]:
        """Measure the model as it is; of a large forget set some rows are read."""
        return self._from_first_process(lambda: self._measure(step))

    def find_leak(self, *, at_most: float = math.inf, first: Sequence[int] = ()) -> Leak | None:
        """Check greedy answers at full precision, as for the verdict.

        bfloat16 takes less than half as long on a CPU, but near its ties an answer of a row that is just forgotten depends on
        the rows in its batch.
        """
        model, check = self.trainer.model, self.rows.answers

        def find() -> Leak | None:
            with full_precision(model):
                generator = TransformersGenerator(model, check.encoder.tokenizer)
                return check.find_leak(generator, at_most=at_most, first=first, rounded=not self.trainer.sharded)

        return self._from_first_process(find)

    def leaking_rows(self, leak: Leak) -> tuple[int, ...]:
        """Return the places of the forget rows, trained on or waiting, whose questions were answered with their facts."""
        rows, answers = self.trainer.rows.forget, self.rows.answers
        askings = [answers.askings[place] for place in leak.places]
        return tuple(
            place
            for place, (row, form) in enumerate(zip(rows.examples, rows.forms, strict=True))
            if any(is_row_of(asking, answers.rows[asking.fact], row, form) for asking in askings)
        )

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
        if self.trainer.sharded:
            measured = measure()
        else:
            measured = broadcast_from_main(self.trainer.args, measure)
        release_freed_memory(self.trainer.args.device)
        return measured

    def _measure(self, step: int) -> tuple[EvaluationRecord, KnownRows]:
        with self._rounded():
            rows = self._known_rows()
            retain = [read_tokens(self.trainer.model, encoded, entropy=False) for encoded in self.rows.retain]
        losses = tuple(-float(np.mean(np.concatenate([row.logps for row in read]))) for read in retain)
        total = len(rows.known) + len(rows.forgotten)
        return EvaluationRecord(step, len(rows.known), total, losses, self.learning_rate), rows

    def _known_rows(self) -> KnownRows:
        """Return the rows trained on that are still known, and those that are not.

        Left out are rows that list the key text in their question, where its probability says little.
        """
        rows = self.trainer.rows.forget
        forms = rows.forms or ("question",) * len(rows.rows)
        trained = range(len(rows.rows) - rows.waiting)
        places = evenly_spaced([place for place in trained if forms[place] not in OPTION_FORMS], MAX_MEASURED_ROWS)
        read = read_tokens(self.trainer.model, [rows.rows[place] for place in places], entropy=False)
        known, forgotten = list[int](), list[int]()
        for place, tokens in zip(places, read, strict=True):
            row = rows.examples[place]
            probability = fact_probability(row, tokens)
            if probability is None:
                continue
            chance = self.rows.text_chance
            if row.chance_run is None or chance is None:
                chance = self.rows.question_chance
            if probability > chance:
                known.append(place)
            else:
                forgotten.append(place)
        return KnownRows(known, forgotten)

    @property
    def learning_rate(self) -> float:
        """The learning rate after warmup."""
        scheduler = self.trainer.lr_scheduler
        return float(scheduler.base_lrs[0]) if scheduler is not None else float(self.trainer.args.learning_rate)

    def remaining(self, measured: EvaluationRecord) -> float:
        """Return the share of the way to the goal that remains: 1 at the start, 0 at the goal."""
        left = measured.known_share - MAX_KNOWN_SHARE
        if left <= 0:
            return 0.0
        return left / max(self.history[0].known_share - MAX_KNOWN_SHARE, left)

    def retain_loss_increase(self, measured: EvaluationRecord) -> float:
        """Return the largest increase of the retain loss on a set since the start, in nats/token."""
        first = self.history[0].retain_losses
        changes = [now - then for now, then in zip(measured.retain_losses, first, strict=True)]
        return float(np.max(changes)) if changes else 0.0  # NaN stays NaN

    def within_limit(self, measured: EvaluationRecord) -> bool:
        """Whether the retain loss is at most at its limit; NaN is above every limit."""
        return self.retain_loss_increase(measured) <= self.max_retain_increase
