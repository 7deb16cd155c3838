"""Decisions of the adaptive controller on scripted measurements."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from atwu.data.pairing import EpochSampler
from atwu.request import controller as controller_module
from atwu.request.answer_check import Leak
from atwu.request.controller import (
    CHANGE_KEPT,
    CLEANING_SHARES,
    GOAL_PATIENCE,
    LEAK_PATIENCE,
    MAX_EVALUATIONS,
    RATE_FACTOR,
    AdaptiveController,
)
from atwu.request.goal_evaluations import (
    MAX_KNOWN_SHARE,
    ControllerRows,
    EvaluationRecord,
    GoalEvaluations,
    KnownRows,
)

COOLDOWN = 2
"""Evaluations of a cool-down in these tests."""
LIMIT = 0.15
ROWS = 20
GOAL = round(MAX_KNOWN_SHARE * ROWS)
"""Rows that may still be known."""
KNOWN = (ROWS, 0.0)
"""Known rows and increase of the retain loss before training."""


class ScriptedEvaluations(GoalEvaluations):
    """Given measurements and leaks, one evaluation after another.

    Args:
        measured: known rows and increase of the retain loss.
        forgets_from: smallest change of the weight, of that at the end, at which the rows are forgotten.
    """

    def __init__(
        self,
        trainer: Any,
        measured: Sequence[tuple[int, float]],
        leaks: Sequence[float],
        forgets_from: float,
    ) -> None:
        super().__init__(trainer, ControllerRows((), None), LIMIT)  # type: ignore[arg-type]
        self.measured, self.leaks, self.forgets_from = list(measured), list(leaks), forgets_from

    def find_leak(self, *, at_most: float = 0, first: Sequence[int] = ()) -> Leak | None:
        severity = self.leaks.pop(0) if self.leaks else 0
        return Leak(severity, f"leak of {severity}", (0,)) if severity else None

    def leaking_rows(self, leak: Leak) -> tuple[int, ...]:
        return (round(10 * leak.severity),)

    def measure(self, step: int) -> tuple[EvaluationRecord, KnownRows]:
        if self.measured:
            known, increase = self.measured.pop(0)
        else:  # training has ended: the change of the weights is scaled
            forgotten = self.trainer.model.weight.item() >= self.forgets_from * step / 5
            known, increase = 0 if forgotten else 2 * GOAL, 0.0
        record = EvaluationRecord(step, known, ROWS, (1.0 + increase,), self.learning_rate)
        return record, KnownRows(list(range(known)), list(range(known, ROWS)))


class Scripted(AdaptiveController):
    """A controller with given measurements."""

    def __init__(
        self,
        measured: Sequence[tuple[int, float]],
        leaks: Sequence[float] = (),
        *,
        forgets_from: float = 1.0,
        warmup: int = 0,
        cleaned_to: float | None = None,
        forget_leaks: bool = False,
    ) -> None:
        model = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.zeros_(model.weight)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        trainer = SimpleNamespace(
            model=model,
            optimizer=optimizer,
            lr_scheduler=torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0),
            scorer=None,
            sampler=EpochSampler(ROWS, seed=0),
            sharded=False,
            stateful=[],
            state=SimpleNamespace(max_steps=1000),
            args=SimpleNamespace(warmup_steps=warmup, learning_rate=1e-3),
            cleaning=None if cleaned_to is None else SimpleNamespace(original=[torch.zeros(1, 1)]),
            clean_change=lambda cleaning, share: model.weight.data.mul_(1 - share * (1 - (cleaned_to or 0.0))),
        )
        self.said = list[str]()
        self.expected: list[int] = []
        """Estimated last step, after each evaluation of training."""
        evaluations = ScriptedEvaluations(trainer, measured, leaks, forgets_from)
        super().__init__(
            trainer, evaluations, every=5, adapt=True, stop=True, forget_leaks=forget_leaks, say=self.said.append
        )

    def run(self) -> int:
        """Train until the controller ends training; every step adds 1 to the weight. Return the number of evaluations."""
        weight, control, arguments = self.trainer.model.weight, SimpleNamespace(should_training_stop=False), None
        self.on_train_begin(arguments, SimpleNamespace(global_step=0), control)
        evaluations = 0
        while not control.should_training_stop:
            evaluations += 1
            torch.nn.init.constant_(weight, float(evaluations))
            self.on_step_end(arguments, SimpleNamespace(global_step=5 * evaluations), control)
            self.expected.append(self.trainer.expected_steps)
        self.on_train_end(SimpleNamespace(should_save=False), SimpleNamespace(global_step=5 * evaluations), Any)
        return evaluations


GOOD = (GOAL, 0.01)


@pytest.fixture(autouse=True)
def short_cooldown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_module, "COOLDOWN", COOLDOWN)


def test_without_a_leak_at_the_goal_training_cools_down_and_ends() -> None:
    controller = Scripted([KNOWN, (10, 0.0), *[GOOD] * (1 + COOLDOWN)])
    assert controller.run() == 2 + COOLDOWN
    assert controller.trainer.model.weight.item() == pytest.approx(CHANGE_KEPT * (2 + COOLDOWN))
    assert controller.last.leak == 0
    assert controller.evaluations.learning_rate == 1e-3 / RATE_FACTOR


def test_slow_progress_raises_the_rate() -> None:
    for known, increases in [
        (19, 3),
        (12, 2),
        (5, 0),  # too little remains
    ]:
        controller = Scripted([KNOWN, *[(known, 0.0)] * 3, *[GOOD] * (1 + COOLDOWN)])
        controller.run()
        expected = 1e-3 * RATE_FACTOR ** (increases - 1)
        assert controller.evaluations.learning_rate == pytest.approx(expected)
    controller = Scripted([KNOWN, (19, 0.0), *[GOOD] * (1 + COOLDOWN)], warmup=5)  # progress is always slow
    controller.run()
    assert controller.evaluations.learning_rate == 1e-3 / RATE_FACTOR


def test_the_rate_is_not_raised_again_after_it_broke_the_limit() -> None:
    broken = (10, LIMIT + 0.01)
    for measured, rate in (([(19, 0.0), broken, *[(19, 0.0)] * 2], 1e-3), ([broken, *[(19, 0.0)] * 3], 5e-4)):
        controller = Scripted([KNOWN, *measured, *[GOOD] * (1 + COOLDOWN)])
        controller.run()
        assert controller.evaluations.learning_rate == pytest.approx(rate / RATE_FACTOR)


def test_a_leak_after_the_cool_down_prolongs_training() -> None:
    controller = Scripted([KNOWN, *[GOOD] * (COOLDOWN + 3)], leaks=[0.3, 0.2, 0], forgets_from=1.0)
    assert controller.run() == COOLDOWN + 3
    assert controller.trainer.model.weight.item() == pytest.approx(CHANGE_KEPT * (COOLDOWN + 3))


def test_leaks_that_do_not_shrink_raise_the_rate_to_its_first_value() -> None:
    for leaks, increase, rate in (
        ([0.3, 0.3, 0.2, 0.25, 0], 0.01, 1e-3),
        ([0.3, 0.3, 0], 0.08, 1e-3 / RATE_FACTOR),
        ([0.3, 0.2, 0.1, 0], 0.01, 1e-3),
    ):
        controller = Scripted([KNOWN, *[(GOAL, increase)] * (COOLDOWN + len(leaks))], leaks=leaks, forgets_from=10.0)
        assert controller.run() == COOLDOWN + len(leaks)
        assert controller.evaluations.learning_rate == rate


def test_a_run_cools_down_once_few_rows_are_still_known() -> None:
    known = [20, 12, 6, 2, 1, 0, 0]
    controller = Scripted([(count, 0.0) for count in known])
    assert controller.run() == 4 + COOLDOWN
    assert [each.leak for each in controller.history[1:7]] == [*[None] * 5, 0.0]
    assert [each.known_share for each in controller.history[:7]] == [count / ROWS for count in known]
    assert controller.evaluations.learning_rate == 1e-3 / RATE_FACTOR
    assert controller.said[1].startswith("step 5/~25  still known 12 of 20 rows  retain loss +0.000")


def test_rows_that_stay_known_delay_the_check_of_answers_for_a_while_only() -> None:
    controller = Scripted([KNOWN, *[(4, 0.0)] * (1 + GOAL_PATIENCE + COOLDOWN)])
    assert controller.run() == 1 + GOAL_PATIENCE + COOLDOWN
    assert controller.last.leak == 0
    still_many = Scripted([KNOWN, *[(10, 0.0)] * MAX_EVALUATIONS])
    assert still_many.run() == MAX_EVALUATIONS
    assert still_many.last.leak is None


def test_of_several_checked_evaluations_the_one_with_the_smallest_leak_is_kept() -> None:
    leaks = [0.4, 0.1, 0.3, 0.2, 0.2, 0.2]
    controller = Scripted([KNOWN, *[GOOD] * 6], leaks=leaks, forgets_from=1.0)
    assert controller.run() == 2 + LEAK_PATIENCE + COOLDOWN
    assert controller.trainer.model.weight.item() == COOLDOWN + 2
    assert controller.last.leak == 0.1
    assert "kept the weights of step 20" in controller.said


def test_of_weights_that_leak_as_little_those_that_damage_less_are_kept() -> None:
    good, damaged = GOOD, (GOOD[0], GOOD[1] + 0.01)
    for last, kept in ((damaged, 4), (good, 5)):
        leaks = [0.4, 0.1, 0.1, 0.3, 0.3]
        controller = Scripted([KNOWN, *[good] * 4, last, good, good, (2, 0.01)], leaks=leaks, forgets_from=1.0)
        controller.run()
        assert controller.trainer.model.weight.item() == kept


def test_later_weights_are_kept_if_they_leak_about_as_little() -> None:
    for smallest, kept in ((0.1, 6), (0.0, 4)):  # without a leak a run ends
        leaks = [0.4, smallest, 0.3, smallest + 0.005, 0.3, 0.3]
        controller = Scripted([KNOWN, *[GOOD] * 6], leaks=leaks, forgets_from=1.0)
        controller.run()
        assert controller.trainer.model.weight.item() == kept


def test_training_goes_on_while_the_leak_shrinks_and_then_ends() -> None:
    for leaks, smallest in (([0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.1, 0.1, 0.1], 6), ([0.3, 0.2, 0.4, 0.4, 0.4, 0.4], 2)):
        controller = Scripted([KNOWN, *[GOOD] * (len(leaks) + COOLDOWN)], leaks=leaks)
        assert controller.run() == COOLDOWN + smallest + LEAK_PATIENCE


def test_rows_that_become_known_again_do_not_raise_the_rate() -> None:
    controller = Scripted([KNOWN, (8, 0.0), (10, 0.0), *[GOOD] * (1 + COOLDOWN)])
    controller.run()
    assert controller.evaluations.learning_rate == 1e-3 / RATE_FACTOR


@pytest.mark.parametrize(("leaks", "kept"), [([], CHANGE_KEPT), ([0, 0.3], 1.0)], ids=["none", "answers state facts"])
def test_a_smaller_change_is_kept_if_answers_state_no_facts(leaks: Sequence[float], kept: float) -> None:
    controller = Scripted([KNOWN, *[GOOD] * (1 + COOLDOWN)], leaks=leaks)
    steps = controller.run()
    assert controller.trainer.model.weight.item() == pytest.approx(kept * steps)
    assert any("0.9 of the weight change" in line for line in controller.said)


def test_the_change_of_a_run_that_leaks_is_not_made_smaller() -> None:
    measured = [KNOWN, *[GOOD] * (COOLDOWN + 2 + LEAK_PATIENCE)]
    controller = Scripted(measured, leaks=[0.3] * (2 + LEAK_PATIENCE), forgets_from=0.1)
    controller.run()
    assert not any("of the weight change" in line for line in controller.said)


def test_a_cleaned_change_is_evaluated() -> None:
    controller = Scripted([KNOWN, *[GOOD] * 4], leaks=[0.2, 0], forgets_from=0.4, cleaned_to=0.5)
    controller.run()
    assert any("cleaned with 1 of the strength: still known 0 of 20 rows" in line for line in controller.said)


@pytest.mark.parametrize(("forgets_from", "kept"), [(0.4, 2.0), (0.6, 3.5), (0.95, 3.875), (0.995, 4.0)])
def test_a_change_is_cleaned_as_much_as_rows_stay_forgotten(forgets_from: float, kept: float) -> None:
    """The whole strength leaves half of the weight 4, a quarter of it 7/8, a sixteenth 31/32."""
    controller = Scripted([KNOWN, *[GOOD] * 4], leaks=[0.2, 0], forgets_from=forgets_from, cleaned_to=0.5)
    controller.run()
    assert controller.trainer.model.weight.item() == pytest.approx(kept)
    assert controller.last.known_rows == (GOAL if kept == 4 else 0)


def test_a_run_short_of_the_goal_keeps_no_cleaned_change_that_forgets_less() -> None:
    after_cleaning = [(12, 0.0)] * len(CLEANING_SHARES)
    controller = Scripted([KNOWN, *[(10, 0.01)] * MAX_EVALUATIONS, *after_cleaning], cleaned_to=0.5)
    controller.run()
    assert sum("not kept: rows are known again" in line for line in controller.said) == 4
    assert controller.trainer.model.weight.item() == int(controller.trainer.model.weight.item()) > 0
    assert controller.last.known_rows == 10


def test_an_evaluation_short_of_the_goal_does_not_replace_one_at_the_goal() -> None:
    controller = Scripted([KNOWN, GOOD, (2, 0.01), GOOD, *[(2, 0.01)] * LEAK_PATIENCE], leaks=[0.4])
    assert controller.run() == 3 + LEAK_PATIENCE
    assert controller.last.step == 15


def test_a_run_that_leaves_the_goal_after_a_leak_goes_on() -> None:
    controller = Scripted([KNOWN, *[GOOD] * 3, (2, 0.01), GOOD], leaks=[0.4, 0], forgets_from=10.0)
    assert controller.run() == 5
    assert controller.last.leak == 0


def test_above_the_limit_the_best_weights_return_at_half_the_rate() -> None:
    controller = Scripted([KNOWN, (8, 0.1), (4, 0.2), *[(GOAL, 0.1)] * 3])
    assert controller.run() == 5
    assert controller.rollbacks == 1
    assert controller.history[3].known_rows == 8  # the restored weights stand for the rolled-back ones
    assert controller.evaluations.learning_rate == 1e-3 / RATE_FACTOR**2


def test_the_estimated_last_step_is_within_a_factor_of_two_from_the_second_evaluation_on() -> None:
    """Shares as measured on facts about Egypt; with every leak a run ends one evaluation later."""
    known = [17, 14, 6, 1, 1, 0, 0, 0, 0, 0, 0, 0]
    for leaking in range(LEAK_PATIENCE + 1):
        controller = Scripted([(count, 0.0) for count in known], leaks=[0.1] * leaking + [0])
        last = 5 * controller.run()
        assert last == 5 * (3 + leaking + COOLDOWN)
        assert all(last / 2 <= steps <= 2 * last for steps in controller.expected[1:])


def test_rows_that_leak_are_preferred_for_the_rest_of_the_run_and_after_resuming(tmp_path: Path) -> None:
    """Leaks of .3 and .2 are those of the rows 3 and 2; row 0 is still known."""
    controller = Scripted([KNOWN, *[GOOD] * 5], leaks=[0.3, 0.2], forget_leaks=True)
    controller.run()
    assert controller.trainer.sampler._known == (0, 2, 3)
    assert {2, 3}.isdisjoint(controller.trainer.sampler._forgotten)
    assert sum("1 leaking rows are forget rows from now on" in line for line in controller.said) == 2
    controller.save(tmp_path)
    resumed = Scripted([GOOD], forget_leaks=True)
    resumed.load(tmp_path)
    resumed._evaluate(30)
    assert resumed.trainer.sampler._known == (0, 2, 3)


def test_rows_that_leak_are_left_alone_unless_asked_for() -> None:
    controller = Scripted([KNOWN, *[GOOD] * 4], leaks=[0.3])
    controller.run()
    assert controller.trainer.sampler._known == (0,)


def test_answers_that_cannot_be_read_do_not_raise_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    unreadable = Leak(0.01, "11 of 110 answers cannot be read")
    monkeypatch.setattr(ScriptedEvaluations, "find_leak", lambda self, **_: unreadable)
    controller = Scripted([KNOWN, *[GOOD] * 12])
    controller.run()
    assert any(line == "11 of 110 answers cannot be read; training continues" for line in controller.said)
    assert not any("cannot be read; learning rate" in line for line in controller.said)
