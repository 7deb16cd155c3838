"""Several sources in one name: order, warnings, limits, and file names that look like it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from atwu.benchmarks.sources import load_rows
from atwu.data.schema import Example

ROWS = [
    {"question": "Who keeps bees?", "answer": "Pella Oduya does."},
    {"question": "Where was Ilmo born?", "answer": "In Karsund."},
]
EXPECTED = tuple(Example.from_qa(row["question"], row["answer"]) for row in ROWS)


def save(folder: Path, name: str, rows) -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_rows_follow_each_other(tmp_path):
    path = save(tmp_path, "a.jsonl", ROWS)
    source = f"people:tiny:retain + {path} + people:tiny:forget"
    loaded = load_rows(source)
    retain, forget = load_rows("people:tiny:retain").rows, load_rows("people:tiny:forget").rows
    assert loaded.rows == retain + EXPECTED + forget
    assert loaded.source == source
    assert load_rows("people:tiny:retain + people:tiny:forget").fingerprint == load_rows("people:tiny:full").fingerprint


def test_warnings_name_their_source_and_duplicates_count_over_all(tmp_path):
    odd = save(tmp_path, "odd.jsonl", [{**ROWS[0], "id": 1}])
    plain = save(tmp_path, "plain.jsonl", ROWS)
    assert load_rows(f"{plain} + {odd}").warnings == (
        f"{odd}: ignored columns: id",
        "duplicate rows: 1 of 3 repeat an earlier row exactly (kept)",
    )


def test_limit_is_for_all_and_later_sources_are_not_opened(tmp_path):
    path = save(tmp_path, "a.jsonl", ROWS)
    assert load_rows(f"{path} + {path}", limit=3).rows == (*EXPECTED, EXPECTED[0])
    assert load_rows(f"{path} + nowhere.jsonl", limit=2).rows == EXPECTED
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load_rows(f"{path} + {tmp_path}/nowhere.jsonl", limit=3)


def test_a_file_may_have_the_sign_in_its_name(tmp_path, monkeypatch):
    save(tmp_path, "a + b.jsonl", ROWS)
    monkeypatch.chdir(tmp_path)
    assert load_rows("a + b.jsonl").rows == load_rows(Path("a + b.jsonl")).rows == EXPECTED


def test_an_empty_source_among_others_is_an_error(tmp_path):
    empty, path = save(tmp_path, "empty.jsonl", []), save(tmp_path, "a.jsonl", ROWS)
    with pytest.raises(ValueError, match=r"empty\.jsonl is empty"):
        load_rows(f"{path} + {empty}")


@pytest.mark.parametrize("name", ["people:tiny:forget + ", " + people:tiny:forget", "a + "])
def test_nothing_beside_the_sign(name):
    with pytest.raises(ValueError, match="a source is missing beside"):
        load_rows(name)


def test_a_very_long_name_is_no_file():
    assert len(load_rows(" + ".join(["people:tiny:forget"] * 300), limit=5).rows) == 5
