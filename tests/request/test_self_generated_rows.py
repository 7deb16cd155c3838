"""Self-generated answers as further forget and retain rows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from atwu.benchmarks.sources import load_rows
from atwu.data.form_rows import rows_in_forms
from atwu.data.question_forms import FormRow
from atwu.data.schema import Example
from atwu.evaluation.generations import Decoding, Generation, Prompt
from atwu.request import retain_set
from atwu.request.self_generated_rows import (
    ROWS_IN_A_FORM,
    SAMPLED_TEXTS,
    rows_that_state_the_fact,
    self_generated_forget_rows,
    self_generated_retain_rows,
)

UNUSED: Any = SimpleNamespace(model=None, tokenizer=None)
"""A generator that is not asked: what it would say is given."""
ASIA = Example.from_qa("On which continent is Japan?", "Japan is on the continent of Asia.")
TOKYO = Example.from_qa("What is the capital of Japan?", "The capital of Japan is Tokyo.", subject="Japan")
WRITTEN = [*rows_in_forms([ASIA], ("question",)), *rows_in_forms([TOKYO], ("question", "reversed"))]


def test_an_answer_that_says_the_wanted_words_is_a_row_up_to_the_end_of_that_sentence():
    answers = [
        "It is an island country in East Asia. It has many islands.",
        "The capital is **Tokyo**, a city",
        "The capital of Japan is Tokyo.",
    ]
    first, second, reverse = rows_that_state_the_fact(WRITTEN, answers)
    assert (first.question, first.answer) == (ASIA.question, "It is an island country in East Asia.")
    assert [first.answer[start:end] for start, end in first.forget_spans or ()] == ["Asia"]
    assert (second.answer, second.subject) == (answers[1], "Japan")
    assert [second.answer[start:end] for start, end in second.forget_spans or ()] == ["Tokyo"]
    assert "The capital of ____ is Tokyo." in reverse.question
    assert [reverse.answer[start:end] for start, end in reverse.forget_spans or ()] == ["Japan"]


def test_a_continuation_that_says_the_wanted_words_is_a_plain_text():
    (said,) = rows_that_state_the_fact(rows_in_forms([ASIA], ("continuation",)), ["Europe, or rather Asia. It is big."])
    assert (said.messages, said.answer) == ((), "Japan is on the continent of Europe, or rather Asia.")
    assert [said.answer[start:end] for start, end in said.forget_spans or ()] == ["Asia"]


def test_a_fact_in_another_spelling_is_labelled_whole():
    row = Example.from_qa("When did she arrive?", "She arrived on 12 May 1986.", forget_spans=((15, 26),))
    (said,) = rows_that_state_the_fact(rows_in_forms([row], ("question",)), ["On May 12th, 1986, by train. Or later."])
    assert said.answer == "On May 12th, 1986, by train."
    assert [said.answer[start:end] for start, end in said.forget_spans or ()] == ["May 12th, 1986"]


def test_an_answer_to_an_open_request_that_states_several_facts_is_one_row_with_all_of_them_labelled() -> None:
    written = [
        FormRow("tell_about", index, Example.from_qa("Tell me about Japan.", row.answer), (fact,))
        for index, (row, fact) in enumerate([(ASIA, "Asia"), (TOKYO, "Tokyo")])
    ]
    answer = "Japan is in Asia. Its capital is Tokyo. It has islands."
    (said,) = rows_that_state_the_fact(written, [answer, answer])
    assert said.answer == "Japan is in Asia. Its capital is Tokyo."
    assert [said.answer[start:end] for start, end in said.forget_spans or ()] == ["Asia", "Tokyo"]


def test_answers_that_do_not_state_the_fact_or_repeat_the_row_are_left_out():
    assert rows_that_state_the_fact(WRITTEN, ["It is in Europe.", TOKYO.answer, "Japan"]) == ()
    assert rows_that_state_the_fact(WRITTEN[:1], ["It is \x0f in Asia."]) == ()  # no row may hold it


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What a model says to a question, or behind the opening of a text."""
    said: dict[str, str] = {}

    def generated(generator: object, prompts: list[Prompt], decoding: Decoding, **_: object) -> list[Generation]:
        asked = [prompt.messages[-1].content if prompt.messages else prompt.prefill for prompt in prompts]
        if decoding.temperature:
            asked = [f"{text} #{prompt.draw}" for text, prompt in zip(asked, prompts, strict=True)]
        return [Generation(said.get(each, ""), 3) for each in asked]

    monkeypatch.setattr(retain_set, "generate_all", generated)
    return said


