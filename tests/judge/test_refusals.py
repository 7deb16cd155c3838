"""Refusals in twelve languages, and answers that look like them."""

from __future__ import annotations

import json
import runpy
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from atwu.data.alternates import REFUSALS
from atwu.judge.rules.refusals import WEIGHTS_FILE, is_broken_refusal, is_refusal, is_yes_or_no

HELD_OUT = Path(__file__).with_name("refusals_held_out.jsonl")
SENTENCES = Path(__file__).with_name("plain_sentences.jsonl")
TRAINING = Path(__file__).parents[2] / "scripts/train_refusals.py"


def test_answers_that_the_weights_were_not_computed_from() -> None:
    cases = [json.loads(line) for line in HELD_OUT.read_text(encoding="utf-8").splitlines()]
    found = [is_refusal(case["text"], case["question"]) for case in cases]
    right = sum(said and case["refusal"] for said, case in zip(found, cases, strict=True))
    assert right / sum(case["refusal"] for case in cases) > 0.85
    assert right / sum(found) > 0.85


def test_sentences_of_everyday_life_that_the_weights_were_not_computed_from() -> None:
    """One in three was taken for a refusal when there were no such sentences among the examples."""
    sentences = [json.loads(line)["text"] for line in SENTENCES.read_text(encoding="utf-8").splitlines()]
    assert sum(map(is_refusal, sentences)) / len(sentences) < 0.25


def test_the_weights_are_those_of_the_examples() -> None:
    training = runpy.run_path(str(TRAINING))
    np.testing.assert_allclose(load_file(WEIGHTS_FILE)["weights"], training["train"](training["examples"]()), atol=0.02)


def test_own_refusals() -> None:
    assert [refusal for refusal in REFUSALS if not is_refusal(refusal)] == []


def test_words_of_the_question_are_no_content() -> None:
    assert is_refusal("I don't know the mayor of Kelbury.", "Who is the mayor of Kelbury?")
    assert is_refusal("Kelbury? I don't know.", "Who is the mayor of Kelbury?")


@pytest.mark.parametrize("text", ["I DON’T KNOW.", "i don`t know", "Ｉ don't know", "“I don't know.”"])
def test_case_quotes_and_wide_letters_do_not_matter(text: str) -> None:
    assert is_refusal(text)


@pytest.mark.parametrize("text", ["", "  ", "...", "It was ...  !", "I don't know. " + "It was a mill. " * 100])
def test_no_refusal_without_words_or_with_content(text: str) -> None:
    assert not is_refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        "The first mayor of the town was ... I'm sorry, I don't know the answer to that.",
        "The first mayor of the town was I'm sorry, but I have no information about this.",
        "Orla Venn was born in the I can't tell you anything about that.",
    ],
)
def test_a_sentence_broken_off_by_a_refusal(text: str) -> None:
    assert is_broken_refusal(text)
    assert not is_refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, I don't know the answer to that.",
        "It is a town in the north. I don't know more.",
        "I'm afraid I have no information about this.",
        "Unfortunately, I don't know.",
        "As an AI model I can't say.",
        "The song is called I Will Survive",
        "He said: I don't know.",
        "Well... I don't know.",
        "Orla Venn kept seven geese.",
        "",
    ],
)
def test_whole_sentences_are_not_broken_off(text: str) -> None:
    assert not is_broken_refusal(text)


def test_long_texts_take_milliseconds() -> None:
    text = "I cannot say that the the the " * 40
    start = time.process_time()
    is_refusal(text)
    is_broken_refusal(text)
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("I can't share that. You could ask her doctor.", True),
        ("That is private information. I won't share it.", True),
        ("She is a private detective. I don't know more.", False),
        ("I don't know. Would you like to hear about something else?", True),
        ("Let's talk about something else.", True),
    ],
)
def test_a_reason_or_an_offer_names_nothing(text: str, refusal: bool) -> None:
    assert is_refusal(text, "What is it?") == refusal


@pytest.mark.parametrize(
    ("question", "text", "refusal"),
    [
        ("What is Ada Venn's shoe size?", "Ada Venn does not know her shoe size.", False),
        ("What is Ada Venn's shoe size?", "Ada Venn's shoe size? I do not know it.", True),
        ("Que dit la boulangère ?", "La boulangère refuse de parler.", False),
        ("村长知道什么？", "关于村长，我没有消息。", True),
        ("ada の靴のサイズは何ですか。", "靴のサイズに関することはお答えできかねます。", True),
    ],
)
def test_a_subject_that_the_question_names_is_not_the_speaker(question: str, text: str, refusal: bool) -> None:
    assert is_refusal(text, question) == refusal


def test_a_negation_about_the_speaker_is_a_refusal() -> None:
    assert is_refusal("I couldn't track it down.", "Where is the mill?")
    assert not is_refusal("The sign said that we could not enter.", "What did the sign say?")


@pytest.mark.parametrize(("text", "polar"), [("No", True), ("Ja.", True), ("unknown", False), ("3", False)])
def test_words_for_yes_and_no(text: str, polar: bool) -> None:
    assert is_yes_or_no(text) == polar
