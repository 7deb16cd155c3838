"""Adaptive controller of an unlearning run: it evaluates while training, adjusts the learning rate, and ends the run.

Every few steps it counts the forget rows that are still known, in the forms that are trained on and list no options, and
measures the retain loss. Rows that are still known are drawn more often from then on. If progress is slow and less
than a quarter of the retain limit is used, the learning rate is doubled. When the retain loss rises above its limit,
the best weights are restored and the learning rate is halved. Once almost no row is known, steps at half the rate follow until
greedy answers do not state the facts either, and can be read. If facts that leak do not become fewer and less than half of the
retain limit is used, the rate is doubled, up to its first value. At the end nine tenths of the change are kept if the answers
then pass the same check.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers.trainer_callback import TrainerCallback

from atwu._file_reading import type_adapter
from atwu._files import write_json
from atwu.request.answer_check import Leak
from atwu.request.goal_evaluations import EvaluationRecord, GoalEvaluations, TrainingHistory
from atwu.request.kept_weights import KeptWeights
from atwu.training.progress import Say

RATE_FACTOR = 2.0
"""The learning rate is multiplied by this after slow progress and after a leak that does not shrink, and divided by it after a
rollback and at the goal: smaller steps mend what larger ones damaged, because the retain loss goes on while that of forgotten
rows has faded, and what answers state changes less from step to step."""
MIN_PROGRESS = 0.08
"""Progress is slow if training between two evaluations advances less than this fraction of the way from start to goal."""
NEAR = 1 / 4
"""Remaining share of the way below which slow progress does not raise the learning rate, and a run that no longer comes closer
is checked as if it had reached the goal."""
MAX_SHARE_FOR_INCREASE = 1 / 4
"""Share of the retain limit from which slow progress does not raise the learning rate: after fine-tuning on facts word
for word, the first steps lower no probability although the rate is high enough, and the doubled one runs into the limit."""
MAX_SHARE_FOR_RETURN = 1 / 2
"""Share of the retain limit from which a leak does not raise the learning rate back to its first value. Not measured."""
MAX_ROLLBACKS = 4
"""Training ends at the first rollback after this many."""
MAX_EVALUATIONS = 40
"""A run that has not reached its goals ends after this many evaluations; a rollback counts as one more."""
LEAK_PATIENCE = 3
"""Evaluations without a smaller leak after which a run ends, since further training only does damage."""
GOAL_PATIENCE = 3
"""Evaluations without fewer known rows, near the goal, after which answers are checked as if it were reached."""
COOLDOWN = 4
"""The first check of greedy answers is at this many evaluations after the one at which the rows are forgotten. Meanwhile
neighbours come back: of 106 answers about those of France, 94 after three evaluations, 97 after four and five, 95 after six
(`benchmarks/results/default-experiments.md`)."""
CHANGE_KEPT = 0.9
"""Part of the change of the weights that is tried at the end of training. Of 98 answers about neighbours of France 93 are left
with all of it, 97 with .9, 98 with .8 and 97 with .7; at .8 a second answer states a fact, at .7 an own question gets it
(`benchmarks/results/default-experiments.md`)."""
CLEANING_SHARES: Sequence[float] = (1.0, 1 / 4, 1 / 16, 1 / 64)
"""Shares of the strength of `clean_change` that are tried in turn, until the rows stay forgotten."""
LEAK_TOLERANCE = 0.01
"""Largest accepted increase of a leak, for weights that damage less: one answer in a hundred. Of leaks with rounded weights
alone it is half of the own questions (`Leak.severity`)."""
EXPECTED_EVALUATIONS = 8
"""Expected number of evaluations until measurements give a better one."""
CONTROLLER_STATE_NAME = "controller.json"
"""File in a checkpoint: the state of the controller."""


@dataclass(frozen=True, slots=True)
class _State:
    """State of the controller, as a checkpoint stores it."""

    eval_steps: tuple[EvaluationRecord, ...]
    best: EvaluationRecord | None
    rollbacks: int
    leaking: tuple[int, ...]
    leaked: tuple[int, ...]
    cooled: int


class AdaptiveController(TrainerCallback):
    """Callback of an unlearning trainer that evaluates, adapts the learning rate and ends training.

    Its state is part of every checkpoint, so a resumed run continues as if it had not been interrupted.

    Args:
        trainer: the trainer, whose learning rate and weights are changed.
        every: optimizer steps between two evaluation steps.
        adapt: change the learning rate; only used with `stop`.
        stop: end training at the goal, and roll back above the limit.
        forget_leaks: unlearn from then on the rows in whose form a check finds their fact.
        history_file: file for the training history, written when training ends; None for none.
        say: receives one line per evaluation step.
    """

    def __init__(
        self,
        trainer: Any,
        evaluations: GoalEvaluations,
        *,
        every: int,
        adapt: bool,
        stop: bool,
        forget_leaks: bool = False,
        history_file: Path | None = None,
        say: Say,
    ) -> None:
        self.trainer, self.evaluations, self.every = trainer, evaluations, every
        self.adapt, self.stop, self.history_file, self.say = adapt, stop, history_file, say
        self.forget_leaks = forget_leaks
        self.best: EvaluationRecord | None = None
        """The evaluation step closest to the goal among those within the limit. Among several at the goal: of those whose leak
        is no worse than the smallest, the one with the smallest retain loss."""
        self.rollbacks, self.cooled = 0, 0
        self._weights = KeptWeights(trainer)
        """Weights of the best evaluation step."""
        if stop and adapt:
            self._weights.keep_original()
        self._leaking: tuple[int, ...] = ()
        """`Leak.places` of the last check."""
        self._leaked: tuple[int, ...] = ()
        """Places of the forget rows that checks have found to leak."""
        trainer.stateful.append(self)
        trainer.draw_damaged = stop and adapt
        if stop:
            trainer.expected_steps = EXPECTED_EVALUATIONS * every

    @property
    def history(self) -> list[EvaluationRecord]:
        return self.evaluations.history

    # Training

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if not self.history:
            self._keep(self._evaluate(state.global_step))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step % self.every:
            return
        measured = self._evaluate(state.global_step)
        if not self.stop:
            return
        increase, limit = self.evaluations.retain_loss_increase(measured), self.evaluations.max_retain_increase
        if not self.evaluations.within_limit(measured):
            self._roll_back(control, f"retain loss {increase:+.3f} is above the limit of {limit:g}")
            return
        if 0 < self.cooled < COOLDOWN:
            self._cool_down()
            return
        at_goal = self._at_goal()
        if at_goal and (self.cooled or not self.adapt):
            self._check_answers(control, measured)
            return
        self._keep_if_best(measured)
        if at_goal:
            self._scale_rate(1 / RATE_FACTOR, f"step {measured.step}: goal reached, cooling down")
            self._cool_down()
            return
        # Away from the goal: before the first check the rate may rise, after it rows are known that were forgotten.
        if self._checked:
            if not self._end_if_stuck(control, f"step {measured.step}: rows are known again"):
                self.say(f"step {measured.step}: rows are known again; training continues")
        elif len(self.history) > MAX_EVALUATIONS:
            self._end(control, f"step {measured.step}: goal not reached in {MAX_EVALUATIONS} evaluation steps")
        elif self.adapt and self._is_slow(measured) and self._uses_less_than(MAX_SHARE_FOR_INCREASE, measured):
            self._scale_rate(RATE_FACTOR, "slow progress")

    @property
    def _checked(self) -> bool:
        """Whether greedy answers were checked at an earlier evaluation."""
        return any(record.leak is not None for record in self.history)

    def _at_goal(self) -> bool:
        """Whether answers are worth checking: almost no row is known, or near that the number no longer falls."""
        remaining = [self.evaluations.remaining(record) for record in self.history]
        if remaining[-1] <= 0:
            return True
        # A run that has been at the goal comes back to it.
        never_reached = min(remaining) > 0
        falls_no_more = _evaluations_since_least(remaining) >= GOAL_PATIENCE
        return never_reached and remaining[-1] < NEAR and falls_no_more

    def _is_slow(self, measured: EvaluationRecord) -> bool:
        remaining = self.evaluations.remaining(measured)
        progress = self.evaluations.remaining(self.history[-2]) - remaining
        warm = measured.step > self.trainer.args.warmup_steps
        # Rows that become known again are no sign of small steps.
        return warm and not self.rollbacks and 0 <= progress < MIN_PROGRESS and remaining >= NEAR

    def _check_answers(self, control: Any, measured: EvaluationRecord) -> None:
        """End training unless greedy answers still state facts and further training may help."""
        earlier = [record.leak for record in self.history if record.leak is not None]
        leak = self._find_leak(at_most=self._tolerated_leak)
        measured = self.history[-1] = _with_leak(measured, leak)
        self._expect(measured)
        self._keep_if_best(measured)
        if leak is None:
            self._end(control, f"step {measured.step}: greedy answers meet the rule about facts")
            return
        if self.forget_leaks:
            self._unlearn_leaks(leak)
        if not self._end_if_stuck(control, leak.text):
            shrinks = bool(earlier) and leak.severity < earlier[-1]
            lowered = self.evaluations.learning_rate < self.trainer.args.learning_rate
            if (
                self.adapt
                and leak.places
                and lowered
                and not shrinks
                and self._uses_less_than(MAX_SHARE_FOR_RETURN, measured)
            ):
                self._scale_rate(RATE_FACTOR, leak.text)
            else:
                self.say(f"{leak.text}; training continues")

    def _unlearn_leaks(self, leak: Leak) -> None:
        """Give turns of forgotten rows to those that leak, for the rest of the run."""
        further = sorted(set(self.evaluations.leaking_rows(leak)).difference(self._leaked))
        if further:
            self._leaked = tuple(sorted({*self._leaked, *further}))
            self.trainer.sampler.prefer_also(self._leaked)
            self.say(f"{len(further)} leaking rows are forget rows from now on")

    def _end_if_stuck(self, control: Any, reason: str) -> bool:
        """End training if leaks have not become smaller for some evaluations; return whether it ends."""
        leaks = [math.inf if record.leak is None else record.leak for record in self.history]
        stuck = _evaluations_since_least(leaks) >= LEAK_PATIENCE
        if stuck:
            self._end(control, reason)
        return stuck

    def _uses_less_than(self, share: float, measured: EvaluationRecord) -> bool:
        """Whether less than a share of the retain limit is used, so that the learning rate may rise."""
        return self.evaluations.retain_loss_increase(measured) < share * self.evaluations.max_retain_increase

    def _cool_down(self) -> None:
        """Train until the next evaluation without a check of answers."""
        self.cooled += 1
        self._expect(self.history[-1])

    def _find_leak(self, *, at_most: float) -> Leak | None:
        leak = self.evaluations.find_leak(at_most=at_most, first=self._leaking)
        self._leaking = () if leak is None else leak.places
        return leak

    def _roll_back(self, control: Any, reason: str) -> None:
        """Restore the best weights and train on at a lower rate; if that was not enough often or not allowed, end."""
        self.rollbacks += 1
        if self.best is not None:
            self._weights.restore()
            # Progress and leaks are compared with the weights that training goes on with.
            self.history.append(
                dataclasses.replace(self.best, step=self.history[-1].step, learning_rate=self.evaluations.learning_rate)
            )
        reason += "; restored the best weights"
        if self.rollbacks > MAX_ROLLBACKS or not self.adapt:
            self._end(control, reason)
        else:
            self._scale_rate(1 / RATE_FACTOR, reason)

    def _end(self, control: Any, reason: str) -> None:
        """End training without a checkpoint of this step: resuming from it would give a different run."""
        self.say(f"{reason}; training ends")
        control.should_training_stop, control.should_save = True, False

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Write no checkpoint where the controller has ended training."""
        if control.should_training_stop and state.global_step < state.max_steps:
            control.should_save = False

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Leave the best weights in the model; evaluate a run of given length at its last step."""
        if not self.stop and self.history[-1].step != state.global_step:
            self._evaluate(state.global_step)
        if self.stop and self.best is not None and self.best is not self.history[-1]:
            self._weights.restore()
            self.say(f"kept the weights of step {self.best.step}")
        if self.trainer.cleaning is not None:
            self._clean_change(self.last)
        elif self.stop and self.adapt and self.last.leak == 0:
            self._shrink_change(self.last)
        if self.history_file is not None and args.should_save:
            increase = self.evaluations.retain_loss_increase(self.last)
            history = TrainingHistory(
                tuple(self.history),
                self.last.step,
                self.rollbacks,
                increase if math.isfinite(increase) else None,
            )
            write_json(self.history_file, dataclasses.asdict(history))

    def _shrink_change(self, trained: EvaluationRecord) -> None:
        """Keep a part of the change of the weights if answers still meet the rule about facts.

        A few more rows may be known: it is the answers that count, and they have room.
        """
        self._weights.shrink_change(CHANGE_KEPT)
        measured, _ = self.evaluations.measure(trained.step)
        leak = self._find_leak(at_most=0.0)
        described = f"{CHANGE_KEPT:g} of the weight change: {self._describe(measured)}"
        if leak is not None:
            self.say(f"{described}; not kept: {leak.text}")
            self._weights.restore()
            return
        self.say(described)
        measured = _with_leak(measured, leak)
        self.history.append(measured)
        self._keep(measured)

    def _clean_change(self, trained: EvaluationRecord) -> None:
        """Clean the change of the weights with the largest share of the strength with which the rows stay as forgotten as they
        are; of a run of given length, with all of it."""
        for share in CLEANING_SHARES:
            self.trainer.clean_change(self.trainer.cleaning, share)
            measured, reason = self._measure_cleaned(trained)
            self.say(
                f"weight change cleaned with {share:.2g} of the strength: {self._describe(measured)}"
                + (f"; not kept: {reason}" if reason else "")
            )
            if not reason:
                self.history.append(measured)
                if self.stop:
                    self._keep(measured)
                return
            self._weights.restore()

    def _measure_cleaned(self, trained: EvaluationRecord) -> tuple[EvaluationRecord, str]:
        """Measure weights with a cleaned change; return also why less is forgotten than before, or nothing."""
        measured, _ = self.evaluations.measure(trained.step)
        if not self.stop:
            return measured, ""
        if self._known_again(measured, trained):
            return measured, "rows are known again"
        if trained.leak is None:
            return measured, ""
        leak = self._find_leak(at_most=self._tolerated_leak)
        leaks_more = leak is not None and leak.severity > self._tolerated_leak
        return _with_leak(measured, leak), leak.text if leak is not None and leaks_more else ""

    def _known_again(self, measured: EvaluationRecord, trained: EvaluationRecord) -> bool:
        """Whether more rows are known than count as forgotten, and more than before."""
        return self.evaluations.remaining(measured) > self.evaluations.remaining(trained)

    def _evaluate(self, step: int) -> EvaluationRecord:
        measured, rows = self.evaluations.measure(step)
        if self.stop and self.adapt:
            self.trainer.sampler.prefer(rows.known, rows.forgotten)
            self.trainer.sampler.prefer_also(self._leaked)
        self.history.append(measured)
        last = int(self.trainer.state.max_steps)
        total = str(last)
        if self.stop:
            self._expect(measured)
            total = f"~{min(self.trainer.expected_steps, last)}"
        self.say(f"step {measured.step}/{total}  {self._describe(measured)}")
        return measured

    def _describe(self, measured: EvaluationRecord) -> str:
        increase, limit = self.evaluations.retain_loss_increase(measured), self.evaluations.max_retain_increase
        known = f"still known {measured.known_rows} of {measured.measured_rows} rows"
        return f"{known}  retain loss {increase:+.3f} (limit {limit:.3f})"

    def _expect(self, measured: EvaluationRecord) -> None:
        """Estimate the last step: where the goal is reached at the pace so far, and the evaluations at the goal."""
        further = 1
        if self.adapt:
            further += max(COOLDOWN - self.cooled, 0)
        done = 1 - self.evaluations.remaining(measured)
        if done < 0.1:
            last = max(EXPECTED_EVALUATIONS * self.every, 2 * measured.step)
        elif done < 1:
            last = (math.ceil(measured.step / done / self.every) + further - 1) * self.every
        else:
            last = measured.step + further * self.every
        self.trainer.expected_steps = last

    # Learning rate and weights

    def _scale_rate(self, factor: float, reason: str) -> None:
        """Change the learning rate from the next step on; the scheduler state, and therefore each checkpoint, contains it."""
        scheduler = self.trainer.lr_scheduler
        scheduler.base_lrs = [rate * factor for rate in scheduler.base_lrs]
        for group in self.trainer.optimizer.param_groups:
            group["lr"] *= factor
        self.say(f"{reason}; learning rate is now {self.evaluations.learning_rate:.2g}")

    @property
    def last(self) -> EvaluationRecord:
        """The evaluation step of the weights that training ended with."""
        return (self.best if self.stop else None) or self.history[-1]

    @property
    def _tolerated_leak(self) -> float:
        """The largest leak that is no worse than the smallest so far; no leak is better than any."""
        smallest = min((record.leak for record in self.history if record.leak is not None), default=math.inf)
        return smallest + LEAK_TOLERANCE if smallest else 0.0

    def _keep_if_best(self, measured: EvaluationRecord) -> None:
        best, tolerated = self.best or measured, self._tolerated_leak
        now, before = self.evaluations.remaining(measured), self.evaluations.remaining(best)
        damage, earlier = map(self.evaluations.retain_loss_increase, (measured, best))
        closer = now < before
        as_forgotten = now == before and (measured.leak or 0.0) <= tolerated
        # Damage decides only among weights that forget as much.
        best_leaks_more = best.leak is None or best.leak > tolerated
        less_damage = damage <= earlier
        if closer or (as_forgotten and (best_leaks_more or less_damage)):
            self._keep(measured)

    def _keep(self, measured: EvaluationRecord) -> None:
        self.best = measured
        if self.stop:
            self._weights.keep()

    # Checkpoints

    def save(self, folder: str | Path) -> None:
        self._weights.save(Path(folder))
        state = _State(tuple(self.history), self.best, self.rollbacks, self._leaking, self._leaked, self.cooled)
        write_json(Path(folder) / CONTROLLER_STATE_NAME, dataclasses.asdict(state))

    def load(self, folder: str | Path) -> None:
        state: _State = type_adapter(_State).validate_json((Path(folder) / CONTROLLER_STATE_NAME).read_bytes())
        self.evaluations.history = list(state.eval_steps)
        self.best, self.rollbacks = state.best, state.rollbacks
        self._leaking, self._leaked, self.cooled = state.leaking, state.leaked, state.cooled
        self._weights.load(Path(folder))


def _evaluations_since_least(values: Sequence[float]) -> int:
    """Return how many evaluations ago a value was the least, for the first time."""
    return len(values) - 1 - values.index(min(values))


def _with_leak(measured: EvaluationRecord, leak: Leak | None) -> EvaluationRecord:
    return dataclasses.replace(measured, leak=0.0 if leak is None else leak.severity)
