"""Which of the rows trained on count as known during a run, and in which precision they are read."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from atwu.benchmarks.people.people_rows import people
from atwu.data.encode import Encoder
from atwu.data.question_forms import OPTION_FORMS
from atwu.data.schema import Example
from atwu.evaluation.backends import TransformersGenerator
from atwu.request import goal_evaluations
from atwu.request.goal_evaluations import ControllerGoals, ControllerRows, GoalEvaluations
from atwu.training.config import UnlearnConfig
from atwu.training.row_sets import RowSet, encode_dataset

PEOPLE = people("tiny")
NEVER_SEEN = [Example.from_qa("Where does Zorblax Quimby live?", "Zorblax Quimby lives in Wexelburg.")]


def evaluations(model_folder: Path, rows: RowSet) -> GoalEvaluations:
    trainer = SimpleNamespace(
        model=AutoModelForCausalLM.from_pretrained(model_folder),
        rows=SimpleNamespace(forget=rows),
        sharded=True,  # measured in this process
        args=UnlearnConfig(),
    )
    goals = ControllerGoals(0.3, 0.1, 0.15, accepted_probability=0.3)
    return GoalEvaluations(trainer, ControllerRows((), (), None), goals)  # type: ignore[arg-type]


def encoded(model_folder: Path, rows: list[Example], forms: tuple[str, ...]) -> RowSet:
    return encode_dataset(rows, AutoTokenizer.from_pretrained(model_folder), what="forget", max_length=128, forms=forms)


def test_memorized_rows_are_known_and_rows_never_seen_are_not(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = list(PEOPLE.forget[:4])
    measured = evaluations(target, encoded(target, known + NEVER_SEEN, ()))
    assert measured.known_rows() == ([0, 1, 2, 3], [4])
    monkeypatch.setattr(goal_evaluations, "MAX_TRAINED_ROWS", 4)
    assert measured.known_rows() == ([], [])


def test_rows_that_list_the_key_text_count_as_neither(target: Path) -> None:
    rows = encoded(target, list(PEOPLE.forget), ("question", "multiple_choice"))
    assert rows.forms is not None
    found = evaluations(target, rows).known_rows()
    options = {place for place, form in enumerate(rows.forms) if form in OPTION_FORMS}
    assert options
    assert {*found[0], *found[1]} == set(range(len(rows.rows))) - options


def test_rows_are_read_in_bfloat16_and_answers_checked_as_saved(target: Path) -> None:
    measured, tokenizer = evaluations(target, encoded(target, NEVER_SEEN, ())), AutoTokenizer.from_pretrained(target)
    model = measured.trainer.model
    measured.trainer.args = UnlearnConfig(bf16=True, use_cpu=True)
    measured.rows = SimpleNamespace(answers=SimpleNamespace(encoder=Encoder(tokenizer)))  # type: ignore[assignment]
    asked = measured._check_answers(lambda generator: generator.identity)
    assert asked == TransformersGenerator(model, tokenizer).identity
    assert "/float32/" in asked
    with measured._rounded():
        assert model.dtype == torch.bfloat16
    assert model.dtype == torch.float32
