"""Conditions that give a warning in the result."""

from __future__ import annotations

import re

import pytest

from atwu.evaluation.result import EvalResult, MetricValue
from atwu.evaluation.result_checks import find_degraded, warnings


def result(**sets):
    found = {
        split: {name: MetricValue(value, 40, "up", clusters=40) for name, value in metrics.items()}
        for split, metrics in sets.items()
    }
    return EvalResult("model", "0" * 32, found, {}, {}, {}, {})


@pytest.mark.parametrize(
    ("metric", "now", "before", "said"),
    [
        ("win_rate", 44.9, None, r"\b44\.9 .*\b45\b"),
        *(("win_rate", now, None, None) for now in (45.0, 60.0, None)),
        *(("repetitiveness", now, 500.0, r"\b500\b") for now in (474.0, 0.0)),
        *(("repetitiveness", now, before, None) for now, before in ((475.0, 500.0), (510.0, 500.0), (474.0, None))),
        ("open_words", 24.0, 100.0, r"\b24 words.*\b100\b"),
        ("open_words", 49.0, 100.0, r"\b49 words.*\b100\b"),
        *(("open_words", now, 100.0, None) for now in (50.0, 128.0)),
    ],
)
def test_degraded_generation_gives_a_warning(metric, now, before, said):
    original = None if before is None else result(instructions={metric: before})
    found = list(find_degraded(result(instructions={metric: now}), original))
    assert [(split, name) for split, name, _ in found] == [("instructions", metric)] * (said is not None)
    assert said is None or re.search(said, found[0][2])


def test_tasks_two_points_below_the_original_give_a_warning():
    original = result(tasks={"mmlu": 46.0, "gsm8k": 30.0, "ifeval": 10.0})
    found = list(warnings(result(tasks={"mmlu": 43.9, "gsm8k": 28.0, "arc": 1.0}), original))
    assert len(found) == 1
    assert re.search("mmlu.*2.1 points", found[0])


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
