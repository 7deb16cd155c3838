"""The words of the forms in each language, and the language of a question."""

from __future__ import annotations

import string
from pathlib import Path

import pytest
import yaml

from atwu.data.languages import count_words, detect_language, form_phrases, row_language
from atwu.data.schema import Example

QUESTIONS = yaml.safe_load(Path(__file__).with_name("questions_by_language.yaml").read_text(encoding="utf-8"))


def names(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


@pytest.mark.parametrize("language", list(form_phrases()))
def test_every_language_has_the_same_texts_with_the_same_places(language: str) -> None:
    english, phrases = form_phrases()["en"], form_phrases()[language]
    assert phrases.keys() == english.keys()
    for form, texts in phrases.items():
        if form not in ("yes", "no"):
            assert [names(text) for text in texts] == [names(text) for text in english[form]], form
            assert len(set(texts)) == len(texts)


def test_eleven_languages() -> None:
    assert list(form_phrases()) == ["en", "de", "es", "fr", "it", "pt", "nl", "ru", "zh", "ja", "ar"]


@pytest.mark.parametrize("language", list(form_phrases()))
def test_the_language_of_a_short_question(language: str) -> None:
    questions = QUESTIONS[language]
    assert len(questions) == 20
    detected = [detect_language(question) for question in questions]
    assert detected.count(language) >= 18, dict(zip(questions, detected, strict=True))


@pytest.mark.parametrize(
    ("question", "answer", "language"),
    [
        ("Who examined Mina Parra's epilepsy?", "It was examined by Dr. Lise Haug in Ulm.", "en"),
        ("Is Aldo Conti diabetic?", "Yes, he has diabetes.", "en"),
        ("Name Carla's allergies.", "Carla is allergic to cashews.", "en"),
        ("Woran leidet Nils Ohm?", "Nils Ohm leidet an einer Allergie.", "de"),
        ("Comment dit-on « chat » en allemand ?", "On dit « Katze ».", "fr"),
    ],
)
def test_the_language_of_a_row_is_read_from_question_and_answer(question: str, answer: str, language: str) -> None:
    assert row_language(Example.from_qa(question, answer)) == language


def test_other_languages_are_known_as_such() -> None:
    mistaken = [question for question in QUESTIONS["other"] if detect_language(question) in form_phrases()]
    assert mistaken == []


@pytest.mark.parametrize(
    ("text", "count"),
    [("Orla Venn was born in", 5), ("", 0), ("...", 0), ("李伟的医生是", 3), ("Tom Brandt的", 2), ("はい", 1)],
)
def test_words_are_counted_in_scripts_without_spaces(text: str, count: int) -> None:
    assert count_words(text) == count
