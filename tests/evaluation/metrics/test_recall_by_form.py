"""Recall of facts by form of the question: options, guessing, prompts, and the worst form."""

from __future__ import annotations

import numpy as np
import pytest

from atwu.data.form_rows import rows_in_forms
from atwu.data.question_forms import OPTION_FORMS, FormRow
from atwu.data.schema import Example
from atwu.evaluation.facts.askings import MEASURED_FORMS, form_prompt
from atwu.evaluation.metrics.recall_by_form import form_recall, forms_to_ask, worst_form

ROWS = (
    Example.from_qa("Where was Orla Venn born?", "Orla Venn was born in Port Sel."),
    Example.from_qa("Where does Tavi live?", "Tavi lives in Kelbury."),
    Example.from_qa("Where is the mill?", "The mill stands in Ost."),
    Example.from_qa("Where is the ferry?", "The ferry lies in Ulm."),
)


def first(form: str) -> FormRow:
    return next(each for each in rows_in_forms(ROWS, MEASURED_FORMS) if each.form == form)


def test_share_of_the_key_tokens() -> None:
    assert form_recall(first("blank"), "port Sel") == 1
    assert form_recall(first("blank"), "Port Kel") == 0.5
    assert form_recall(first("lower_case"), "She was born in Ost.") == 0


def test_another_spelling_or_an_alias_of_the_key_text_is_recalled() -> None:
    year = Example.from_qa("When was the mill built?", "The mill was built in 1240.", aliases=("the flood year",))
    blank = next(written for written in rows_in_forms((year,), ("blank",)))
    assert form_recall(blank, "in the year 1,240") == 1
    assert form_recall(blank, "In the flood year.") == 1
    assert form_recall(blank, "In 12401.") == 0
    aliased = Example.from_qa(
        "Where was Orla Venn born?", "Orla Venn was born in Ost.", subject="Orla Venn", aliases=("East",)
    )
    subject = next(written for written in rows_in_forms((aliased,), ("reversed",)))
    assert form_recall(subject, "Orla Venn's birthplace") == 1
    assert form_recall(subject, "East") == 0  # names the place, not her


def test_an_answer_that_names_several_options_chooses_none() -> None:
    choice = first("multiple_choice")
    assert form_recall(choice, " or ".join(choice.options)) == pytest.approx(-1 / 3)
    assert form_recall(first("either_or"), "Port Sel or Kelbury") == -1


def test_a_choice_is_the_option_named_corrected_for_guessing() -> None:
    choice = first("multiple_choice")
    letter = "ABCD"[choice.options.index("Port Sel")]
    wrong = "ABCD"[(choice.options.index("Port Sel") + 1) % 4]
    for right in (letter, f"{letter}) Port Sel", f"The answer is {letter}.", "It is Port Sel, not Kelbury."):
        assert form_recall(choice, right) == 1, right
    for other in (wrong, "Kelbury, not Port Sel", "I do not know."):
        assert form_recall(choice, other) == pytest.approx(-1 / 3), other
    assert form_recall(first("either_or"), "Port Sel") == 1
    assert form_recall(first("either_or"), "Kelbury") == -1


def test_a_model_that_guesses_has_recall_zero() -> None:
    for form, options in zip(OPTION_FORMS, (4, 2), strict=True):
        scores = [form_recall(first(form), option) for option in first(form).options]
        assert len(scores) == options
        assert np.mean(scores) == pytest.approx(0)
    two = next(each for each in rows_in_forms(ROWS[:2], ("multiple_choice",)))
    assert [form_recall(two, option) for option in ("Port Sel", "Kelbury")] == [1, -1]


def test_a_model_that_always_names_the_same_letter_has_recall_zero() -> None:
    asked = forms_to_ask(ROWS, ())
    for form, replies in (("multiple_choice", "ABCD"), ("either_or", "01")):
        rows = [each for each in asked if each.form == form]
        assert len(rows) == 4 * len(ROWS)
        assert len({each.row.question for each in rows}) == len(rows)
        for reply in replies:
            said = [each.options[int(reply)] if reply.isdigit() else reply for each in rows]
            assert np.mean([form_recall(*pair) for pair in zip(rows, said, strict=True)]) == pytest.approx(0)


def test_prompts() -> None:
    assert form_prompt(first("continuation")).prefill == "Orla Venn was born in"
    assert form_prompt(first("continuation")).messages == ()
    assert [each.role for each in form_prompt(first("two_turns")).messages] == ["user", "assistant", "user"]


def test_a_text_that_begins_with_its_fact_is_not_asked() -> None:
    """It would be an empty prompt, which is an error."""
    texts = (
        Example((), "Tavi lives in Ost.", forget_spans=((0, 4),)),
        Example((), "Here lives Orla.", forget_spans=((11, 15),)),
    )
    prompts = [form_prompt(written) for written in forms_to_ask((*texts, *ROWS), ())]
    assert all(prompt.messages or prompt.prefill.strip() for prompt in prompts)
    assert [written.opening for written in forms_to_ask(texts, ())] == ["Here lives"]


def test_the_worst_form_is_at_least_zero() -> None:
    assert worst_form(0.2, 0.5, -0.3) == 0.5
    assert worst_form(-0.2, -0.1) == 0
    np.testing.assert_array_equal(worst_form(np.array([0.1, -0.2]), np.array([0.3, -0.4])), [0.3, 0.0])
