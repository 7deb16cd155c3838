"""Gibberish and language of answers, found by rule."""

from __future__ import annotations

import pytest

from atwu.evaluation.metrics.fluency import gibberish, language, repeated_ngrams

ASKED = "What is the capital of the country in the south of Europe?"


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "He is a famous Lan\ufffd who became known for his Lan\ufffd Lanterns",
        "La Famille-Salaume, le Grand Étoile de la République, le Grand Étoile de la République",
        "La ville de la lumière est dans le sud",
        "the town of Ost is the town of Ost is the town of Ost",
        "Es ist die Stadt mit dem Turm und der Brücke",
    ],
)
def test_replies_that_cannot_be_read(reply: str) -> None:
    assert gibberish(ASKED, reply)


@pytest.mark.parametrize(
    "reply",
    [
        "Madrid",
        "The capital is Le Grand Châtelet, also known as the City of Light.",
        "I do not know.",
        "B) Kelbury",
        "Los Angeles de la Cruz",
    ],
)
def test_wrong_but_readable_replies(reply: str) -> None:
    assert not gibberish(ASKED, reply)


def test_a_reply_in_the_language_of_the_question() -> None:
    assert not gibberish("Quelle est la capitale de la France et du pays?", "La capitale de la France est Lyon.")


def test_language() -> None:
    assert language("The capital of the country is in the south") == "en"
    assert language("la ville de la lumière est grande") == "fr"
    assert language("Port Sel") is None


def test_repeated_ngrams() -> None:
    assert repeated_ngrams("one two three four five") == 0
    assert repeated_ngrams("a b c d a b c d") == pytest.approx(1 / 5)
    assert repeated_ngrams("a b") == 0
