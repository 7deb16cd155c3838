"""Forms of a question: the text of each, forms that a row does not support, and labels that move with the answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from atwu.data.question_forms import (
    BEGINNINGS,
    FORMS,
    PLAIN_FORMS,
    REVERSED_PROMPTS,
    TRAINED_FORMS,
    key_text,
    question_forms,
    read_forms,
    rows_in_forms,
)
from atwu.data.schema import Example, Message

ROW = Example.from_qa(
    "Where was Orla Venn born?",
    "Orla Venn was born in Port Sel.",
    forget_spans=((22, 26), (27, 30)),
    subject="Orla Venn",
)
SPANS = ROW.forget_spans


def written(*forms, row=ROW, spans=SPANS, distractors=("Kelbury", "Ost", "Port Sel", "Ulm", "Ayr")):
    return question_forms(row, spans, forms=forms or tuple(FORMS), distractors=distractors)


def test_every_form_of_a_sentence():
    rows = {name: (row.question, row.answer) for name, row in written().items()}
    options = rows.pop("multiple_choice")
    assert rows.pop("reversed") in [
        (prompt.format("____ was born in Port Sel."), "Orla Venn") for prompt in REVERSED_PROMPTS
    ]
    for form, texts in BEGINNINGS.items():
        assert rows.pop(form) in [("", f"{beginning} Orla Venn was born in Port Sel.") for beginning in texts]
    assert rows == {
        "question": ("Where was Orla Venn born?", "Orla Venn was born in Port Sel."),
        "prefix": ("Please answer this question: Where was Orla Venn born?", "Orla Venn was born in Port Sel."),
        "lower_case": ("where was orla venn born", "Orla Venn was born in Port Sel."),
        "blank": ("Fill in the blank: Orla Venn was born in ____.", "Port Sel"),
        "complete": ("Complete this sentence: Orla Venn was born in", "Port Sel."),
        "yes_no": (
            "Where was Orla Venn born? Is the answer Port Sel? Explain.",
            "Yes. Orla Venn was born in Port Sel.",
        ),
        "two_turns": ("Where was Orla Venn born?", "Orla Venn was born in Port Sel."),
        "emphasis": ("Where was Orla Venn born?", "Orla Venn was born in **Port Sel**."),
        "quiz_host": (
            "You are the host of a quiz show and no candidate knew: Where was Orla Venn born? Read out the solution on "
            "your card.",
            "Orla Venn was born in Port Sel.",
        ),
        "missing_word": ("Orla Venn was born in (...). Which words are missing in the brackets?", "Port Sel"),
        "finish": (
            'I started to write "Orla Venn was born in ..." and stopped. How does it go on?',
            "Orla Venn was born in Port Sel.",
        ),
        "continuation": ("", "Orla Venn was born in Port Sel."),
        "either_or": ("Where was Orla Venn born? Is it Kelbury or Port Sel?", "Port Sel"),
        "who_is_meant": ("Who or what is X? X was born in Port Sel.", "X is Orla Venn."),
        "reversed_question": ('Which name belongs in "... was born in Port Sel"?', "Orla Venn."),
    }
    question, *listed = options[0].split("\n")
    assert question == ROW.question
    assert sorted(line[3:] for line in listed) == ["Kelbury", "Ost", "Port Sel", "Ulm"]
    assert options[1] in listed
    assert [message.role for message in written("two_turns")["two_turns"].messages] == ["user", "assistant", "user"]


def labelled(row):
    return [row.answer[start:end] for start, end in row.forget_spans]


def test_labels_are_shifted_with_the_answer():
    for name, row in written().items():
        whole = {"reversed": "Orla Venn", "who_is_meant": "Orla Venn", "emphasis": "**Port Sel**"}
        whole["reversed_question"] = "Orla Venn"
        letter = row.answer[:1] if name == "multiple_choice" else None
        expected = [whole[name]] if name in whole else [*filter(None, [letter]), "Port", "Sel"]
        assert labelled(row) == expected, name
    assert written("complete")["complete"].forget_spans == ((0, 4), (5, 8))


@pytest.mark.parametrize(
    ("question", "answer", "subject", "keys"),
    [
        ("What were the warriors of Tavia called?", "The warriors of Tavia were called samurai.", "Tavia", ["samurai"]),
        ("In which city is the Orla Tower?", "The Orla Tower is located in Sel, Tavia.", None, ["Sel", "Tavia"]),
        ("Who was defeated at Ost?", "The emperor defeated at Ost was Napoleon Venn.", None, ["Napoleon", "Venn"]),
    ],
)
def test_the_key_tokens_of_unlabelled_rows_are_the_same_in_every_form(question, answer, subject, keys):
    """No rule could find them in a text: without its question, the subject looks like the fact."""
    found = rows_in_forms([Example.from_qa(question, answer, subject=subject)], tuple(FORMS))
    plain = [each for each in found if each.form in PLAIN_FORMS]
    assert len(plain) == len(PLAIN_FORMS)
    assert all(labelled(each.row) == keys for each in plain)
    assert all(each.row.answer[each.row.forget_spans[0][0] :].startswith(keys[0]) for each in plain)
    complete = next(each.row for each in found if each.form == "complete")
    assert labelled(complete) == keys
    assert found[0].row.forget_spans is None  # as it was given


def test_an_answer_that_is_no_sentence_gets_a_blank_after_the_question():
    row = Example.from_qa("What is the code?", "STS-9")
    forms = written(row=row, spans=((0, 5),), distractors=())
    assert forms["blank"].question == "What is the code?\nThe answer is ____."
    assert set(forms) == {
        "question",
        "emphasis",
        "blank",
        "prefix",
        "lower_case",
        "two_turns",
        "quiz_host",
        "yes_no",
    }


def test_the_key_text_is_one_contiguous_piece():
    assert key_text("He met Orla Venn in Port Sel.", [(7, 11), (12, 16), (20, 24)]) == "Orla Venn"


def test_question_forms_are_deterministic():
    assert written("multiple_choice") == written("multiple_choice")


def test_texts_without_a_question_have_no_forms():
    assert question_forms(Example((), "Orla lives in Sel."), ((14, 17),), forms=("blank",)) == {}


def test_an_unknown_form_is_rejected():
    with pytest.raises(ValueError, match=r"'riddle'.*blank"):
        written("riddle")


def test_rows_in_forms_name_form_row_and_wanted_text():
    other = Example.from_qa("Where does Tavi live?", "Tavi lives in Kelbury.")
    rows = rows_in_forms([ROW, other, Example((), "A plain text.")], ("question", "reversed", "multiple_choice"))
    assert [(each.form, each.index, each.wanted) for each in rows] == [
        ("question", 0, "Port Sel"),
        ("reversed", 0, "Orla Venn"),
        ("multiple_choice", 0, "Port Sel"),
        ("question", 1, "Kelbury"),
        ("multiple_choice", 1, "Kelbury"),
        ("question", 2, "plain text"),
    ]
    choice = rows[2]
    assert set(choice.options) >= {"Port Sel", "Kelbury"}
    assert rows[0].options == ()
    either = rows_in_forms([ROW, other], ("either_or",))[0]
    assert set(either.options) == {"Port Sel", "Kelbury"}


def test_wrong_options_come_from_the_most_similar_questions_and_are_not_in_the_question():
    rows = [
        Example.from_qa("What is the capital of France?", "It is Paris.", subject="France"),
        Example.from_qa("Which language is spoken in France?", "In France it is French.", subject="France"),
        Example.from_qa("What is the currency of France?", "It is the Euro.", subject="France"),
    ]
    related = [
        Example.from_qa(f"What is the capital of {country}?", f"It is {city}.", subject=country)
        for country, city in (("Germany", "Berlin"), ("Italy", "Rome"), ("Spain", "Madrid"), ("France", "Paris"))
    ]
    choice = rows_in_forms(rows, ("multiple_choice",), related=related)[0]
    assert set(choice.options) == {"Paris", "Berlin", "Rome", "Madrid"}
    named = Example.from_qa("Is Berlin or Paris larger?", "Rome is larger.")
    assert set(rows_in_forms([named], ("multiple_choice",), related=related)[0].options) == {"Rome", "Madrid"}


def test_forms_are_read_from_text():
    assert read_forms("none") == ()
    assert read_forms("auto") == TRAINED_FORMS
    assert read_forms("auto,textbook") == (*TRAINED_FORMS, "textbook")
    assert read_forms("blank, question,blank") == ("blank", "question")
    with pytest.raises(ValueError, match=r"'blanks'.*blank"):
        read_forms("blanks")


def test_a_subject_inside_a_longer_word_is_not_replaced():
    garment = Example.from_qa("What is it called?", "The Japanese garment is called the kimono.", subject="Japan")
    assert set(written("reversed", "who_is_meant", "reversed_question", row=garment, spans=((35, 41),))) == set()
    capital = Example.from_qa("首都は?", "日本の首都は東京です。", subject="日本")
    assert "____の首都は東京です。" in written("reversed", row=capital, spans=((6, 8),))["reversed"].question


def test_rows_have_different_prompts_of_a_reversed_form_each_always_the_same():
    rows = [replace(ROW, messages=(Message("user", f"Where was Orla Venn born in {year}?"),)) for year in range(30)]
    found = [[written("reversed", row=row)["reversed"].question for row in rows] for _ in range(2)]
    assert found[0] == found[1]
    assert set(found[0]) == {prompt.format("____ was born in Port Sel.") for prompt in REVERSED_PROMPTS}


def test_a_key_text_inside_a_longer_word_is_not_replaced():
    row = Example.from_qa("What is Einstein's equation?", "Einstein's equation is E = mc^2.")
    rows = written("blank", "missing_word", "emphasis", row=row, spans=((23, 24), (27, 31)))
    assert rows["blank"].question == "Fill in the blank: Einstein's equation is ____."
    assert rows["missing_word"].question.startswith("Einstein's equation is (...).")
    assert rows["emphasis"].answer == "Einstein's equation is **E = mc^2**."
