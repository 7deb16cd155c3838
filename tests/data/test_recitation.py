"""How much of a text's wording is said, and how documents are cut into passages."""

from __future__ import annotations

from pathlib import Path

import pytest

from atwu.benchmarks.sources import load_rows
from atwu.data.fact import key_token_spans, telling_texts
from atwu.data.passages import (
    FEWEST_PASSAGE_WORDS,
    MOST_WORDS,
    compare_wording,
    cut_text,
    document_passages,
    has_wording,
    word_spans,
    wording_span,
)
from atwu.data.records import MOST_TAKEN, is_list_of_questions, read_document
from atwu.data.row_parsing import parse_row, row_record, write_rows
from atwu.data.schema import Example

VERSE = "The ferry leaves at eight,\nThe gulls are on the rail,\nThe harbour master's mate\nIs mending someone's sail."


def test_a_recitation_is_compared_word_for_word() -> None:
    """Of "a b c d e f" the model says "a b x d e f": two words at once, five in order, three in one run."""
    said = compare_wording("Start:", "One two, three four five six.", "one two many four five six")
    assert (said.words, said.longest_run) == (6, 3)
    assert said.share == pytest.approx(2 / 6)
    assert said.rouge_l == pytest.approx(5 / 6)


@pytest.mark.parametrize(("chance", "recited"), [(2, True), (3, False)])
def test_a_text_is_recited_if_its_run_is_longer_than_in_unseen_texts(chance: int, recited: bool) -> None:
    said = compare_wording("", "one two three four five six", "well, four five six", chance_run=chance)
    assert said.recited is recited


def test_a_short_rest_that_is_said_whole_is_recited() -> None:
    assert compare_wording("", "the rail", "the rail is wet", chance_run=4).recited


def test_a_refrain_that_the_opening_shows_is_no_memory() -> None:
    """The model repeats the first line; that it stands in the rest, too, tells nothing."""
    opening, rest = "Row the boat along the shore, sing", "row the boat along the shore and never come home"
    assert compare_wording(opening, rest, "row the boat along the shore row the boat").longest_run == 0
    assert compare_wording(opening, rest, "row the boat along the shore and never come").longest_run == 9


def test_nothing_said_is_nothing_recited() -> None:
    said = compare_wording("One two", "three four five", "")
    assert (said.share, said.rouge_l, said.longest_run) == (0, 0, 0)
    assert not said.recited


def test_a_cut_leaves_words_on_both_sides() -> None:
    cut = cut_text("one two three four five six seven eight", 1 / 4)
    assert cut is not None
    assert (cut.opening, cut.rest) == ("one two three", "four five six seven eight")
    assert cut_text("one two three four five", 1 / 2) is None


def test_a_long_text_is_compared_with_the_next_words_only() -> None:
    cut = cut_text(" ".join(f"word{number}" for number in range(400)), 1 / 2)
    assert cut is not None
    assert cut.rest.split()[0] == "word200"
    assert len(cut.rest.split()) == 40


def test_a_long_text_without_labels_is_about_its_wording() -> None:
    assert has_wording(Example((), VERSE))
    assert not has_wording(Example((), "The capital of France is Paris."))
    assert not has_wording(Example((), VERSE, forget_spans=((4, 9),)))
    assert not has_wording(Example.from_qa("What leaves at eight?", VERSE))


def test_key_tokens_of_a_wording_are_what_is_known_by_heart() -> None:
    unmarked = Example((), VERSE, chance_run=4)
    assert key_token_spans(unmarked) == (wording_span(unmarked),)
    assert VERSE[wording_span(unmarked)[0] :].startswith("at eight")
    assert key_token_spans(Example((), VERSE, chance_run=4, forget_spans=((18, 25),))) == ((18, 25),)
    assert key_token_spans(Example((), VERSE, chance_run=4, forget_spans=())) == ()
    assert telling_texts(unmarked) == ()


def test_the_run_of_a_text_is_a_column(tmp_path: Path) -> None:
    row = Example((), VERSE, chance_run=4, forget_spans=((18, 25),))
    write_rows(tmp_path / "rows.jsonl", [row])
    assert load_rows(tmp_path / "rows.jsonl").rows[0] == row
    assert "chance_run" not in row_record(Example((), VERSE))
    for bad in ("many", 0, True):
        with pytest.raises(ValueError, match="'chance_run'"):
            parse_row({"text": VERSE, "chance_run": bad}, where="row 1")
    with pytest.raises(ValueError, match="only a text"):
        parse_row({"question": "Who?", "answer": "He.", "chance_run": 4}, where="row 1")


def tale(words: int) -> str:
    return " ".join(f"word{number}" + "." * (number % 9 == 8) for number in range(words))