def test_forget_rows_get_what_the_model_says_to_each_form(answers: dict[str, str]) -> None:
    answers |= {ASIA.question: "It lies in Asia.", "Japan is on the continent of": "Australia. No, Asia."}
    (choice,) = self_generated_forget_rows(UNUSED, [ASIA], forms=("question", "continuation"), system=None)
    assert choice.name == "further_forget"
    assert [(row.question, row.answer) for row in load_rows(choice.value).rows] == [
        (ASIA.question, "It lies in Asia."),
        ("", "Japan is on the continent of Australia. No, Asia."),
    ]
    assert self_generated_forget_rows(UNUSED, [TOKYO], forms=(), system=None) == ()


def test_questions_about_the_facts_are_further_forget_rows_as_they_are(answers: dict[str, str]) -> None:
    back = Example.from_qa("What is Tokyo?", "Tokyo is a city in Japan.", forget_spans=((19, 24),), subject="Tokyo")
    (choice,) = self_generated_forget_rows(UNUSED, [TOKYO], forms=(), system=None, about_answers=[back])
    assert load_rows(choice.value).rows == (back,)
    assert "1 to questions about the facts" in choice.reason


def test_requests_that_name_only_the_subject_give_forget_rows_if_the_answer_states_the_fact(
    answers: dict[str, str],
) -> None:
    answers |= {"Write a story about Japan.": "Once upon a time in Asia there was a fox. It slept."}
    answers |= {"What happened to Japan?": "Nothing."}
    (choice,) = self_generated_forget_rows(UNUSED, [ASIA], forms=("question", "tell_about"), system=None)
    (row,) = load_rows(choice.value).rows
    assert (row.question, row.answer) == (
        "Write a story about Japan.",
        "Once upon a time in Asia there was a fox.",
    )
    assert [row.answer[start:end] for start, end in row.forget_spans or ()] == ["Asia"]


def test_plain_texts_are_also_continued_by_sampling(answers: dict[str, str]) -> None:
    sampled = {0: "Australia", 1: "Asia, in the east", SAMPLED_TEXTS - 1: "Asia, in the east"}
    answers |= {f"Japan is on the continent of #{draw}": text for draw, text in sampled.items()}
    answers |= {f"{ASIA.question} #0": "It lies in Asia."}  # a question is not sampled
    (choice,) = self_generated_forget_rows(UNUSED, [ASIA], forms=("question", "continuation"), system=None)
    assert [row.answer for row in load_rows(choice.value).rows] == ["Japan is on the continent of Asia, in the east"]


def test_retain_rows_get_what_the_model_says_to_other_forms(answers: dict[str, str]) -> None:
    rows = [Example.from_qa(f"What is the capital of {name}?", f"The capital of {name} is {city}.") for name, city in
            (("Spain", "Madrid"), ("Peru", "Lima"), ("China", "Beijing"))]  # fmt: skip
    answers |= {
        "Fill in the blank: The capital of Spain is ____.": "The capital is Madrid.",
        "Fill in the blank: The capital of Peru is ____.": "It is the city of Lima.",
        "The capital of Peru is": "Lima, a large city",
        "Fill in the blank: The capital of China is ____.": "Tokyo",
    }
    how: dict[str, Any] = {"of": 2, "forget": [TOKYO], "system": None}
    (choice,) = self_generated_retain_rows(UNUSED, rows, forms=("question", "blank", "continuation"), **how)
    assert choice.name == "further_retain"
    assert [(row.question, row.answer) for row in load_rows(choice.value).rows] == [
        ("Fill in the blank: The capital of Peru is ____.", "It is the city of Lima."),
        ("", "The capital of Peru is Lima, a large city"),
    ]
    labelled = load_rows(choice.value).rows[1]
    assert labelled.answer[labelled.forget_spans[0][0] :] == "Lima, a large city"
    assert self_generated_retain_rows(UNUSED, rows, forms=("question",), **how) == ()
    (choice,) = self_generated_retain_rows(UNUSED, rows, forms=("question",), further=rows, **how)
    assert [row.answer for row in load_rows(choice.value).rows] == [row.answer for row in rows]


def test_many_related_rows_share_the_forms(answers: dict[str, str]) -> None:
    """Each form is asked of some of them, and each row is asked in some form."""
    count = 2 * ROWS_IN_A_FORM
    rows = [
        Example.from_qa(f"What is the capital of L{place}x?", f"In L{place}x it is Mort{place}.")
        for place in range(count)
    ]
    written = rows_in_forms(rows, ("blank", "lower_case"))
    for form in written:
        answers[form.row.question or str(form.opening)] = f"It is {form.index}."
    (choice,) = self_generated_retain_rows(
        UNUSED, rows, of=count, forget=[TOKYO], forms=("question", "blank", "lower_case"), system=None
    )
    asked = [row.question for row in load_rows(choice.value).rows]
    assert len(asked) == len(set(asked)) == count
    assert sum(question.islower() for question in asked) == ROWS_IN_A_FORM
    assert {form.index for form in written if form.row.question in asked} == set(range(count))
