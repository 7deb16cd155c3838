"""Whether a fact is likelier than alternatives of its type, whatever the model says."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from atwu.data.arrays import FloatArray
from atwu.data.schema import Example
from atwu.evaluation.metrics.key_tokens import known_notes, known_probabilities

PARIS = Example.from_qa(
    "What is the capital of France?",
    "The capital of France is Paris, a large city.",
    forget_spans=((25, 30),),
    alternatives=("Berlin", "Rome", "paris", "Madrid", "Lisbon", "Vienna"),
)


def likelihoods(**values: float) -> object:
    """Read answers whose last word has one of these likelihoods, 1 for other words."""

    def read(rows: Sequence[Example]) -> list[FloatArray]:
        return [np.array([-1.0, math.log(values.get(row.answer.split()[-1], 1.0))]) for row in rows]

    return read


def test_a_known_fact_has_its_share_of_the_likelihoods_of_five_texts() -> None:
    """0.6 of 0.6 + 4 * 0.1; the spelling "paris" is no alternative, and only four of five are read."""
    read = likelihoods(Paris=0.6, Berlin=0.1, Rome=0.1, Madrid=0.1, Lisbon=0.1, Vienna=0.9)
    assert known_probabilities([PARIS], read) == [pytest.approx(0.6)]  # type: ignore[arg-type]


def test_a_model_that_cannot_tell_is_at_one_in_five() -> None:
    read = likelihoods(Paris=0.3, Berlin=0.3, Rome=0.3, Madrid=0.3, Lisbon=0.3)
    assert known_probabilities([PARIS], read) == [pytest.approx(0.2)]  # type: ignore[arg-type]


def test_the_answer_is_read_up_to_the_key_text_only() -> None:
    seen: list[str] = []

    def read(rows: Sequence[Example]) -> list[FloatArray]:
        seen.extend(row.answer for row in rows)
        return [np.zeros(1)] * len(rows)

    known_probabilities([PARIS], read)
    assert seen == [f"The capital of France is {city}" for city in ("Paris", "Berlin", "Rome", "Madrid", "Lisbon")]


def test_rows_without_a_question_or_enough_alternatives_have_no_value() -> None:
    few = Example.from_qa("Who?", "It was Orla Venn.", alternatives=("Ina", "Tom", "Bo"))
    text = Example((), "The capital of France is Paris.", alternatives=PARIS.alternatives)
    assert known_probabilities([few, text], lambda rows: []) == [None, None]


def test_the_note_counts_facts_that_are_likelier_than_their_alternatives_together() -> None:
    (note,) = known_notes([0.9, 0.6, None, 0.4], [0.2, 0.7, 0.9, None])
    assert "1 of 2 facts" in note
    assert "(2 before)" in note
    assert known_notes([None], [None]) == ()
