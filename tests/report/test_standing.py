"""Models that are destroyed or unchanged are marked as such and not ranked."""

from __future__ import annotations

import dataclasses

import pytest

from atwu._cache import short_hash
from atwu.evaluation.aggregate import mean_over_seeds
from atwu.evaluation.result import EvalResult, MetricValue
from atwu.report.figures import FIGURES
from atwu.report.metric_table import (
    DESTROYED,
    LEADING_METRICS,
    REFERENCE_COPY,
    UNTOUCHED,
    standing,
    standings,
    table_of,
)
from atwu.report.report_page import ranking, summary
from atwu.report.report_records import Records, RunRecord, headline_metrics, leading_metric, report_table
from atwu.report.table_writers import WRITERS


def value(number: float, direction: str) -> MetricValue:
    return MetricValue(number, 40, direction)


def result(name: str, known: float, kept: float, **more: float) -> EvalResult:
    """A model that knows so much of forget rows and so much of retain rows."""
    sets = {
        split: {
            "extraction_strength": value(number, direction),
            "probability": value(more.get(f"{split}_probability", number), direction),
        }
        for split, number, direction in (("forget", known, "down"), ("retain", kept, "up"))
    }
    overall = {"ES_delta": value(kept - known, "up")}
    return EvalResult(name, short_hash(name), sets, overall, {}, {}, {})


ORIGINAL = result("original", 0.9, 0.8)
RESULTS = {
    "original": ORIGINAL,
    "ga": result("ga", 0.0, 0.05),
    "rmu": result("rmu", 0.9, 0.8),
    "npo": result("npo", 0.3, 0.7),
    "atwu": result("atwu", 0.1, 0.6),
}


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (result("", 0.1, 0.6), ""),
        (result("", 0.0, 0.39), DESTROYED),
        (result("", 0.0, 0.39, retain_probability=0.41), ""),  # one measure of retained knowledge is left
        (result("", 0.9, 0.39), DESTROYED),  # before: untouched
        (result("", 0.88, 0.8), UNTOUCHED),
        (result("", 0.88, 0.8, forget_probability=0.5), ""),
        (dataclasses.replace(ORIGINAL, sets={}), ""),
    ],
)
def test_the_status_word_of_a_model(found: EvalResult, word: str) -> None:
    assert standing(found, ORIGINAL) == word
    assert standing(found, None) == standing(found, result("original", 0.0, 0.0)) == ""


def test_a_model_with_the_weights_of_a_reference_is_not_ranked() -> None:
    """As a scorer's run on a frozen model leaves it, whichever model that was, over all seeds."""
    retain_only = result("retain-only", 0.1, 0.8)
    frozen = [dataclasses.replace(retain_only, model=f"frozen-s{seed}") for seed in (1, 2)]
    both = {
        "original": ORIGINAL,
        "retain-only": retain_only,
        "frozen": mean_over_seeds(frozen, references=[], name="frozen"),
    }
    assert standings(both) == {"frozen": REFERENCE_COPY}


def test_marks_are_given_only_to_ranked_models() -> None:
    marks = table_of(RESULTS).frame.set_index(["label", "set", "metric"])["mark"]
    assert marks["atwu", "forget", "extraction_strength"] == "best"
    assert marks["npo", "retain", "extraction_strength"] == "best"
    assert set(marks[["ga", "rmu", "original"]]) == {""}
    table = table_of(RESULTS)
    assert table.out == {"ga": DESTROYED, "rmu": UNTOUCHED}
    assert (table.shown("ga"), table.shown("npo")) == ("ga (destroyed)", "npo")
    said = " ".join(table.caption({"best": "bold: best"}))
    assert "Not ranked, because destroyed (less than half" in said
    assert said.endswith("by every metric of it): rmu")


@pytest.fixture
def records() -> Records:
    runs = [RunRecord(name, 0, None, found) for name, found in RESULTS.items() if name != "original"]
    return Records("four models", {"original": ORIGINAL}, tuple(runs))


@pytest.mark.parametrize("form", ["md", "latex"])
def test_exported_tables_name_excluded_models(records: Records, form: str) -> None:
    assert leading_metric(records) == ("overall", "ES_delta") == headline_metrics(records)[0]
    assert set(headline_metrics(records)) < set(LEADING_METRICS)
    text = WRITERS[form](records)
    assert "ga (destroyed)" in text
    assert "rmu (untouched)" in text


def test_only_usable_models_are_ranked(records: Records) -> None:
    text = " ".join(summary(records))
    assert "Methods are ranked by ES Δ." in text
    assert "Not ranked, because destroyed (less than half" in text
    assert "Not ranked, because untouched (the forget set" in text
    assert ranking(records, ("overall", "ES_delta")).place.dropna().to_dict() == {"atwu": 1, "npo": 2}


def test_the_figure_is_scaled_to_usable_models(records: Records) -> None:
    drawn = FIGURES["trade_off"](records)
    assert "is left: ga at (0.000, 0.050)." in drawn.caption
    names = {text.get_text() for text in drawn.figure.axes[0].texts}
    assert {"npo", "atwu", "rmu", "original"} <= names
    assert "ga" not in names
    broken = dataclasses.replace(records, runs=records.runs[:1])
    assert "Not drawn" not in FIGURES["trade_off"](broken).caption


def test_without_headline_metrics_all_metrics_are_shown() -> None:
    sets = {"forget": {"rouge_l_recall": value(0.25, "down")}, "mine": {"key_token_recall": value(0.5, "up")}}
    found = EvalResult("atwu", "", sets, {}, {}, {}, {})
    records = Records("one model", {}, (RunRecord("atwu", None, None, found),))
    assert headline_metrics(records) == [("forget", "rouge_l_recall"), ("mine", "key_token_recall")]
    assert report_table(records).keys == headline_metrics(records)
    assert "| atwu | 0.250 | 0.500 |" in WRITERS["md"](records)
    assert summary(records)[0] == "Methods are ranked by forget ROUGE-L."
