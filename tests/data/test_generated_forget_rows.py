"""A model's own answers become forget rows where they state the fact in other words."""

from __future__ import annotations

from atwu.data.question_forms import generated_forget_rows, rows_in_forms
from atwu.data.schema import Example

ASIA = Example.from_qa("On which continent is Japan?", "Japan is on the continent of Asia.")
TOKYO = Example.from_qa("What is the capital of Japan?", "The capital of Japan is Tokyo.", subject="Japan")
WRITTEN = rows_in_forms([ASIA, TOKYO], ("question", "reversed"))


def test_an_answer_that_says_the_wanted_words_is_a_row_up_to_the_end_of_that_sentence():
    answers = [
        "It is an island country in East Asia. It has many islands.",
        "The capital is **Tokyo**, a city",
        "The capital of Japan is Tokyo.",
    ]
    first, second, reverse = generated_forget_rows(WRITTEN, answers)
    assert (first.question, first.answer) == (ASIA.question, "It is an island country in East Asia.")
    assert [first.answer[start:end] for start, end in first.forget_spans or ()] == ["Asia"]
    assert (second.answer, second.subject) == (answers[1], "Japan")
    assert [second.answer[start:end] for start, end in second.forget_spans or ()] == ["Tokyo"]
    assert reverse.question == "Fill in the blank: The capital of ____ is Tokyo."
    assert [reverse.answer[start:end] for start, end in reverse.forget_spans or ()] == ["Japan"]


def test_answers_that_do_not_state_the_fact_or_repeat_the_row_are_left_out():
    assert generated_forget_rows(WRITTEN, ["It is in Europe.", TOKYO.answer, "Japan"]) == ()
