"""The text of an export's verdict, from handmade results."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from atwu.request.verdict_metrics import DECISIVE_METRICS, GENERAL, HOLDOUT_SET, OTHER_PROMPTS

from atwu.evaluation.columns import FORGET, RETAIN
from atwu.evaluation.result import EvalResult
from atwu.exporting.export_verdict import (
    BACK,
    EXPORT_DAMAGED,
    SAME,
    WITHIN,
    judge_export,
    run_limits,
)
from atwu.request.verdict import RequestVerdict
from tests.evaluation.conftest import result_of, row_values

LIMITS = dict.fromkeys(DECISIVE_METRICS, 0.2)


def result(forget: float = 0.05, other_prompts: float = 0.05, kept: float = 0.9, odd: float = 0.0) -> EvalResult:
    """Ten rows a set, all alike but for the first, on which forget rows are better known by `odd`."""
    values = {
        FORGET: dict.fromkeys(DECISIVE_METRICS, (forget + odd, *(forget,) * 9)),
        OTHER_PROMPTS: dict.fromkeys(DECISIVE_METRICS, (other_prompts,) * 10),
        HOLDOUT_SET: dict.fromkeys(DECISIVE_METRICS, (0.1,) * 10),
        RETAIN: {"probability": (kept,) * 10},
        GENERAL: {"probability": (0.9,) * 10},
    }
    return result_of({split: row_values(metrics) for split, metrics in values.items()}, overall={})


@pytest.mark.parametrize(
    ("after", "word", "why"),
    [
        (result(), SAME, "before"),
        (result(odd=0.3), SAME, r"(?s)0\.05\s+to\s+0\.08\b.*\b0\.2\b"),
        (result(forget=0.1), WITHIN, r"0\.05\s+to\s+0\.1\b"),
        (result(forget=0.1), WITHIN, r"\b2\s+more\b"),
        (result(other_prompts=0.6), BACK, r"0\.05\s+to\s+0\.6\b"),
        (result(odd=2.0), BACK, r"0\.05\s+to\s+0\.25\b"),
        (result(kept=0.7), EXPORT_DAMAGED, r"(?s)\b0\.251\s+nats\b.*\b0\.15\b"),
        (result(kept=0.7, forget=0.6), BACK, r"\b0\.251\s+nats\b"),
    ],
)
def test_words(after: EvalResult, word: str, why: str) -> None:
    verdict = judge_export(result(), after, limits=LIMITS, max_retain_increase=0.15, answers=())
    assert verdict.outcome == word, verdict.reason
    assert re.search(why, verdict.reason), verdict.reason
    assert bool(verdict.next_steps) == (word in (BACK, EXPORT_DAMAGED))
    assert all(len(line) <= 80 for line in verdict.text().splitlines())


def test_knowledge_that_the_run_had_left_does_not_count_against_the_export() -> None:
    verdict = judge_export(result(forget=0.5), result(forget=0.5), limits=LIMITS, max_retain_increase=0.15, answers=())
    assert verdict.outcome == SAME
    assert "(key-token probability, key-token accuracy, key-token recall)" in verdict.reason
    more = judge_export(result(forget=0.5), result(forget=0.8), limits=LIMITS, max_retain_increase=0.15, answers=())
    assert more.outcome == BACK


def test_limits_come_from_the_verdict_of_the_run_if_it_has_one(tmp_path: Path) -> None:
    assert run_limits(tmp_path, result()) == pytest.approx(dict.fromkeys(DECISIVE_METRICS, 0.1))
    RequestVerdict("forgotten", "", (), (), (), {"key_token_recall": 0.3}).write(tmp_path)
    assert run_limits(tmp_path, result())["key_token_recall"] == 0.3
