"""A run that watches itself: how well forget rows are still known, what kept rows lost, and what follows from it.

Every few steps a look takes how probable and how well guessed the forget rows' telling words are, and the loss of rows that
should stay. The learning rate
doubles while little happens; where the kept rows lose more than the limit, the best weights so far come back and it halves;
and training ends once the forget rows are no better known than rows no model ever saw.
"""

from __future__ import annotations

import dataclasses
import math
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
from atwu.training.progress import Say
from atwu.training.sharding import broadcast_from_main

T = TypeVar("T")

LR_INCREASE, LR_DECREASE = 2.0, 0.5
"""Factors on the learning rate when little happens, and after a step back."""
MIN_PROGRESS = 0.08
"""Share of what is to be forgotten that a look should bring at least."""
MAX_ROLLBACKS = 4
"""Times that the best weights may come back before training ends."""
MAX_EVAL_STEPS = 40
"""Most looks of a run."""
USUAL_EVAL_STEPS = 8
"""Looks that a run is expected to take before it is known better."""
STATE_NAME, WEIGHTS_NAME = "controller.json", "controller.safetensors"
"""In a checkpoint: what the watch knows, and the best weights so far."""


@dataclass(frozen=True, slots=True)
class EvalStep:
    """What was seen at one step."""

    step: int
    probability: float
    """Mean `key_token_probability` of forget rows, of the set where it is higher."""
    accuracy: float
    """The same of `key_token_accuracy`."""
    retain_losses: tuple[float, ...]
    """Mean loss per token of every set of rows that should stay, in nats."""
    learning_rate: float


@dataclass(frozen=True, slots=True)
class TrainingHistory:
    """What was seen over a whole run."""

    eval_steps: tuple[EvalStep, ...]
    kept_step: int
    """Step whose weights were kept."""
    rollbacks: int
    retain_loss_increase: float | None
    """Of the loss of rows that should stay, at the end; None where it is no number."""


@dataclass(frozen=True, slots=True)
class _State:
    """What a watch knows, as a checkpoint has it."""

    eval_steps: tuple[EvalStep, ...]
    best: EvalStep | None
    rollbacks: int


@dataclass(frozen=True, slots=True)
class Limits:
    """When a run is done, and what it may cost."""

    probability: float
    """Mean `key_token_probability` of rows that no model saw."""
    accuracy: float
    """Mean `key_token_accuracy` of the same, upper end of its interval: pieces of words follow from the pieces before."""
    recall: float
    """Mean `key_token_recall` of the same, upper end."""
    retain_loss_increase: float
    """Most that the loss of any set of rows that should stay may rise, in nats per token."""


@dataclass(frozen=True, slots=True)
class ControllerRows:
    """Rows that looks are taken at, encoded."""

    forget: tuple[tuple[Sequence[Example], Sequence[EncodedRow]], ...]
    """Sets of rows to forget: as they are, and in other words."""
    retain: tuple[Sequence[EncodedRow], ...]
    """Sets of rows that should stay."""
    recall: Callable[[Any], float]
    """Takes the model as it is; gives the mean `key_token_recall` of forget rows, of the set where it is higher.
    Slow, and so only
    asked when everything else has reached its goal."""


