"""Adaptive controller of an unlearning run: it evaluates while training, adjusts the learning rate, and ends the run.

Every few steps it measures the key-token probability and accuracy of the forget rows, and the loss on retained data.
If progress is slow and less than half of the retain limit is used, the learning rate is doubled. When the loss on retained
data rises above its limit, the best weights are restored and the learning rate is halved. Training ends once the forget rows
are no better known than holdout rows and greedy answers do not state them. The change of the weights is then scaled down as
far as this stays true, which brings everything else closer to the original model.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from transformers.trainer_callback import TrainerCallback

from atwu._file_reading import type_adapter
from atwu._files import write_json
from atwu.data.encode import EncodedRow
from atwu.data.schema import Example
from atwu.evaluation.metrics.key_tokens import key_token_accuracy, key_token_probability
from atwu.evaluation.teacher_forced import read_tokens
from atwu.modeling.modes import full_precision
from atwu.request.answer_check import AnswerCheck, Leak
from atwu.request.change_scale import copied, set_change, smallest_scale
from atwu.request.training_history import EvaluationRecord, TrainingHistory
from atwu.training.progress import Say
from atwu.training.sharding import broadcast_from_main

_T = TypeVar("_T")

LR_INCREASE, LR_DECREASE = 2.0, 0.5
"""Factors on the learning rate: after slow progress, and after a rollback."""
LR_LEAK = 1.5
"""Factor on the learning rate, once, if answers still state facts at the goal and little of the retain limit is used."""
MIN_PROGRESS = 0.08
"""Progress is slow if training between two evaluations advances less than this fraction of the distance from start to goal."""
MAX_ROLLBACKS = 4
"""Training ends at the first rollback after this many."""
MAX_EVALUATIONS = 40
"""A run that has not reached its goals ends after this many evaluations; a rollback counts as one more."""
MAX_AT_GOAL = 6
"""Number of evaluations at the goal after which a run ends although greedy answers still state some facts: a single word, such
as "Asia" in "East Asia", may never disappear, and further training only does damage."""
PATIENCE = 2
"""Number of evaluations at the goal without a smaller leak after which a run ends, too."""
LEAK_TOLERANCE = 0.01
"""Largest accepted increase of the leak by a smaller change of the weights: one answer in a hundred."""
EXPECTED_EVALUATIONS = 8
"""Expected number of evaluations, until measurements give a better estimate."""
EXPECTED_AT_GOAL = 3
"""Expected number of evaluations at the goal. A run has between 1 and `MAX_AT_GOAL`, so it can be off by half at most."""
EXPECTED_SCALE_CHECKS = 3
"""Expected number of checks of greedy answers while the change of the weights is scaled down."""
CONTROLLER_STATE_NAME, CONTROLLER_WEIGHTS_NAME = "controller.json", "controller.safetensors"
"""Files in a checkpoint: the state of the controller, and the best weights so far."""


@dataclass(frozen=True, slots=True)
class _State:
    """State of the controller, as a checkpoint stores it."""

    eval_steps: tuple[EvaluationRecord, ...]
    best: EvaluationRecord | None
    rollbacks: int


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


@dataclass(frozen=True, slots=True)
class ControllerRows:
    """Encoded rows that evaluation steps measure."""

    forget: tuple[tuple[Sequence[Example], Sequence[EncodedRow]], ...]
    """Forget rows as written, and with other prompts."""
    retain: tuple[Sequence[EncodedRow], ...]
    """Sets of retained data."""
    answers: AnswerCheck
    """Finds facts in greedy answers. Answers are slow to generate, so it is used only when every other goal is reached."""


class AdaptiveController(TrainerCallback):
    """Callback of an unlearning trainer that evaluates, adapts the learning rate and ends training.

    Its state is part of every checkpoint, so a resumed run continues as if it had not been interrupted.

    Args:
        trainer: the trainer, whose learning rate and weights are changed.
        rows: rows to measure.
        goals: goals, and the limit on the retain loss increase.
        every: optimizer steps between two evaluation steps.
        adapt: change the learning rate; only used with `stop`.
        stop: end training at the goal, and roll back above the limit.
        history_file: file for the training history, written when training ends; None for none.
        say: receives one line per evaluation step.
    """

    def __init__(
        self,
        trainer: Any,
        rows: ControllerRows,
        goals: ControllerGoals,
        *,
        every: int,
        adapt: bool,
        stop: bool,
        history_file: Path | None = None,
        say: Say,
    ) -> None:
        self.trainer, self.rows, self.goals, self.every = trainer, rows, goals, every
        self.adapt, self.stop, self.history_file, self.say = adapt, stop, history_file, say
        self.history: list[EvaluationRecord] = []
        self.best: EvaluationRecord | None = None
        """The evaluation step closest to the goal among those within the limit, among several at the goal the one with
        the smallest leak; ties go to the later one."""
        self.rollbacks = 0
        self._weights: list[Tensor] = []
        self.change_scale = 1.0
        """See `TrainingHistory.change_scale`."""
        self._original: list[Tensor] = []
        """Trained weights of the original model; none if they are not scaled down, as in a sharded model."""
        if stop and not trainer.sharded:  # before a checkpoint is loaded
            self._original = copied(self._model_parameters())
        self._check_seconds = 0.0
        """Duration of a check of greedy answers: the estimate before training, or that of the longest one if it is longer."""
        trainer.stateful.append(self)
        trainer.eval_every = every
        if stop:
            trainer.expected_steps = EXPECTED_EVALUATIONS * every

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Evaluate the original model."""
        if self.stop:
            self._check_seconds = self._from_first_process(lambda: self._answer(self.rows.answers.estimate_seconds))
        if not self.history:
            self._evaluate(state.global_step)
            self._keep(self.history[0])

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Evaluate, and decide how training continues."""
        if state.global_step % self.every:
            return
        measured = self._evaluate(state.global_step)
        if not self.stop:
            return
        increase, limit = self.retain_loss_increase(measured), self._limit
        if not increase <= limit:  # NaN is above every limit
            self._roll_back(control, increase)
            return
        may_be_faster = self.adapt and increase < limit / 2
        remaining, leak = self.remaining(measured), None
        if remaining <= 0:
            start = time.monotonic()
            leak = self._find_leak()
            seconds = time.monotonic() - start
            self.trainer.paused_seconds += seconds
            self._check_seconds = max(self._check_seconds, seconds)
            measured = self.history[-1] = dataclasses.replace(measured, leak=0.0 if leak is None else leak.excess)
            self._plan(measured)
        if self.best is None or self._sort_key(measured) <= self._sort_key(self.best):
            self._keep(measured)
        if remaining <= 0:
            if leak is not None:
                leaks = [each.leak for each in self.history if each.leak is not None]
                since_best = leaks[::-1].index(min(leaks))
                ends = len(leaks) >= MAX_AT_GOAL or since_best >= PATIENCE
                self.say(f"{leak.text}; training {'ends' if ends else 'continues'}")
                if ends:
                    self._end(control)
                elif may_be_faster and len(leaks) == 1:
                    self._scale(LR_LEAK, "answers still state facts")
            else:
                self.say(f"step {measured.step}: forget rows are no better known than holdout rows; training ends")
                self._end(control)
        elif len(self.history) > MAX_EVALUATIONS:
            self.say(f"step {measured.step}: goal not reached in {MAX_EVALUATIONS} evaluation steps; training ends")
            self._end(control)
        elif may_be_faster and self.remaining(self.history[-2]) - remaining < MIN_PROGRESS:
            self._scale(LR_INCREASE, "slow progress")

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Write no checkpoint where the controller has ended training."""
        if control.should_training_stop and state.global_step < state.max_steps:
            control.should_save = False

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Leave the best weights in the model; evaluate a run of given length at its last step."""
        if not self.stop and self.history[-1].step != state.global_step:
            self._evaluate(state.global_step)
        if self.stop and self.best is not None and self.best is not self.history[-1]:
            self._restore()
            self.say(f"kept the weights of step {self.best.step}")
        if self._original and self.best is not None and self.best.leak is not None:
            self._scale_change(self.best)
        if self.history_file is not None and args.should_save:
            increase = self.retain_loss_increase(self.last)
            history = TrainingHistory(
                tuple(self.history),
                self.last.step,
                self.rollbacks,
                increase if math.isfinite(increase) else None,
                self.change_scale,
            )
            write_json(self.history_file, dataclasses.asdict(history))

    # Measurements and actions

    def _evaluate(self, step: int) -> EvaluationRecord:
        measured = self._from_first_process(lambda: self._measure(step))
        self.history.append(measured)
        if self.stop:
            self._plan(measured)
        self.say(self._line(measured))
        return measured

    def _line(self, measured: EvaluationRecord) -> str:
        """Return an evaluation step with its goals and limit as one line."""
        last, goals = int(self.trainer.state.max_steps), self.goals
        total = f"~{min(self.trainer.expected_steps, last)}" if self.stop else str(last)
        return (
            f"step {measured.step}/{total}  key-token prob {measured.probability:.3f} (goal {goals.probability:.3f})  "
            f"accuracy {measured.accuracy:.3f} (goal {goals.accuracy:.3f})  "
            f"retain loss {self.retain_loss_increase(measured):+.3f} (limit {goals.max_retain_increase:.3f})"
        )

    def _from_first_process(self, measure: Callable[[], _T]) -> _T:
        """Return what the first process measures, so that all processes decide alike; with sharded weights all measure."""
        return measure() if self.trainer.sharded else broadcast_from_main(self.trainer.args, measure)

    def _measure(self, step: int) -> EvaluationRecord:
        model = self.trainer.model
        with self.trainer.accelerator.autocast():
            forget = [list(zip(rows, read_tokens(model, encoded), strict=True)) for rows, encoded in self.rows.forget]
            retain = [read_tokens(model, rows) for rows in self.rows.retain]
        return EvaluationRecord(
            step,
            max(_mean(key_token_probability(row, tokens) for row, tokens in rows) for rows in forget),
            max(_mean(key_token_accuracy(row, tokens) for row, tokens in rows) for rows in forget),
            tuple(-float(np.mean(np.concatenate([row.logps for row in rows]))) for rows in retain),
            self._rate(),
        )

    def _answer(self, check: Callable[[Any], _T]) -> _T:
        """Generate answers at full precision: greedy answers of a few rows depend on digits that bfloat16 lacks."""
        with full_precision(self.trainer.model):
            return check(self.trainer.model)

    def _find_leak(self) -> Leak | None:
        return self._from_first_process(lambda: self._answer(self.rows.answers.find_leak))

    def _scale_change(self, trained: EvaluationRecord) -> None:
        """Scale the change of the weights down to the smallest factor with which the rows stay as forgotten as they are."""
        leak = trained.leak or 0.0

        def forgotten(scale: float) -> bool:
            self._set_change(scale)
            measured, why = self._from_first_process(lambda: self._measure(trained.step)), "better known than the goal"
            stays = self.remaining(measured) <= 0 and self.retain_loss_increase(measured) <= self._limit
            if stays:
                found = self._find_leak()
                stays = found is None or (leak > 0 and found.excess <= leak + LEAK_TOLERANCE)
                why = "" if found is None else found.text
                measured = dataclasses.replace(measured, leak=0.0 if found is None else found.excess)
            self.say(
                f"weight change scaled to {scale:g}: key-token prob {measured.probability:.3f}  accuracy "
                f"{measured.accuracy:.3f}  retain loss {self.retain_loss_increase(measured):+.3f}"
                + ("" if stays else f"; not forgotten: {why}")
            )
            if stays:
                self.best = measured
                self.history.append(measured)
            return stays

        self.change_scale = smallest_scale(forgotten)
        self._set_change(self.change_scale)
        if self.change_scale < 1:
            self.say(
                f"kept {self.change_scale:g} of the weight change: the forget rows stay forgotten with less damage"
            )

    def _sort_key(self, measured: EvaluationRecord) -> tuple[float, float]:
        """Return a sort key for evaluations within the limit; smaller is better."""
        return self.remaining(measured), measured.leak or 0.0

    def retain_loss_increase(self, measured: EvaluationRecord) -> float:
        """Return the largest increase of the loss on a set of retained data since the start, in nats/token."""
        changes = [
            now - first for now, first in zip(measured.retain_losses, self.history[0].retain_losses, strict=True)
        ]
        return float(np.max(changes)) if changes else 0.0  # NaN stays NaN

    @property
    def last(self) -> EvaluationRecord:
        """The evaluation step of the weights that training ended with."""
        return (self.best if self.stop else None) or self.history[-1]

    def remaining(self, measured: EvaluationRecord) -> float:
        """Return the share of the way to the goal that remains: 1 at the start, 0 at the goal; the larger of two metrics."""
        first, goals = self.history[0], self.goals
        probability = _share(*map(_log, (first.probability, measured.probability, goals.probability)))
        return max(probability, _share(first.accuracy, measured.accuracy, goals.accuracy))

    def _plan(self, measured: EvaluationRecord) -> None:
        """Estimate the last step: where the goal is reached at the pace so far, and the evaluations at the goal."""
        done = 1 - self.remaining(measured)
        at_goal = sum(self.remaining(each) <= 0 for each in self.history)
        further = EXPECTED_AT_GOAL if at_goal == 0 else max((MAX_AT_GOAL - at_goal + 1) // 2, 1)
        if done < 0.1:
            last = max(EXPECTED_EVALUATIONS * self.every, 2 * measured.step)
        else:
            reached = max(math.ceil(measured.step / done / self.every), measured.step // self.every)
            last = (reached + further - (at_goal == 0)) * self.every
        checks = further + (EXPECTED_SCALE_CHECKS if self._original else 0)
        self.trainer.expected_steps, self.trainer.expected_pause = last, checks * self._check_seconds

    def _roll_back(self, control: Any, increase: float) -> None:
        self.rollbacks += 1
        limit = self._limit
        reason = f"retain loss {increase:+.3f} is above the limit of {limit:g}; restored the best weights"
        if self.best is not None:
            self._restore()
            self.history.append(dataclasses.replace(self.best, step=self.history[-1].step, learning_rate=self._rate()))
        if self.rollbacks > MAX_ROLLBACKS or not self.adapt:
            self.say(f"{reason}; training ends")
            self._end(control)
        else:
            self._scale(LR_DECREASE, reason)

    def _end(self, control: Any) -> None:
        """End training without a checkpoint of this step: resuming from it would give a different run."""
        control.should_training_stop, control.should_save = True, False

    def _rate(self) -> float:
        scheduler = self.trainer.lr_scheduler
        return float(scheduler.base_lrs[0]) if scheduler is not None else float(self.trainer.args.learning_rate)

    def _scale(self, factor: float, reason: str) -> None:
        """Change the learning rate from the next step on; the scheduler state, and therefore each checkpoint, contains it."""
        scheduler = self.trainer.lr_scheduler
        scheduler.base_lrs = [rate * factor for rate in scheduler.base_lrs]
        for group in self.trainer.optimizer.param_groups:
            group["lr"] *= factor
        self.say(f"{reason}; learning rate is now {self._rate():.2g}")

    @property
    def _limit(self) -> float:
        return self.goals.max_retain_increase

    def _model_parameters(self) -> list[Tensor]:
        return [parameter for parameter in self.trainer.model.parameters() if parameter.requires_grad]

    def _trained(self) -> list[Tensor]:
        return self._model_parameters() + (
            [] if self.trainer.scorer is None else list(self.trainer.scorer.parameters())
        )

    def _keep(self, measured: EvaluationRecord) -> None:
        self.best = measured
        if self.stop:
            self._weights = copied(self._trained())

    def _set_change(self, scale: float) -> None:
        set_change(self._model_parameters(), self._original, self._weights, scale)

    @torch.no_grad()
    def _restore(self) -> None:
        """Restore the best weights and reset the state of the optimizer."""
        for parameter, kept in zip(self._trained(), self._weights, strict=True):
            parameter.copy_(kept)
        self.trainer.optimizer.state.clear()

    # Checkpoints

    def save(self, folder: str | Path) -> None:
        """Write the state into a checkpoint."""
        from safetensors.torch import save_file

        save_file(
            {str(place): tensor for place, tensor in enumerate(self._weights)}, Path(folder) / CONTROLLER_WEIGHTS_NAME
        )
        state = _State(tuple(self.history), self.best, self.rollbacks)
        write_json(Path(folder) / CONTROLLER_STATE_NAME, dataclasses.asdict(state))

    def load(self, folder: str | Path) -> None:
        """Read the state from a checkpoint."""
        from safetensors.torch import load_file

        state: _State = type_adapter(_State).validate_json((Path(folder) / CONTROLLER_STATE_NAME).read_bytes())
        weights = load_file(Path(folder) / CONTROLLER_WEIGHTS_NAME)
        self.history, self.best, self.rollbacks = list(state.eval_steps), state.best, state.rollbacks
        self._weights = [weights[str(place)] for place in range(len(weights))]


def _mean(values: Iterable[float | None]) -> float:
    return float(np.mean([value for value in values if value is not None]))


def _log(value: float) -> float:
    return math.log(max(value, 1e-9))


def _share(first: float, now: float, goal: float) -> float:
    return (now - goal) / max(first - goal, 1e-9) if now > goal else 0.0
