"""Conditions that give a warning in the result."""

from __future__ import annotations

import re

import pytest

from atwu.evaluation.result import EvalResult, MetricValue
from atwu.evaluation.result_checks import degraded, warnings


def result(**sets):
    found = {
        split: {name: MetricValue(value, 40, "up", clusters=40) for name, value in metrics.items()}
        for split, metrics in sets.items()
    }
    return EvalResult("model", "0" * 32, found, {}, {}, {}, {})


@pytest.mark.parametrize(("rate", "marked"), [(44.9, True), (45.0, False), (60.0, False), (None, False)])
def test_a_win_rate_below_45_gives_a_warning(rate, marked):
    found = list(degraded(result(instructions={"win_rate": rate}), None))
    assert [(split, metric) for split, metric, _ in found] == [("instructions", "win_rate")] * marked
    if marked:
        assert re.search(r"\b44\.9 .*\b45\b", found[0][2])


@pytest.mark.parametrize(("now", "marked"), [(474.0, True), (475.0, False), (510.0, False), (0.0, True)])
def test_repetitiveness_below_95_percent_of_the_original_gives_a_warning(now, marked):
    original = result(instructions={"repetitiveness": 500.0})
    found = list(warnings(result(instructions={"repetitiveness": now}), original))
    assert len(found) == marked
    assert list(warnings(result(instructions={"repetitiveness": now}), None)) == []
    if marked:
        assert "500" in found[0]


@pytest.mark.parametrize(("now", "marked"), [(24.0, True), (49.0, True), (50.0, False), (128.0, False)])
def test_answers_shorter_than_half_of_the_original_give_a_warning(now, marked):
    original = result(instructions={"open_words": 100.0})
    found = list(warnings(result(instructions={"open_words": now}), original))
    assert [re.search(rf"\b{now:.0f} words.*\b100\b", sentence) is not None for sentence in found] == [True] * marked


def test_tasks_two_points_below_the_original_give_a_warning():
    original = result(tasks={"mmlu": 46.0, "gsm8k": 30.0, "ifeval": 10.0})
    found = list(degraded(result(tasks={"mmlu": 43.9, "gsm8k": 28.0, "arc": 1.0}), original))
    assert [(split, metric) for split, metric, _ in found] == [("tasks", "mmlu")]
    assert "2.1 points" in found[0][2]


@pytest.mark.parametrize(
    ("clusters", "said"), [(1, "one subject"), (2, r"\b2 subjects"), (19, r"\b19 subjects"), (20, None)]
)
def test_few_subjects(clusters, said):
    sets = {"forget": {"J_P": MetricValue(1.0, 40, "down", clusters=clusters)}}
    found = list(warnings(EvalResult("model", "0" * 32, sets, {}, {}, {}, {}), None))
    assert len(found) == (said is not None)
    assert said is None or re.search(f"^forget: .*{said}", found[0])


@pytest.mark.parametrize(("shown", "marked"), [(39.9, True), (40.0, False)])
def test_a_degraded_original_model_gives_a_warning(shown, marked):
    original = result(forget={"J_P": 80.0, "J_ICR": shown})
    found = list(warnings(result(forget={"J_P": 0.0, "J_ICR": 0.0}), original))
    assert [re.search(r"\b39\.9 %", text) is not None for text in found] == [True] * marked


def test_unscored_answers():
    sets = {"world_facts": {"J_AVG": MetricValue(1.0, 40, "up", clusters=40, unscored=7)}}
    found = list(warnings(EvalResult("model", "0" * 32, sets, {}, {}, {}, {}), None))
    assert len(found) == 1
    assert re.search(r"^world_facts: 7 answers.*J_AVG", found[0])
