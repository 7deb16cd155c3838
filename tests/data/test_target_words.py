"""Word labels into spans: positions that do not fit their word, repeated words, overlaps, and malformed marks."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atwu.benchmarks.sources import load_rows
from atwu.data.row_parsing import parse_row
from atwu.data.target_words import target_word_spans

WHERE = "labels.jsonl, line 3"
ANSWER = "Orla Venn left Kelbury; Kelbury missed Orla."


def mark(word, start, end=None):
    return {"word": word, "start": start, "end": start + len(word) if end is None else end}


def spans(*marks, answer=ANSWER):
    counts: Counter[str] = Counter()
    return target_word_spans(marks, answer, where=WHERE, counts=counts), dict(+counts)


def words(found, answer=ANSWER):
    return [answer[start:end] for start, end in found]


def test_marks_that_fit_are_taken_as_they_are():
    assert spans(mark("Kelbury", 15), mark("Venn", 5)) == (((5, 9), (15, 22)), {})
    assert spans() == ((), {})


@pytest.mark.parametrize(
    "marks",
    [
        [mark("Kelbury", 15), mark("Kelbury", 15)],  # the published flaw: both at the first place
        [mark("Kelbury", 15), mark("Kelbury", 14)],
        [mark("Kelbury", 16), mark("Kelbury", 15)],  # a mark that fits keeps its place, whatever comes before it
        [mark("Kelbury", 24), mark("Kelbury", 30)],  # nothing free on the right: from the beginning on
    ],
)
def test_a_mark_without_its_word_takes_the_next_free_place(marks):
    assert spans(*marks) == (((15, 22), (24, 31)), {"moved": 1})


def test_the_next_place_is_on_the_right_first():
    assert spans(mark("Orla", 6)) == (((39, 43),), {"moved": 1})


def test_whole_words_come_before_parts_of_words():
    answer = "A party for art."
    assert spans(mark("art", 0), answer=answer)[0] == ((12, 15),)
    assert words(spans(mark("part", 0), answer=answer)[0], answer) == ["part"]


def test_more_marks_than_places_repeat_one():
    assert spans(mark("Venn", 5), mark("Venn", 5), mark("Venn", 0)) == (((5, 9),), {"merged": 2})


def test_overlaps_are_merged_and_neighbours_are_not():
    assert spans(mark("Orla Venn", 0), mark("Venn left", 5)) == (((0, 14),), {"merged": 1})
    assert spans(mark("Orla", 0), mark(" Venn", 4)) == (((0, 4), (4, 9)), {})


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        (mark("Tavi", 0), r"'Orla'.*\[0, 4\].*'Tavi'"),
        (mark("orla", 0), "'orla'"),
        (mark("Orla", 0, 99), r"\[0, 99\].*'Orla'.*\b44 "),
        (mark("Orla", -1, 4), "0 <= start"),
        (mark("Orla", 4, 4), "0 <= start"),
        ({"word": "Orla", "start": 0.0, "end": 4}, r"\b0\.0"),
        ({"word": "Orla", "start": "0", "end": 4}, "'start': '0'"),
        ({"word": "Orla", "start": False, "end": 4}, "False"),
        ({"word": " ", "start": 0, "end": 4}, "'word': ' '"),
        ({"word": "Orla", "start": 0}, "'start': 0}"),
        ([0, 4], r"\[0, 4\]"),
    ],
)
def test_malformed_marks(bad, match):
    with pytest.raises(ValueError, match=match) as caught:
        spans(mark("Venn", 5), bad)
    assert str(caught.value).startswith(f"{WHERE}, column 'target_words'")


@given(st.lists(st.sampled_from(["ab", "b", "ab b", "cab"]), min_size=1, max_size=8), st.data())
def test_ranges_are_sorted_apart_and_hold_every_word(chosen, data):
    answer = "ab cab b ab b."
    marks = [mark(word, data.draw(st.integers(0, len(answer) - len(word)))) for word in chosen]
    found, counts = spans(*marks, answer=answer)
    assert all(first[1] <= second[0] for first, second in pairwise(found))
    assert all(0 <= start < end <= len(answer) for start, end in found)
    for word in chosen:
        assert any(word in answer[start:end] for start, end in found)
    assert len(found) == len(chosen) - counts.get("merged", 0)


def row(**columns):
    return {"question": "Who left?", "answer": ANSWER, **columns}


def test_column_as_list_and_as_json_text():
    marks = [mark("Kelbury", 15)]
    for value in (marks, json.dumps(marks)):
        assert parse_row(row(target_words=value), where=WHERE).forget_spans == ((15, 22),)
    assert parse_row(row(target_words="[]"), where=WHERE).forget_spans == ()
    assert parse_row(row(target_words=None), where=WHERE).forget_spans is None
    assert parse_row(row(target_words="", forget_spans=[[0, 4]]), where=WHERE).forget_spans == ((0, 4),)


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        ({"target_words": [], "forget_spans": []}, "forget_spans.*target_words"),
        ({"target_words": "[{"}, "'target_words'.*JSON"),
        ({"target_words": {"word": "Orla"}}, "'target_words'.*object"),
    ],
)
def test_bad_columns(columns, match):
    with pytest.raises(ValueError, match=match) as caught:
        parse_row(row(**columns), where=WHERE)
    assert str(caught.value).startswith(WHERE)


def test_what_was_mended_is_counted_over_the_source(tmp_path):
    path = tmp_path / "labels.jsonl"
    rows = [
        row(target_words=json.dumps([mark("Kelbury", 15), mark("Kelbury", 15)]), common_words="[]"),
        row(target_words=json.dumps([mark("Orla Venn", 0), mark("Venn", 5), mark("Orla", 6)])),
        row(target_words="[]"),
    ]
    path.write_text("".join(json.dumps(entry) + "\n" for entry in rows))
    loaded = load_rows(path)
    assert [row.forget_spans for row in loaded.rows] == [((15, 22), (24, 31)), ((0, 9), (39, 43)), ()]
    assert len(loaded.warnings) == 2
    assert "common_words" in loaded.warnings[0]
    assert re.search(r"target_words: .*\b2 .*\b1 ", loaded.warnings[1])
    assert re.search(r"target_words: .*\b1 [^\d]*$", load_rows(path, limit=1).warnings[1])
