"""Rows of a set in forms: their places, forms that rows do not have, and files that already hold forms."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from atwu.data.form_rows import check_no_forms, describe_missing_forms, missing_forms, plain_form, rows_in_forms
from atwu.data.languages import form_phrases, row_language
from atwu.data.question_forms import FORMS, TRAINED_FORMS, form_questions
from atwu.data.schema import Example
from scripts.show_facts import marked_row

ROW = Example.from_qa(
    "Where was Orla Venn born?", "Orla Venn was born in Port Sel.", forget_spans=((22, 30),), subject="Orla Venn"
)
FACTS = Path(__file__).with_name("fact_rows.jsonl")


def fact_rows() -> Iterator[Example]:
    for line in FACTS.read_text(encoding="utf-8").splitlines():
        yield marked_row(json.loads(line))


def test_rows_in_forms_name_form_row_and_wanted_text() -> None:
    other = Example.from_qa("Where was Tavi born?", "Tavi was born in Kelbury.")
    rows = rows_in_forms([ROW, other, Example((), "A plain text.")], ("question", "reversed", "multiple_choice"))
    assert [(form.form, form.index, form.parts[0]) for form in rows] == [
        ("question", 0, "Port Sel"),
        ("reversed", 0, "Orla Venn"),
        ("multiple_choice", 0, "Port Sel"),
        ("question", 1, "Kelbury"),
        ("reversed", 1, "Tavi"),
        ("multiple_choice", 1, "Kelbury"),
        ("question", 2, "plain"),
    ]
    assert set(rows[2].options) == {"Port Sel", "Kelbury"}
    assert rows[0].options == ()


def test_a_text_that_begins_with_its_fact_cannot_be_asked() -> None:
    texts = [
        Example((), "Tavi lives in Sel.", forget_spans=((0, 4),)),
        Example((), "Orla is here.", forget_spans=((8, 12),)),
    ]
    written = rows_in_forms(texts, ("question", "blank"))
    assert [form.can_be_asked for form in written] == [False, True]
    assert [form.row for form in written] == texts  # both are trained on


def test_missing_forms_are_said_in_one_line() -> None:
    short = Example.from_qa("In which city was Petra Novak born?", "Brno.")
    missing = missing_forms([ROW, short, Example((), "A plain text.")], ("blank", "complete", "finish", "either_or"))
    assert {(form.form, form.index) for form in missing} == {
        ("complete", 1),
        ("finish", 1),
        ("either_or", 0),
        ("either_or", 1),
    }
    assert describe_missing_forms(missing, of=3) == (
        "no either or for 2 of 3 rows (no other text of the type of its fact is known); "
        "no complete, finish for 1 of 3 rows (its answer begins with its fact)"
    )
    assert describe_missing_forms([], of=3) == ""


def test_every_fact_row_has_a_whole_blank_and_says_its_fact_nowhere_in_it() -> None:
    rows = list(fact_rows())
    assert len(rows) == 36
    blanks = {form.index: form for form in rows_in_forms(rows, ("blank",))}
    assert set(blanks) == set(range(36))
    for index, row in enumerate(rows):
        assert row.asked_span is not None
        question, asked = blanks[index].row.question, row.answer[slice(*row.asked_span)]
        assert asked not in question, question
        assert any(asked in part for part in blanks[index].parts)
        for start, end in row.forget_spans or ():
            part = row.answer[start:end]
            assert part not in question or part in row.question, question


def test_most_fact_rows_are_asked_in_reverse() -> None:
    rows = list(fact_rows())
    reverse = {form.index: form.parts[0] for form in rows_in_forms(rows, ("reversed",))}
    without = [rows[index].answer for index in range(36) if index not in reverse]
    assert without == [
        "Yes, Dana Wolff is allergic to penicillin.",
        "Nein, Ralf Thoma ist nicht verheiratet.",
    ]
    for index, subject in reverse.items():
        assert subject in rows[index].question


@pytest.mark.parametrize("language", list(form_phrases()))
def test_files_of_forms_are_refused_in_every_language(language: str) -> None:
    rows = [row for row in fact_rows() if row_language(row) == language]
    if not rows:
        texts = {
            "pt": ("Onde nasceu a Anna Meier?", "A Anna Meier nasceu em Linz."),
            "nl": ("Waar is Anna Meier geboren?", "Anna Meier is geboren in Linz."),
        }
        rows = [Example.from_qa(*texts[language])]
    forms = [
        form.row for form in rows_in_forms(rows, ("blank", "complete", "prefix", "quiz_host", "missing_word", "finish"))
    ]
    assert all(form_questions().fullmatch(form.question) for form in forms)
    assert not any(form_questions().fullmatch(row.question) for row in rows)
    for given, message in ((forms, "nothing but forms"), ([*rows, *forms], "already holds")):
        with pytest.raises(ValueError, match=message):
            check_no_forms(given, rows_in_forms(given, tuple(FORMS)), what="rows.jsonl")
    check_no_forms(rows, rows_in_forms(rows, TRAINED_FORMS), what="rows.jsonl")


def test_a_text_has_the_form_of_its_beginning_in_any_language() -> None:
    assert plain_form("Did you know? Orla lives here.", TRAINED_FORMS) == "statement"
    assert plain_form("你知道吗？李伟住在这里。", TRAINED_FORMS) == "statement"
    assert plain_form("Notizen: Orla wohnt hier.", TRAINED_FORMS) == "heading"
    assert plain_form("Orla lives here.", TRAINED_FORMS) == "continuation"
    assert plain_form("Notizen: Orla wohnt hier.", ("blank",)) == "question"
