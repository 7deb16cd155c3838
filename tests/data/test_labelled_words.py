"""Labelled words to spans: word boundaries, phrases, overlaps, and word files."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atwu.data.labelled_words import label_words, read_words
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


def test_other_fields_are_unchanged():
    example = Example.from_qa("Who?", "Orla.", forget_spans=((4, 5),), subject="Orla", paraphrases=("Which?",))
    (copy,) = label_words([example], ["orla"])
    assert copy == Example.from_qa("Who?", "Orla.", forget_spans=((0, 4),), subject="Orla", paraphrases=("Which?",))
    assert example.forget_spans == ((4, 5),)
    assert label_words([example], ["Tavi"])[0].forget_spans == ()


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
