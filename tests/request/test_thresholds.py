"""Thresholds: entries of a file, and their comparison with measurements."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from atwu.evaluation.result import EvalResult, MetricValue, RowValues
from atwu.request.thresholds import (
    Threshold,
    check,
    metric_of,
    metrics_on,
    parse_thresholds,
    read_thresholds,
    shipped_text,
)
from atwu.request.verdict_metrics import HOLDOUT_SET, verdict_metrics


def result(rows: dict[str, dict[str, tuple[float, ...]]], *, one_subject: bool = False, **overall: float) -> EvalResult:
    """A result whose numbers are the means of these values of rows."""
    sets = {
        split: {name: MetricValue(sum(values) / len(values), len(values), "down") for name, values in metrics.items()}
        for split, metrics in rows.items()
    }
    known = {}
    for split, metrics in rows.items():
        ids = tuple(f"{split}{place}" for place in range(len(next(iter(metrics.values())))))
        known[split] = RowValues(ids, ("one",) * len(ids) if one_subject else ids, metrics)
    numbers = {name: MetricValue(value, 4, "down", low=value - 1, high=value + 1) for name, value in overall.items()}
    return EvalResult("model", "0" * 32, sets, numbers, known, {}, {})


def test_the_shipped_file_lists_its_metrics() -> None:
    found = read_thresholds(None)
    assert found.sha256 == hashlib.sha256(shipped_text().encode()).hexdigest()
    assert {metric_of(limit) for limit in found.thresholds} >= {"key_tokens", "sampling", "quantization", "relearning"}
    assert set(found.attacks) == {"sampling", "quantization", "relearning"}
    assert {limit.split for limit in found.thresholds} >= {"forget", "other_prompts", "general", "texts"}


def test_settings_of_attacks_are_part_of_the_thresholds() -> None:
    text = "thresholds: {forget.leak_best_of_3: at most 10}\nattacks: [relearning]\nsettings: {samples: 3, relearn_steps: 5}"
    found = parse_thresholds(text, name="mine.yaml")
    assert found.thresholds == (Threshold("forget", "leak_best_of_3", "at most", 10.0),)
    assert found.config.relearn_steps == 5
    assert found.attacks == ("relearning",)
    assert "leak_best_of_3" in metrics_on("forget", found.config)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- 1", "mine.yaml.*'thresholds:'"),
        ("thresholds: {}", "mine.yaml.*'thresholds:'"),
        ("thresholds: {forget.J_P: at most 1}\nlimits: {}", "'limits'.*about, thresholds, attacks"),
        ("thresholds: {forgot.J_P: at most 1}", r"forget\..*retain\..*general\."),
        ("thresholds: {forget.key_token_sad: at most 1}", r"forget\.key_token_recall"),
        ("thresholds: {forget.leak_best_of_9: at most 1}", "leak_best_of_8"),
        ("thresholds: {overall.forget_quality: at most 1}", "'forget_quality'.*overall"),
        ("thresholds: {forget.J_P: 10}", "at most X, at least X.* 10"),
        ("thresholds: {forget.J_P: at most ten}", "at most X"),
        ("thresholds: {forget.J_P: at most nan}", "at most X"),
        ("thresholds: {forget.J_P: at most 10 %}", "at most X"),
        ("thresholds: {forget.J_P: at most holdout}", "at most holdout.* key_token_probability"),
        ("thresholds: {overall.UQ: falls at most 1}", "overall.*at most X.*at least X"),
        ("thresholds: {forget.J_P: at most 1}\nattacks: relearning", "attacks.*list"),
        ("thresholds: {forget.J_P: at most 1}\nattacks: [membership]", "'membership'"),
        ("thresholds: {forget.J_P: at most 1}\nsettings: {system: Hi}", "settings.*system"),
        ("thresholds: {forget.J_P: at most 1}\nsettings: {sample: 2}", "settings.*'samples'"),
    ],
)
def test_unknown_entries_are_rejected_with_the_allowed_ones(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_thresholds(text, name="mine.yaml")


@pytest.mark.parametrize("one_subject", [False, True])
@pytest.mark.parametrize(
    ("bound", "limit", "passed", "sure"),
    [
        ("at most", 0.05, False, False),
        ("at most", 0.1, True, False),
        ("at most", 0.6, True, True),
        ("at least", 0.05, True, False),
    ],
)
def test_a_threshold_is_met_by_the_value_and_conclusive_by_the_interval_over_rows(
    bound: Any, limit: float, passed: bool, sure: bool, one_subject: bool
) -> None:
    """Three rows of 0 and one of 0.4: mean 0.1; drawn anew it is between 0 and 0.3 (three draws of the one) at least."""
    after = result({"forget": {"key_token_recall": (0.0, 0.0, 0.0, 0.4)}}, one_subject=one_subject)
    found = check(Threshold("forget", "key_token_recall", bound, limit), result({}), after)
    assert (found.value, found.passed, found.conclusive, found.rows) == (pytest.approx(0.1), passed, sure, 4)
    assert found.low == 0.0
    assert found.high is not None
    assert found.high > 0.1


@pytest.mark.parametrize("values", [(0.0,) * 12, (0.0,) * 11 + (0.9,), (0.2,) * 12, (0.05,), (0.0, 0.19)])
def test_a_verdict_marks_what_evidence_calls_not_significant(values: tuple[float, ...]) -> None:
    before, after = (
        result({"forget": {"key_token_recall": rows}, HOLDOUT_SET: {"key_token_recall": (0.1, 0.1)}})
        for rows in ((1.0,) * len(values), values)
    )
    limit = Threshold("forget", "key_token_recall", "at most", None)
    checked, shown = check(limit, before, after), verdict_metrics(before, after, {"key_token_recall": 0.1})[0]
    assert (shown.met, shown.limit, shown.low) == (checked.passed, checked.limit, checked.low)
    assert shown.within_chance == (checked.passed and not checked.conclusive)


def test_the_worst_form_has_the_interval_of_its_recall_with_one_subject_too() -> None:
    forms = {"form_blank": (0.0, 0.0, 0.0, 0.4), "form_lower_case": (0.0,) * 4}
    after = result({"forget": forms}, one_subject=True)
    after.overall["worst_form"] = MetricValue(0.1, 4, "down")
    found = check(Threshold("overall", "worst_form", "at most", 0.1), result({}), after)
    blank = check(Threshold("forget", "form_blank", "at most", 0.1), result({}), after)
    assert (found.low, found.high, found.conclusive) == (blank.low, blank.high, False)
    assert found.high is not None


def test_a_fall_is_paired_and_may_be_a_percentage() -> None:
    before = result({"general": {"probability": (0.5, 0.4, 0.3)}})
    after = result({"general": {"probability": (0.41, 0.3, 0.19)}})
    found = check(Threshold("general", "probability", "falls at most", 0.15), before, after)
    assert found.value == pytest.approx(0.1)
    assert 0.05 < found.low < found.high < 0.15  # paired: every row lost about the same
    assert (found.passed, found.conclusive, found.before, found.after) == (
        True,
        True,
        pytest.approx(0.4),
        pytest.approx(0.3),
    )
    share = check(Threshold("general", "probability", "falls at most", 20.0, share=True), before, after)
    assert share.value == pytest.approx(25.0)
    assert share.passed is False
    assert check(Threshold("general", "probability", "rises at most", 0.0), before, after).value == pytest.approx(-0.1)


def test_the_holdout_limit_is_that_of_the_original_model() -> None:
    values = {"key_token_recall": (0.0, 0.2, 0.4, 0.6)}
    before = result({HOLDOUT_SET: values, "forget": {"key_token_recall": (1.0,) * 4}})
    found = check(Threshold("forget", "key_token_recall", "at most", None), before, result({"forget": values}))
    assert found.limit is not None
    assert 0.3 < found.limit <= 0.6
    assert found.passed


GONE, SOME, ALL = ({"forget": {"key_token_recall": values}} for values in ((0.0, 0.0), (0.5, 0.0), (1.0, 1.0)))
NO_KEY_TOKENS = {HOLDOUT_SET: {"probability": (0.1,)}}


@pytest.mark.parametrize(
    ("metric", "bound", "limit", "before", "after", "reason"),
    [
        ("forget.J_P", "at most", 10.0, {}, GONE, "no value was measured"),
        ("overall.UQ", "at least", 0.1, {}, GONE, "no value was measured"),
        ("forget.key_token_recall", "at most", None, {}, GONE, "no holdout row could be measured"),
        ("forget.key_token_recall", "at most", None, NO_KEY_TOKENS, ALL, "no holdout row could be measured"),
        ("forget.key_token_recall", "falls at most", 0.1, {}, GONE, "the original model was not measured"),
        (
            "forget.key_token_recall",
            "rises at most",
            10.0,
            GONE,
            SOME,
            "it was 0 before, so that a percentage is undefined",
        ),
    ],
)
def test_a_missing_measurement_has_a_reason_and_does_not_pass(
    metric: str, bound: Any, limit: float | None, before: Any, after: Any, reason: str
) -> None:
    threshold = Threshold(*metric.split("."), bound, limit, share="percentage" in reason)
    found = check(threshold, result(before), result(after))
    assert (found.passed, found.conclusive, found.missing_reason) == (None, False, reason)


def test_values_of_two_models_keep_their_intervals() -> None:
    found = check(
        Threshold("overall", "UQ", "at least", 50.0), result({}), result({"forget": {"J_P": (1.0,)}}, UQ=50.5)
    )
    assert (found.value, found.low, found.high, found.passed, found.conclusive) == (50.5, 49.5, 51.5, True, False)
