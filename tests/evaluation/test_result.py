"""Result files: written results are read back; a wrong file is rejected with its name, the place and the allowed values."""

from __future__ import annotations

import dataclasses
import json
import re

import jsonschema
import pytest

from atwu.evaluation.result import EVAL_SCHEMA, EvalResult, MetricValue, read_result
from tests.evaluation.conftest import result_of, row_values


@pytest.fixture
def written(tmp_path):
    rows = {
        "forget": row_values({"J_W": [0.0, 50.0, None], "extraction_strength": [0.1, 0.2, 0.3]}, unscored={"J_W": 1}),
        "retain": row_values({"J_AVG": [50.0, 100.0], "extraction_strength": [0.8, 0.9]}),
    }
    found = result_of(rows, original=result_of(rows, name="original"))
    found.write(tmp_path / "eval.json")
    return found, tmp_path / "eval.json"


def test_written_results_satisfy_the_schema_and_are_read_back(written):
    found, path = written
    plain = json.loads(path.read_text())
    jsonschema.validate(plain, EVAL_SCHEMA)
    assert next(iter(plain)) == "schema"
    assert read_result(path) == found
    assert {"schema", "sets", "overall", "rows", "warnings"} <= set(EVAL_SCHEMA["required"])


def changed(plain, place, value):
    *before, last = place.split(".")
    for key in before:
        plain = plain[key]
    if value is KeyError:
        del plain[last]
    else:
        plain[last] = value


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("sets.forget.J_W.n", -1, r"sets\.forget\.J_W\.n\b.*\b0\b.*'-1'"),
        ("sets.forget.J_W.direction", "sideways", r"J_W\.direction.*'up', 'down'.*'none'.*'sideways'"),
        ("rows.forget.ids", 3, r"rows\.forget\.ids.*'3'"),
        ("overall.FQ.value", "0.5", r"overall\.FQ\.value.*number.*'0\.5'"),
        ("overall.FQ.mean", 0.5, r"overall\.FQ\.mean"),
        ("fingerprint", "xyz", "fingerprint.*'xyz'"),
        ("rows", KeyError, "rows.*--output"),
        ("schema", "atwu.eval/1", r"'atwu\.eval/1'.*'atwu\.eval/3'"),
        ("schema", KeyError, "schema"),
    ],
)
def test_a_wrong_file_is_rejected_with_its_location(written, place, value, message):
    path = written[1]
    plain = json.loads(path.read_text())
    changed(plain, place, value)
    path.write_text(json.dumps(plain))
    with pytest.raises(ValueError) as raised:
        read_result(path)
    assert str(raised.value).startswith(str(path))
    assert re.search(message, str(raised.value).removeprefix(str(path)))


def test_files_that_are_not_results_are_rejected(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no\.json .*--output"):
        read_result(tmp_path / "no.json")
    for content, message in ((b"", "JSON"), (b"[1, 2]", "JSON object"), (b"\xff", "UTF-8"), (b'{"schema": ', "JSON")):
        (tmp_path / "x.json").write_bytes(content)
        with pytest.raises(ValueError, match=rf"x\.json.*{message}"):
            read_result(tmp_path / "x.json")


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


def test_text_omits_missing_values(result):
    text = result.summary()
    assert re.search(r"forget +extraction_strength ↓ +4 +0\.123 +\[0\.050, 0\.200\]", text)
    assert "J_P" not in text
    assert " 0.000 " in text.split("overall")[1]
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
