"""Settings and rows that cannot be meant are named: conflicts of rows, frozen weights, a folder that two trainers share."""

from __future__ import annotations

import pytest
from transformers import AutoModelForCausalLM, TrainerCallback

from atwu.data.schema import Example
from atwu.training.row_sets import conflict_warnings
from tests.training.conftest import make_rows, make_trainer

QA = Example.from_qa


def test_forget_rows_inside_the_retain_set_are_refused_by_the_trainer_as_by_the_command(model_folder, tmp_path):
    rows = [*make_rows(4), QA("where was ORLA VENN (no. 24) born", "Nowhere.")]
    with pytest.raises(ValueError, match=r"retain set: row 1 is in the forget set, too \('Where was Orla Venn"):
        make_trainer(model_folder, tmp_path, rows=rows, method="grad_diff")


def test_different_answers_to_one_question_are_named_once_for_the_set():
    rows = [
        QA("Who is Orla?", "A baker."),
        QA("Who is Tavi?", "A clerk."),
        QA("Who is Orla?", "a baker"),
        QA("Who is Orla?", "A pilot."),
        QA("Who is Tavi?", "A judge."),
    ]
    (warning,) = conflict_warnings(rows)
    assert warning.startswith("rows 1 and 4, 2 and 5 give different answers to the same question")


def test_an_answer_that_is_its_question_is_named():
    rows = [QA("Who is Orla?", "A baker."), QA("Who is Tavi?", " who is tavi? ")]
    (warning,) = conflict_warnings(rows)
    assert warning.startswith("the answer of row 2 is its question")


def test_rows_without_a_question_and_exact_repeats_give_no_warning():
    rows = [
        QA("Who is Orla?", "A baker."),
        QA("Who is Orla?", "A baker."),
        Example((), "A text."),
        Example((), "More."),
    ]
    assert list(conflict_warnings(rows)) == []


def test_a_trainer_warns_of_such_rows(model_folder, tmp_path):
    rows = [*make_rows(4), QA(make_rows(1)[0].question, "Somewhere else.")]
    with pytest.warns(UserWarning, match=r"forget set: rows 1 and 5 give different answers"):
        make_trainer(model_folder, tmp_path, rows=rows, method="grad_diff")


def test_frozen_weights_are_refused(model_folder, tmp_path):
    model = AutoModelForCausalLM.from_pretrained(model_folder).requires_grad_(False)
    trainer = make_trainer(model_folder, tmp_path, model=model, method="grad_diff", max_steps=1)
    with pytest.raises(ValueError, match="all weights of the model are frozen"):
        trainer.train()


def test_a_second_trainer_in_the_same_folder_is_refused_while_the_first_trains(model_folder, tmp_path):
    saving = {"method": "grad_diff", "max_steps": 2, "save_strategy": "steps", "save_steps": 2}
    second = make_trainer(model_folder, tmp_path, **saving)
    refused: list[str] = []

    class StartsAnother(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            with pytest.raises(FileExistsError) as caught:
                second.train()
            refused.append(str(caught.value))

    make_trainer(model_folder, tmp_path, callbacks=[StartsAnother()], **saving).train()
    assert len(refused) == 2
    assert "another trainer writes its checkpoints into" in refused[0]
    second.train()
    assert second.state.global_step == 2
