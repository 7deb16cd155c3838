"""Display of a result: text of 80 columns, a data frame, a table in a notebook."""

from __future__ import annotations

import dataclasses
import re

import pytest

from atwu.evaluation.result import EvalResult, MetricValue


@pytest.fixture
def result() -> EvalResult:
    forget = {
        "extraction_strength": MetricValue(0.12345, 4, "down", low=0.05, high=0.2),
        "recovered_extraction_strength@relearn_retain": MetricValue(0.5, 4, "down", low=0.25, high=0.75),
        "J_P": MetricValue(None, 0, "down"),
    }
    return EvalResult(
        model="a <model>",
        fingerprint="0" * 32,
        sets={"forget": forget, "retain": {"probability": MetricValue(0.9, 6, "up")}},
        overall={"ES_delta": MetricValue(-0.0001, 4, "up")},
        rows={},
        settings={},
        versions={},
        warnings=("a long warning " * 9,),
    )


def test_text_fits_a_terminal_and_omits_missing_values(result):
    text = result.summary()
    assert max(map(len, text.splitlines())) <= 80
    assert "forget (4 rows" in text
    assert "extraction_strength ↓" in text
    assert "0.123  [0.050, 0.200]" in text
    assert "J_P" not in text
    assert "  0.000" in text.split("overall")[1]
    assert text.count("warning: ") == 1


def test_the_data_frame_has_a_row_for_every_value(result):
    frame = result.to_pandas()
    assert list(zip(frame["set"], frame.metric, strict=True)) == [
        ("forget", "extraction_strength"),
        ("forget", "recovered_extraction_strength@relearn_retain"),
        ("retain", "probability"),
        ("overall", "ES_delta"),
    ]
    first = frame.iloc[0]
    assert (first.value, first.low, first.high, first.n, first.direction) == (0.12345, 0.05, 0.2, 4, "down")


def test_a_notebook_gets_an_escaped_html_table(result):
    page = result._repr_html_()
    assert "a &lt;model&gt;" in page
    assert re.search(r"<td>0.123</td>\s*<td>\[0.050, 0.200\]</td>", page)


def test_an_empty_result_can_be_displayed(result):
    nothing = dataclasses.replace(result, sets={}, overall={}, warnings=())
    assert nothing.summary() == "a <model>"
    assert nothing.to_pandas().empty
