"""Gibberish and refusals; perplexity of general text."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from atwu.data.encode import Encoder
from atwu.data.general_rows import general_text
from atwu.data.schema import Example
from atwu.evaluation.evaluate import evaluate
from atwu.evaluation.metrics.fluency import gibberish, language, perplexity, repeated_ngrams
from atwu.modeling.scratch import scratch_model, train_tokenizer

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


ROWS = [Example.from_qa(f"What does {name} keep?", "Seven geese.") for name in ("Orla Venn", "Tavi Brook")]


def test_worked_example():
    assert perplexity(np.float64(0.25)) == 4.0
    assert perplexity(np.array([1.0, 0.5])).tolist() == [1.0, 2.0]


def test_perplexity_equals_a_plain_computation():
    tokenizer = train_tokenizer([text.answer for text in general_text()], vocab_size=300)
    model = scratch_model("micro").eval()
    found = evaluate(model, tokenizer, forget=ROWS, metrics="general_text", progress=False)
    each = []
    for row in Encoder(tokenizer).encode_rows(general_text(), what="general_text").rows:
        ids = torch.tensor([row.input_ids])
        with torch.no_grad():
            each.append(float(torch.exp(-model(input_ids=ids, labels=ids).loss)))
    assert found.rows["general_text"].metrics["general_text_probability"] == pytest.approx(each, rel=1e-5)
    value = found.overall["general_text_perplexity"]
    assert (value.value, value.n, value.direction) == (pytest.approx(1 / np.mean(each), rel=1e-5), 8, "down")
    assert value.low < value.value < value.high
