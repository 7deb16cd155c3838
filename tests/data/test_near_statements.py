"""Texts that differ from a wanted one in a sign, a letter or a number, and spellings of the same that differ in more."""

from __future__ import annotations

import pytest

from atwu.data.fact import telling_texts
from atwu.data.matching import chosen_option, states
from atwu.data.schema import Example


@pytest.mark.parametrize(
    ("question", "answer", "key"),
    [
        ("What is Mia Kern's blood type?", "Mia Kern's blood type is AB+.", "AB+"),
        ("Which language does Mia Kern write?", "Mia Kern writes C++ at work.", "C++"),
        ("What grade did Mia Kern get?", "Mia Kern got an A-.", "A-"),
        ("Welche Blutgruppe hat Mia Kern?", "Mia Kern hat die Blutgruppe 0-.", "0-"),
        ("Quel est le groupe sanguin de Luc Roy ?", "Le groupe sanguin de Luc Roy est A−.", "A−"),
        ("What is the password of the Corvo router?", "The password of the Corvo router is h7!Kq-92zt.", "h7!Kq-92zt"),
    ],
)
def test_signs_behind_a_letter_belong_to_the_fact_and_its_answer_states_it(
    question: str, answer: str, key: str
) -> None:
    (text,) = telling_texts(Example.from_qa(question, answer))
    assert text == key
    assert states(answer, text, question=question)


def test_a_word_that_goes_on_behind_the_next_one_has_no_sign() -> None:
    row = Example.from_qa("Welche Bahnen fahren dort?", "Dort fahren U- und S-Bahn.")
    assert "U-" not in telling_texts(row)


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ("hepatitis A", "She has hepatitis A."),
        ("O negative", "She is O negative."),
        ("a dog", "A dog."),
        ("O cachorro", "Um cachorro."),
        ("9 Larch Road", "She lived in Larch Road for 5 years."),
        ("Lindenstraße 14", "In der Lindenstraße."),
        ("5 mg of apixaban", "10 mg of apixaban."),
        ("git branch -D topic", "Run `git branch -D topic`."),
        ("555-123-4567", "555 123 4567"),
        ("555-123-4567", "555.123.4567"),
        ("123-45-6789", "123 45 6789"),
        ("138-1234-5678", "138 1234 5678"),
        ("Washington, D.C.", "The capital is Washington, D.C."),
    ],
)
def test_the_same_in_another_spelling_is_stated(wanted: str, text: str) -> None:
    assert states(text, wanted)


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ("AB+", "She has AB-."),
        ("A-", "She got an A."),
        ("C++", "She writes C."),
        ("hepatitis A", "She has hepatitis B."),
        ("Hepatitis E", "Hepatitis C"),
        ("Vitamin D", "Vitamin C"),
        ("O negative", "A negative"),
        ("D minor", "C minor"),
        ("Influenza A", "Influenza B"),
        ("World War I", "World War II"),
        ("Elizabeth I", "Elizabeth II"),
        ("Class D", "Class C"),
        ("Lindenstraße 14", "In der Lindenstraße 41."),
        ("Lindenstraße 14", "In der Lindenstraße 14b."),
        ("9 Larch Road", "11 Larch Road"),
        ("41 rue Hollande", "12, rue de la Hollande"),
        ("Tr0ub4dor&3", "Tr0ub4dor"),
        ("git branch -D topic", "git branch -d topic"),
        ("555-123-4567", "555 123 4576"),
    ],
)
def test_another_sign_letter_or_number_is_not_the_wanted_one(wanted: str, text: str) -> None:
    assert not states(text, wanted)


def test_an_option_with_another_letter_is_not_chosen() -> None:
    options = ("hepatitis A", "hepatitis B", "hepatitis C")
    assert chosen_option("hepatitis D", options) is None
    assert chosen_option("She has hepatitis C.", options) == 2
