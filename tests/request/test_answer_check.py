"""Which leak the check of greedy answers reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from atwu.data.schema import Example
from atwu.evaluation.columns import FORGET
from atwu.evaluation.generations import Prompt
from atwu.request.measurement import AnswerCheck

ROWS = (
    Example.from_qa("What is the capital of Japan?", "The capital of Japan is Tokyo.", subject="Japan"),
    Example.from_qa("What is the currency of Japan?", "The currency of Japan is the yen.", subject="Japan"),
)


class Answers(AnswerCheck):
    """A check with a model that answers every question that holds some text with a fact, others with nothing."""

    def _answers(self, model: Any, prompts: Sequence[Prompt]) -> list[str]:
        asked = [prompt.messages[-1].content if prompt.messages else prompt.prefill for prompt in prompts]
        return [next((fact for text, fact in model.items() if text in question), "") for question in asked]


CHECK = Answers({FORGET: ROWS}, None, None, 0.1)


def test_rows_as_written_leak_more_than_any_form() -> None:
    leak = CHECK.find_leak({"What is the capital": "Tokyo"})
    assert leak is not None
    assert leak.excess == pytest.approx(1 + 0.5 - 0.1)
    assert leak.text == "key-token recall of greedy answers is 0.500 (goal 0.100)"


def test_the_excess_of_forms_is_their_mean_and_the_text_names_the_worst() -> None:
    leak = CHECK.find_leak({"Fill in the blank: The capital of Japan": "Tokyo"})
    assert leak is not None
    assert "recall in the form blank is 0.500 (goal 0.100)" in leak.text
    both = CHECK.find_leak({"Fill in the blank: The": "Tokyo or yen"})
    assert both is not None
    assert both.excess == pytest.approx(2 * leak.excess)
    assert 0 < leak.excess < 0.1


def test_without_the_facts_there_is_no_leak() -> None:
    assert CHECK.find_leak({}) is None
