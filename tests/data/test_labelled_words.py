"""Labelled words to spans: word boundaries, phrases, overlaps, and word files."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atwu.benchmarks.sources import load_rows
from atwu.data.labelled_words import label_words, read_words, target_word_spans
from atwu.data.row_parsing import parse_row
from atwu.data.schema import Example, merged_spans


def marked(answer, *words):
    (example,) = label_words([Example.from_qa("Who?", answer)], words)
    return [answer[start:end] for start, end in example.forget_spans]


@pytest.mark.parametrize(
    ("answer", "words", "expected"),
    [
        ("Orla met ORLA and Orlando.", ["orla"], ["Orla", "ORLA"]),
        ("Orla's house is Kelbury-built, say 'Orla'.", ["Orla", "Kelbury"], ["Orla", "Kelbury", "Orla"]),
        ("Yun-Mara O’Dell and Yun Mara", ["Yun-Mara O'Dell"], ["Yun-Mara O’Dell"]),
        ("Yun‑Mara", ["Yun-Mara"], ["Yun‑Mara"]),
        ("Tavi\n  Brook, TaviBrook", ["tavi brook"], ["Tavi\n  Brook"]),
        ("He has 12 cats, not 120 or 3_12.", ["12"], ["12"]),
        ("Born in Kelbury (Olm).", ["(olm)", "c++"], ["(Olm)"]),
        ("Jose and Jose\u0301 and José", ["Jose"], ["Jose"]),
        ("a.c abc", ["a.c"], ["a.c"]),
        (r"a\'b and a\b", [r"a\'b", r"a\b"], [r"a\'b", r"a\b"]),
        ("nothing", ["Orla"], []),
    ],
)
def test_whole_words_in_any_case(answer, words, expected):
    assert marked(answer, *words) == expected


def test_overlapping_occurrences_are_merged_and_sorted():
    assert marked("Then Orla Venn Brook of Tavi", "Tavi", "Venn Brook", "Orla Venn") == ["Orla Venn Brook", "Tavi"]
    assert marked("la la la", "la la") == ["la la la"]
    assert marked("Orla Venn", "Orla Venn", "Venn") == ["Orla Venn"]


@pytest.mark.parametrize(("words", "message"), [([], "empty"), (["Orla", " "], "blank"), ("Orla", r"\['Orla'\]")])
def test_empty_and_blank_words_are_rejected(words, message):
    with pytest.raises(ValueError, match=message):
        label_words([Example.from_qa("Who?", "Orla.")], words)


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)).filter(lambda span: span[0] < span[1])))
def test_merged_spans_cover_the_same_characters(spans):
    covered = [place for start, end in merged_spans(spans) for place in range(start, end)]
    assert covered == sorted({place for start, end in spans for place in range(start, end)})


def test_word_file(tmp_path):
    path = tmp_path / "words.txt"
    path.write_bytes("\ufeff# names\r\nOrla Venn\r\n\r\n  Kelbury \n  # more\nOrla Venn\nC#".encode())
    assert read_words(path) == ("Orla Venn", "Kelbury", "C#")


def test_word_file_errors(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"absent\.txt"):
        read_words(tmp_path / "absent.txt")
    (tmp_path / "empty.txt").write_text("# only a comment\n\n")
    with pytest.raises(ValueError, match=r"empty\.txt.*words"):
        read_words(tmp_path / "empty.txt")
    (tmp_path / "latin.txt").write_bytes(b"\xc9mile\n")
    with pytest.raises(ValueError, match=r"latin\.txt, line 1.*UTF-8"):
        read_words(tmp_path / "latin.txt")


WHERE = "labels.jsonl, line 3"
ANSWER = "Orla Venn left Kelbury; Kelbury missed Orla."


def label(word, start, end=None):
    return {"word": word, "start": start, "end": start + len(word) if end is None else end}


def spans(*labels, answer=ANSWER):
    counts: Counter[str] = Counter()
    return target_word_spans(labels, answer, where=WHERE, counts=counts), dict(+counts)


def words(found, answer=ANSWER):
    return [answer[start:end] for start, end in found]


@pytest.mark.parametrize(
    "labels",
    [
        [label("Kelbury", 15), label("Kelbury", 15)],  # error in the published labels: both at the first position
        [label("Kelbury", 15), label("Kelbury", 14)],
        [
            label("Kelbury", 16),
            label("Kelbury", 15),
        ],  # a correct label keeps its position, independently of the labels before it
        [label("Kelbury", 24), label("Kelbury", 30)],  # no free occurrence on the right: search from the beginning
    ],
)
def test_wrong_label_takes_the_next_free_occurrence(labels):
    assert spans(*labels) == (((15, 22), (24, 31)), {"moved": 1})


def test_whole_words_have_priority():
    answer = "A party for art."
    assert spans(label("art", 0), answer=answer)[0] == ((12, 15),)
    assert words(spans(label("part", 0), answer=answer)[0], answer) == ["part"]


def test_more_labels_than_occurrences_repeat_one():
    assert spans(label("Venn", 5), label("Venn", 5), label("Venn", 0)) == (((5, 9),), {"merged": 2})


def test_overlaps_are_merged_and_neighbours_are_not():
    assert spans(label("Orla Venn", 0), label("Venn left", 5)) == (((0, 14),), {"merged": 1})
    assert spans(label("Orla", 0), label(" Venn", 4)) == (((0, 4), (4, 9)), {})


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        (label("Tavi", 0), r"'Orla'.*\[0, 4\].*'Tavi'"),
        (label("orla", 0), "'orla'"),
        (label("Orla", 0, 99), r"'Orla'.*\[0, 99\].*\b44 "),
        (label("Orla", -1, 4), "0 <= start"),
        (label("Orla", 4, 4), "0 <= start"),
        ({"word": "Orla", "start": 0.0, "end": 4}, r"\b0\.0"),
        ({"word": "Orla", "start": "0", "end": 4}, "'Orla'.*'0'"),
        ({"word": "Orla", "start": False, "end": 4}, "False"),
        ({"word": " ", "start": 0, "end": 4}, "'word': ' '"),
        ({"word": "Orla", "start": 0}, "'Orla'.*None"),
        ([0, 4], r"\[0, 4\]"),
    ],
)
def test_malformed_labels(bad, match):
    with pytest.raises(ValueError, match=match) as caught:
        spans(label("Venn", 5), bad)
    assert str(caught.value).startswith(f"{WHERE}, column 'target_words'")


@settings(max_examples=25)
@given(st.lists(st.sampled_from(["ab", "b", "ab b", "cab"]), min_size=1, max_size=8), st.data())
def test_ranges_are_sorted_disjoint_and_contain_every_word(chosen, data):
    answer = "ab cab b ab b."
    labels = [label(word, data.draw(st.integers(0, len(answer) - len(word)))) for word in chosen]
    found, counts = spans(*labels, answer=answer)
    assert all(first[1] <= second[0] for first, second in pairwise(found))
    assert all(0 <= start < end <= len(answer) for start, end in found)
    for word in chosen:
        assert any(word in answer[start:end] for start, end in found)
    assert len(found) == len(chosen) - counts.get("merged", 0)


def row(**columns):
    return {"question": "Who left?", "answer": ANSWER, **columns}


def test_column_as_list_and_as_json_text():
    labels = [label("Kelbury", 15)]
    for value in (labels, json.dumps(labels)):
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


def test_corrections_are_counted_over_the_source(tmp_path):
    path = tmp_path / "labels.jsonl"
    rows = [
        row(target_words=json.dumps([label("Kelbury", 15), label("Kelbury", 15)]), common_words="[]"),
        row(target_words=json.dumps([label("Orla Venn", 0), label("Venn", 5), label("Orla", 6)])),
        row(target_words="[]"),
    ]
    path.write_text("".join(json.dumps(entry) + "\n" for entry in rows))
    loaded = load_rows(path)
    assert [row.forget_spans for row in loaded.rows] == [((15, 22), (24, 31)), ((0, 9), (39, 43)), ()]
    assert len(loaded.warnings) == 2
    assert "common_words" in loaded.warnings[0]
    assert re.search(r"target_words: .*\b2 .*\b1 ", loaded.warnings[1])
    assert re.search(r"target_words: .*\b1 [^\d]*$", load_rows(path, limit=1).warnings[1])
