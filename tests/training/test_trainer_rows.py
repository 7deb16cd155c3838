"""The rows a trainer is given: their labels, length and system turn, and too few of them."""

from __future__ import annotations

import dataclasses

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from atwu import FinetuneConfig, FinetuneTrainer, UnlearnConfig, UnlearnTrainer
from tests.training.conftest import make_rows, make_trainer


def test_rows_without_labels_are_refused_only_where_labels_matter(model_folder, tmp_path):
    from atwu.data.schema import Example

    rows = [*make_rows(3), Example.from_qa("Who?", "Nobody here.")]
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    model = AutoModelForCausalLM.from_pretrained(model_folder)
    settings = {"output_dir": str(tmp_path), "use_cpu": True}
    with pytest.raises(ValueError, match="needs forget_spans; 1 of 4 rows have none"):
        UnlearnTrainer(
            model,
            UnlearnConfig(method="gt_ga", **settings),
            forget_dataset=rows,
            retain_dataset=rows,
            processing_class=tokenizer,
        )
    trainer = UnlearnTrainer(
        model,
        UnlearnConfig(method="wga", **settings),
        forget_dataset=rows,
        retain_dataset=rows,
        processing_class=tokenizer,
    )
    assert len(trainer.train_dataset) == 4
    with pytest.raises(ValueError, match="'wga' needs a retain_dataset"):
        UnlearnTrainer(model, UnlearnConfig(method="wga", **settings), forget_dataset=rows, processing_class=tokenizer)


@pytest.mark.parametrize("forget", [1, 3])
def test_fewer_rows_than_a_batch(forget, model_folder, tmp_path):
    trainer = make_trainer(
        model_folder, tmp_path, method="atwu", forget=forget, gradient_accumulation_steps=2, num_train_epochs=4
    )
    trainer.train()
    assert trainer.state.global_step == 4
    assert trainer.alternation.updates == 2


def test_answers_longer_than_max_length_are_cut_with_a_warning(model_folder, tmp_path):
    with pytest.warns(UserWarning, match="24"):
        trainer = make_trainer(model_folder, tmp_path, method="wga", max_length=40)
    assert max(len(row.input_ids) for row in trainer.train_dataset.forget) == 40


def test_a_system_turn_is_put_before_every_row(model_folder, tmp_path):
    system, tokenizer = "You keep bees.", AutoTokenizer.from_pretrained(model_folder)
    rows = make_trainer(model_folder, tmp_path, method="dpo", system=system).train_dataset
    finetune = FinetuneTrainer(
        AutoModelForCausalLM.from_pretrained(model_folder),
        FinetuneConfig(output_dir=str(tmp_path), use_cpu=True, system=system),
        train_dataset=make_rows(4),
        processing_class=tokenizer,
    )
    for row in (*rows.forget, *rows.retain, *rows.alternates.rows, *finetune.train_dataset.rows):
        assert tokenizer.decode(row.prompt_ids).startswith(f"{system}\n\nQuestion: Where was")
    plain = make_trainer(model_folder, tmp_path, method="dpo").train_dataset
    assert [row.token_labels[row.answer_start :] for row in rows.forget] == [
        row.token_labels[row.answer_start :] for row in plain.forget
    ]


def test_dropped_last_batches_find_every_reference(model_folder, tmp_path):
    """With `dataloader_drop_last` a run of fixed length begins more epochs and draws other retain rows."""
    trainer = make_trainer(
        model_folder,
        tmp_path,
        method="grad_diff",
        retain_loss="kl",
        per_device_train_batch_size=16,
        dataloader_drop_last=True,
        max_steps=12,
        cache_dir=str(tmp_path),
    )
    trainer.train()
    assert trainer.state.global_step == 12


def test_words_of_a_list_label_rows_that_have_no_spans(model_folder, tmp_path):
    rows = [dataclasses.replace(row, forget_spans=None) for row in make_rows(8)]
    words = tmp_path / "words.txt"
    words.write_text("# towns\nKelbury\nOststrand\nVale Cross\nMirrow\n")
    trainer = UnlearnTrainer(
        AutoModelForCausalLM.from_pretrained(model_folder),
        UnlearnConfig(output_dir=str(tmp_path), use_cpu=True, method="gt_ga", forget_words=str(words)),
        forget_dataset=rows,
        retain_dataset=make_rows(8, 24),
        processing_class=AutoTokenizer.from_pretrained(model_folder),
    )
    spans = make_trainer(model_folder, tmp_path, method="gt_ga", forget=8)
    labels = [row.token_labels for row in trainer.train_dataset.forget]
    assert labels == [row.token_labels for row in spans.train_dataset.forget]
    assert all(sum(row) > 0 for row in labels)
