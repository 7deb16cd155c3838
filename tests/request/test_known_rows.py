"""Which of the rows trained on count as known during a run, and in which precision they are read."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from atwu.benchmarks.people_rows import people
from atwu.data.encode import Encoder
from atwu.data.question_forms import OPTION_FORMS
from atwu.data.schema import Example
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.metrics.key_tokens import fact_probability, key_token_probability
from atwu.evaluation.teacher_forced import TokenRow
from atwu.request import goal_evaluations
from atwu.request.goal_evaluations import ControllerRows, GoalEvaluations, KnownRows
from atwu.training.config import UnlearnConfig
from atwu.training.row_sets import RowSet, encode_dataset

PEOPLE = people("tiny")
NEVER_SEEN = [Example.from_qa("Where does Zorblax Quimby live?", "Zorblax Quimby lives in Wexelburg.")]


def evaluations(model_folder: Path, rows: RowSet) -> GoalEvaluations:
    trainer = SimpleNamespace(
        model=AutoModelForCausalLM.from_pretrained(model_folder),
        rows=SimpleNamespace(forget=rows),
        sharded=True,  # measured in this process
        lr_scheduler=None,
        args=UnlearnConfig(),
    )
    return GoalEvaluations(trainer, ControllerRows((), None), 0.15)  # type: ignore[arg-type]


def encoded(model_folder: Path, rows: list[Example], forms: tuple[str, ...]) -> RowSet:
    return encode_dataset(rows, AutoTokenizer.from_pretrained(model_folder), what="forget", max_length=128, forms=forms)


def test_memorized_rows_are_known_and_rows_never_seen_are_not(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = list(PEOPLE.forget[:4])
    measured = evaluations(target, encoded(target, known + NEVER_SEEN, ()))
    record, rows = measured.measure(5)
    assert rows == KnownRows([0, 1, 2, 3], [4])
    assert (record.step, record.known_rows, record.measured_rows, record.known_share) == (5, 4, 5, 0.8)
    monkeypatch.setattr(goal_evaluations, "MAX_MEASURED_ROWS", 3)
    record, rows = measured.measure(10)
    assert record.measured_rows == len(rows.known) + len(rows.forgotten) == 3


@pytest.mark.parametrize(
    ("asked", "year", "probability"),
    [
        ((0.8, 0.9), 1e-6, 0.8),  # a mean over both parts would hide the illness behind the year
        ((1e-4, 1.0), 0.9, 1e-4),  # and a mean over the illness takes a certain ending for knowledge
    ],
)
def test_a_row_is_known_while_each_token_of_its_asked_part_is(
    asked: tuple[float, float], year: float, probability: float
) -> None:
    answer = "Anna Berg has acute gout, diagnosed in 2019."
    words = [match.span() for match in re.finditer(r"[\w']+", answer)]
    spans = ((words[3][0], words[4][1]), words[7])
    row = Example.from_qa("What illness does Anna Berg have?", answer, forget_spans=spans)
    logps = np.log([0.9, 0.9, 0.9, *asked, 0.9, 0.9, year])
    read = TokenRow(np.zeros(8), np.zeros(8), logps, None, None, None, tuple(words))
    assert fact_probability(row, read) == pytest.approx(probability)


def test_of_a_text_all_words_known_by_heart_count() -> None:
    text = Example((), "To be or not", forget_spans=((6, 12),), chance_run=3)
    words = ((0, 2), (3, 5), (6, 8), (9, 12))
    read = TokenRow(np.zeros(4), np.zeros(4), np.log([1.0, 1.0, 0.25, 1.0]), None, None, None, words)
    assert fact_probability(text, read) == key_token_probability(text, read) == pytest.approx(0.5)


def test_rows_that_list_the_key_text_count_as_neither(target: Path) -> None:
    rows = encoded(target, list(PEOPLE.forget), ("question", "multiple_choice"))
    assert rows.forms is not None
    _, found = evaluations(target, rows).measure(0)
    options = {place for place, form in enumerate(rows.forms) if form in OPTION_FORMS}
    assert options
    assert {*found.known, *found.forgotten} == set(range(len(rows.rows))) - options


def test_rows_are_read_in_bfloat16_and_answers_checked_as_saved(target: Path) -> None:
    measured, tokenizer = evaluations(target, encoded(target, NEVER_SEEN, ())), AutoTokenizer.from_pretrained(target)
    model = measured.trainer.model
    measured.trainer.args = UnlearnConfig(bf16=True, use_cpu=True)
    asked: list[str] = []

    def find_leak(generator: TransformersGenerator, **_: object) -> None:
        asked.append(generator.identity)

    check = SimpleNamespace(encoder=Encoder(tokenizer), find_leak=find_leak)
    measured.rows = SimpleNamespace(answers=check)  # type: ignore[assignment]
    assert measured.find_leak() is None
    assert asked == [TransformersGenerator(model, tokenizer).identity]
    assert "/float32/" in asked[0]
    with measured._rounded():
        assert model.dtype == torch.bfloat16
    assert model.dtype == torch.float32