class AdaptiveController(TrainerCallback):
    """Callback of an `UnlearnTrainer`; also saved with its checkpoints, so that a killed run goes on as it would have.

    Args:
        trainer: the trainer; its learning rate and weights are changed.
        rows: what to look at.
        limits: what to compare with.
        every: optimizer steps between looks.
        adapt: change the learning rate.
        stop: end training when the rows are forgotten, and go back where the limit is passed.
        course: file that the course is written to as training ends; None for none.
        say: receives one line per look.
    """

    def __init__(
        self,
        trainer: Any,
        rows: ControllerRows,
        limits: Limits,
        *,
        every: int,
        adapt: bool,
        stop: bool,
        history_file: Path | None = None,
        say: Say,
    ) -> None:
        self.trainer, self.rows, self.limits, self.every = trainer, rows, limits, every
        self.adapt, self.stop, self.history_file, self.say = adapt, stop, history_file, say
        self.eval_steps: list[EvalStep] = []
        self.best: EvalStep | None = None
        """The best look that kept the limit."""
        self.rollbacks = 0
        self._weights: list[Tensor] = []
        trainer.stateful.append(self)
        if stop:
            trainer.expected_steps = USUAL_EVAL_STEPS * every

    # Called by the trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The first look, at the starting model."""
        if not self.eval_steps:
            self._look(state.global_step)
            self._keep(self.eval_steps[0])

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Look, and decide."""
        if state.global_step % self.every:
            return
        look = self._look(state.global_step)
        if not self.stop:
            return
        if not self.retain_loss_increase(look) <= self.limits.retain_loss_increase:  # also where it is no number
            self._back(control, self.retain_loss_increase(look))
            return
        left = self.remaining(look)
        if self.best is None or left <= self.remaining(self.best):  # of two at the goal, the later one
            self._keep(look)
        if left <= 0:
            if (said := self._seen(self._said)) > self.limits.recall:
                self.say(
                    f"answers still say {said:.3f} of the telling words (to reach {self.limits.recall:.3f}); going on"
                )
            else:
                self.say(f"step {look.step}: forget rows are no better known than rows no model saw; stopping")
                self._end(control)
        elif len(self.eval_steps) > MAX_EVAL_STEPS:
            self.say(f"step {look.step}: {MAX_EVAL_STEPS} looks without getting there; stopping")
            self._end(control)
        elif (
            self.adapt
            and self.remaining(self.eval_steps[-2]) - left < MIN_PROGRESS
            and self.retain_loss_increase(look) < self.limits.retain_loss_increase / 2
        ):
            self._scale(LR_INCREASE, "little happens")

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Nothing to go on from is left where training ended."""
        if control.should_training_stop and state.global_step < state.max_steps:
            control.should_save = False

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Leave the best weights in the model; a run of given length is looked at as it ends."""
        if not self.stop and self.eval_steps[-1].step != state.global_step:
            self._look(state.global_step)
        if self.stop and self.best is not None and self.best is not self.eval_steps[-1]:
            self._restore()
            self.say(f"kept: the weights of step {self.best.step}")
        if self.history_file is not None and args.should_save:
            rise = self.retain_loss_increase(self.last)
            found = TrainingHistory(
                tuple(self.eval_steps), self.last.step, self.rollbacks, rise if math.isfinite(rise) else None
            )
            write_json(self.history_file, dataclasses.asdict(found))

    # What it does

    def _look(self, step: int) -> EvalStep:
        look = self._seen(lambda: self._measured(step))
        self.eval_steps.append(look)
        if self.stop:
            self.trainer.expected_steps = self._expected(look)
        self.say(
            f"step {step}: telling words p {look.probability:.3f} (to reach {self.limits.probability:.3f}), guessed "
            f"{look.accuracy:.3f} (to reach {self.limits.accuracy:.3f}); loss of what stays {max(self.retain_loss_increase(look), 0):+.3f}"
        )
        return look

    def _seen(self, measure: Callable[[], T]) -> T:
        """What one process sees, in all of them, so that they decide alike; sharded weights are read together."""
        return measure() if self.trainer.sharded else broadcast_from_main(self.trainer.args, measure)

    def _measured(self, step: int) -> EvalStep:
        model = self.trainer.model
        with self.trainer.accelerator.autocast():
            read = [list(zip(rows, read_tokens(model, encoded), strict=True)) for rows, encoded in self.rows.forget]
            kept = [read_tokens(model, rows) for rows in self.rows.retain]
        return EvalStep(
            step,
            max(_mean(key_token_probability(row, tokens) for row, tokens in rows) for rows in read),
            max(_mean(key_token_accuracy(row, tokens) for row, tokens in rows) for rows in read),
            tuple(-float(np.mean(np.concatenate([row.logps for row in rows]))) for rows in kept),
            self._rate(),
        )

    def _said(self) -> float:
        """Of the model as it will be saved: greedy answers of a few rows hang on digits that bfloat16 has not."""
        with full_precision(self.trainer.model):
            return self.rows.recall(self.trainer.model)

    def retain_loss_increase(self, look: EvalStep) -> float:
        """Largest rise of the loss of rows that should stay, since the start."""
        changes = [now - first for now, first in zip(look.retain_losses, self.eval_steps[0].losses, strict=True)]
        return float(np.max(changes)) if changes else 0.0  # NaN stays NaN

    @property
    def last(self) -> EvalStep:
        """The look at the weights that training left."""
        return (self.best if self.stop else None) or self.eval_steps[-1]

    def remaining(self, look: EvalStep) -> float:
        """Share of the way that is left, 1 at the start, at most 0 at the goal; that of the measure that is further off."""
        first, limits = self.eval_steps[0], self.limits
        probability = _share(*map(_log, (first.probability, look.probability, limits.probability)))
        return max(probability, _share(first.accuracy, look.accuracy, limits.accuracy))

    def _expected(self, look: EvalStep) -> int:
        """Steps until the goal, if it goes on as it went so far; about one look more where only the answers are left."""
        done = 1 - self.remaining(look)
        guess = look.step / done if done > 0.1 else max(USUAL_EVAL_STEPS * self.every, 2 * look.step)
        return max(round(guess), look.step + self.every)

    def _back(self, control: Any, lost: float) -> None:
        self.rollbacks += 1
        said = f"what should stay lost {lost:.2f} nats per token, more than {self.limits.retain_loss_increase:g}"
        if self.best is not None:
            self._restore()
            self.eval_steps.append(
                dataclasses.replace(self.best, step=self.eval_steps[-1].step, learning_rate=self._rate())
            )
        if self.rollbacks > MAX_ROLLBACKS or not self.adapt:
            self.say(f"{said}; back to the best weights, and stopping")
            self._end(control)
        else:
            self._scale(LR_DECREASE, f"{said}; back to the best weights")

    def _end(self, control: Any) -> None:
        """End training, without a checkpoint of this step: to go on from there would be another run."""
        control.should_training_stop, control.should_save = True, False

    def _rate(self) -> float:
        scheduler = self.trainer.lr_scheduler
        return float(scheduler.base_lrs[0]) if scheduler is not None else float(self.trainer.args.learning_rate)

    def _scale(self, factor: float, why: str) -> None:
        """Change the learning rate from the next step on; the scheduler's state holds it, and so do checkpoints."""
        scheduler = self.trainer.lr_scheduler
        scheduler.base_lrs = [rate * factor for rate in scheduler.base_lrs]
        for group in self.trainer.optimizer.param_groups:
            group["lr"] *= factor
        self.say(f"{why}: learning rate {self._rate():.2g}")

    def _trained(self) -> list[Tensor]:
        parameters = [parameter for parameter in self.trainer.model.parameters() if parameter.requires_grad]
        return parameters + ([] if self.trainer.scorer is None else list(self.trainer.scorer.parameters()))

    def _keep(self, look: EvalStep) -> None:
        self.best = look
        if self.stop:
            self._weights = [parameter.detach().to("cpu", copy=True) for parameter in self._trained()]

    @torch.no_grad()
    def _restore(self) -> None:
        """Put the best weights back, and forget where the optimizer was heading."""
        for parameter, kept in zip(self._trained(), self._weights, strict=True):
            parameter.copy_(kept)
        self.trainer.optimizer.state.clear()

    # Checkpoints

    def save(self, folder: str | Path) -> None:
        """Write what it knows into a checkpoint."""
        from safetensors.torch import save_file

        save_file({str(place): tensor for place, tensor in enumerate(self._weights)}, Path(folder) / WEIGHTS_NAME)
        state = _State(tuple(self.eval_steps), self.best, self.rollbacks)
        write_json(Path(folder) / STATE_NAME, dataclasses.asdict(state))

    def load(self, folder: str | Path) -> None:
        """Read it back."""
        from safetensors.torch import load_file

        state: _State = type_adapter(_State).validate_json((Path(folder) / STATE_NAME).read_bytes())
        weights = load_file(Path(folder) / WEIGHTS_NAME)
        self.eval_steps, self.best, self.rollbacks = list(state.eval_steps), state.best, state.rollbacks
        self._weights = [weights[str(place)] for place in range(len(weights))]


def read_history(file: Path) -> TrainingHistory:
    """Read what a watch wrote as training ended; a rise that is no number is NaN."""
    course: TrainingHistory = type_adapter(TrainingHistory).validate_json(file.read_bytes())
    return dataclasses.replace(course, retain_loss_increase=math.nan) if course.retain_loss_increase is None else course


def _mean(values: Iterable[float | None]) -> float:
    return float(np.mean([value for value in values if value is not None]))


def _log(value: float) -> float:
    return math.log(max(value, 1e-9))


def _share(first: float, now: float, goal: float) -> float:
    return (now - goal) / max(first - goal, 1e-9) if now > goal else 0.0