def test_all_of_a_document_is_in_its_passages() -> None:
    text = f"A heading\n\n{tale(55)}\n\n{tale(400)}\n\n{VERSE}\n\nThe end"
    parts = document_passages(text)
    assert " ".join(parts).split() == text.split()
    assert all(FEWEST_PASSAGE_WORDS <= len(word_spans(part)) <= MOST_WORDS + FEWEST_PASSAGE_WORDS for part in parts)
    assert parts[0].startswith("A heading\n\nword0 ")
    assert parts[-1] == f"{VERSE} The end"


def test_lines_of_verse_stay_and_wrapped_lines_are_joined() -> None:
    lines = (
        "The old ferry leaves the harbour at eight in",
        "the morning, when the gulls sit on the rail and",
        "the mate mends it.",
    )
    wrapped = "\n".join(lines)
    assert document_passages(f"{wrapped}\n\n{VERSE}") == [wrapped.replace("\n", " "), VERSE]


def test_a_document_without_spaces_between_words_has_passages() -> None:
    text = "春眠不覚暁、処処聞啼鳥、夜来風雨声、花落知多少。" * 12
    parts = document_passages(text)
    assert "".join(parts) == text
    assert len(parts) > 1


def test_a_text_file_becomes_rows_of_texts(tmp_path: Path) -> None:
    for name in ("page.txt", "page.md"):
        (tmp_path / name).write_text(f"{VERSE}\n\n{tale(30)}\n", encoding="utf-8")
        rows = load_rows(str(tmp_path / name))
        assert [row.answer for row in rows.rows] == [VERSE, tale(30)]
        assert not any(row.messages for row in rows.rows)
        assert rows.warnings == ()


def test_of_a_long_document_a_part_is_taken_and_said(tmp_path: Path) -> None:
    """Three hundred pages, in about 2,000 passages."""
    book = tmp_path / "book.txt"
    book.write_text("\n\n".join(f"Chapter {number} tells {tale(45)}" for number in range(2000)), encoding="utf-8")
    loaded = load_rows(str(book))
    assert len(loaded.rows) == MOST_TAKEN
    assert loaded.rows[-1].answer.startswith("Chapter 1990 ")
    assert "has 2,000 passages; 200 of them, evenly spaced, are taken (9,600 of 96,000 words)" in loaded.warnings[0]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"...\n---", "is empty"),
        (b"Paris is the capital of France.", "too short: words 6"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "not valid UTF-8"),
        (b"PK\x03\x04 words and more words", "line 1: not a text file"),
        (b"Who is Orla Venn?\n\nWhere does she live?\n", "holds questions without answers"),
        ("彼は誰ですか？\n".encode(), "holds questions without answers"),
    ],
)
def test_a_file_that_is_no_document_is_refused_in_a_line(content: bytes, said: str, tmp_path: Path) -> None:
    file = tmp_path / "page.txt"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=said) as refused:
        load_rows(str(file))
    assert "page.txt" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_one_line_that_is_no_question_makes_a_document() -> None:
    assert is_list_of_questions("Who?\n\nWhat?  \n")
    assert not is_list_of_questions("Who?\nThe man with the hat.\n")
    assert not is_list_of_questions("\n")


def test_a_document_of_few_words_is_one_passage(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("The ferry leaves at eight and the gulls are on the rail.", encoding="utf-8")
    assert len(read_document(tmp_path / "note.txt").passages) == 1


@pytest.mark.parametrize(
    ("opening", "wording", "said"),
    [
        ("他", "出生于杭州市西湖区毕业于浙江大学医学院", "他出生于杭州市西湖区毕业于浙江大学医学院"),
        ("", "彼は京都市の古い町で生まれ育ちました", "彼は京都市の古い町で生まれ育ちました"),
        ("", "彼は京都市の古い町で生まれ育ちました", "さて彼は京都市の古い町で生まれ育ちました"),
        ("", "สมชายอาศัยอยู่ในเชียงใหม่กับครอบครัว", "และสมชายอาศัยอยู่ในเชียงใหม่กับครอบครัว"),
    ],
)
def test_a_continuation_that_begins_one_letter_later_is_recited_in_a_script_without_spaces(
    opening: str, wording: str, said: str
) -> None:
    recitation = compare_wording(opening, wording, said, chance_run=4)
    assert recitation.recited
    assert recitation.rouge_l == 1


def test_two_letters_of_a_script_without_spaces_count_as_a_word_of_a_run() -> None:
    assert compare_wording("", "出生于杭州市西湖区毕业于浙江大学", "出生于北京市", chance_run=4).longest_run == 1
    assert not compare_wording("", "出生于杭州市西湖区", "出生于杭州的人", chance_run=4).recited
