"""Word salad in a table of facts is found by the original model, which reads the answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from atwu.data.arrays import FloatArray
from atwu.data.schema import Example
from atwu.evaluation.facts.fact_table import AS_SAVED, BETWEEN_DRAWS, FactAnswer, FactTable, mark_unreadable
from atwu.evaluation.teacher_forced import OriginalReader

OWN = (Example.from_qa("What is bread?", "Bread is a food."), Example.from_qa("Who are you?", "I am a model."))


class _Reader(OriginalReader):
    """Finds what contains "flarn" unlikely, and everything else as likely as its own answers."""

    def read(self, rows: Sequence[Example], answers: Sequence[str]) -> FloatArray:
        return np.array([-9.0 if "flarn" in answer else -1.0 for answer in answers])


def record(answer: str, *, unreadable: bool = False) -> FactAnswer:
    return FactAnswer("forget", 0, "as written", AS_SAVED, "Who?", answer, False, False, unreadable)


def test_answers_that_the_original_model_finds_unlikely_cannot_be_read() -> None:
    said = ["flarn blick gorp snoot", "I'm sorry, I don't know.", "x = re.sub(r'\\s+', ' ', text)"]
    table = mark_unreadable(FactTable(tuple(map(record, said))), _Reader(None, None), OWN)
    assert [answer.unreadable for answer in table.records] == [True, False, False]
    assert [answer.answer for answer in table.records] == said


def test_broken_answers_stay_marked_and_choices_are_not_read() -> None:
    broken, choices = record("", unreadable=True), record(f"A) flarn{BETWEEN_DRAWS}B) flarn")
    table = mark_unreadable(FactTable((broken, choices)), _Reader(None, None), OWN)
    assert [answer.unreadable for answer in table.records] == [True, False]


def test_equal_answers_are_read_once_and_refusals_not_at_all() -> None:
    read: list[str] = []

    class Counting(_Reader):
        def read(self, rows: Sequence[Example], answers: Sequence[str]) -> FloatArray:
            read.extend(answers)
            return super().read(rows, answers)

    salad = record("flarn blick gorp snoot")
    refusal = dataclasses.replace(record("I'm sorry, I don't know."), refused=True)
    rounded = dataclasses.replace(salad, state="4 bits")
    table = mark_unreadable(FactTable((salad, refusal, rounded)), Counting(None, None), OWN)
    assert [answer.unreadable for answer in table.records] == [True, False, True]
    assert read == [row.answer for row in OWN] + [salad.answer]
