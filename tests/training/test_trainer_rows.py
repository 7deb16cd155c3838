"""Rows of a trainer: labels, length, system turn, and too few rows."""

from __future__ import annotations

import dataclasses
import json

import datasets
import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.trainer_callback import TrainerCallback

from atwu import FinetuneConfig, FinetuneTrainer, UnlearnConfig, UnlearnTrainer, load_rows
from atwu.data import spool
from atwu.data.encode import Encoder
from atwu.data.schema import Example
from atwu.data.spool import DiskRows
from atwu.methods.weightings.token_scorer import TokenScorer
from atwu.training.training_rows import unlearning_rows
from atwu.training.unlearn_run import ModelSource, run_unlearn
from tests.modeling.small_models import small_model
from tests.training.conftest import make_rows, make_trainer, weights


def test_rows_without_labels_are_rejected_only_by_methods_that_need_labels(model_folder, tmp_path):
    rows = [*make_rows(3), Example.from_qa("Who?", "Nobody here.")]
    with pytest.raises(ValueError, match=r"forget_spans.*1 of 4 rows"):
        make_trainer(model_folder, tmp_path, method="gt_ga", rows=rows)
    assert len(make_trainer(model_folder, tmp_path, method="wga", rows=rows).train_dataset) == 4
    with pytest.raises(ValueError, match=r"'wga'.*retain_dataset"):
        unlearning_rows(rows, None, UnlearnConfig(method="wga"), tokenizer=AutoTokenizer.from_pretrained(model_folder))


@pytest.mark.parametrize("forget", [1, 3])
def test_fewer_rows_than_a_batch(forget, model_folder, tmp_path):
    trainer = make_trainer(
        model_folder, tmp_path, method="atwu", forget=forget, gradient_accumulation_steps=2, num_train_epochs=4
    )
    trainer.train()
    assert trainer.state.global_step == 4
    assert trainer.alternation.updates == 2


def test_answers_longer_than_max_length_are_truncated_with_a_warning(model_folder, tmp_path):
    with pytest.warns(UserWarning, match="24"):
        trainer = make_trainer(model_folder, tmp_path, method="wga", max_length=40)
    assert max(len(row.input_ids) for row in trainer.train_dataset.forget) == 40


@pytest.mark.parametrize("kind", ["gpt2", "opt", "gptj"])
def test_rows_longer_than_the_table_of_positions_are_rejected_before_training(kind, model_folder, tmp_path):
    tokenizer, model = AutoTokenizer.from_pretrained(model_folder), small_model(kind)
    model.resize_token_embeddings(len(tokenizer))
    limit, texts = model.config.max_position_embeddings, [*make_rows(3), Example.from_qa("Who?", "Orla Venn. " * 60)]
    longest = Encoder(tokenizer).encode(texts[-1]).input_ids
    told = f"a row has {len(longest)} tokens, but .* has {limit} positions; set max_length to {limit}"
    config = FinetuneConfig(str(tmp_path), use_cpu=True)
    with pytest.raises(ValueError, match=told):
        make_trainer(model_folder, tmp_path, model=model, method="wga", rows=texts)
    with pytest.raises(ValueError, match=told):
        FinetuneTrainer(model, config, train_dataset=texts, processing_class=tokenizer)
    with pytest.warns(UserWarning, match=f"max_length={limit} and were truncated"):
        make_trainer(model_folder, tmp_path, model=model, method="wga", rows=texts, max_length=limit)


def test_a_system_turn_is_added_to_every_row(model_folder, tmp_path):
    system, tokenizer = "You keep bees.", AutoTokenizer.from_pretrained(model_folder)
    rows = make_trainer(model_folder, tmp_path, method="dpo", system=system).train_dataset
    finetune = FinetuneTrainer(
        AutoModelForCausalLM.from_pretrained(model_folder),
        FinetuneConfig(output_dir=str(tmp_path), use_cpu=True, system=system),
        train_dataset=make_rows(4),
        processing_class=tokenizer,
    )
    for row in (*rows.forget, *rows.retain, *rows.alternates.rows, *finetune.train_dataset.forget):
        assert tokenizer.decode(row.prompt_ids).startswith(f"{system}\n\nQuestion: Where was")
    plain = make_trainer(model_folder, tmp_path, method="dpo").train_dataset
    assert [row.token_labels[row.answer_start :] for row in rows.forget] == [
        row.token_labels[row.answer_start :] for row in plain.forget
    ]


def test_references_are_found_with_dropped_last_batches(model_folder, tmp_path):
    """With `dataloader_drop_last` a run of fixed length has more epochs and other retain rows."""
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


@pytest.mark.parametrize(("rows", "options"), [(6, {"max_steps": 2}), (20, {"gradient_accumulation_steps": 4})])
def test_fewer_rows_than_a_step_form_one_step_if_incomplete_steps_are_dropped(rows, options, model_folder, tmp_path):
    settings = {"method": "grad_diff", "forget": rows, "per_device_train_batch_size": 8} | options
    trained = []
    for drop in (True, False):
        trainer = make_trainer(model_folder, tmp_path, dataloader_drop_last=drop, **settings)
        trainer.train()
        assert trainer.state.global_step == 2
        trained.append(weights(trainer))
    assert torch.equal(*trained)


def test_a_run_without_a_step_writes_no_result(model_folder, data_files, tmp_path, monkeypatch):
    monkeypatch.setattr(UnlearnConfig, "rows_per_epoch", lambda config, rows: 0)
    config = UnlearnConfig(method="grad_ascent", max_steps=5, use_cpu=True, disable_tqdm=True, save_strategy="no")
    with pytest.raises(ValueError, match="no training step"):
        run_unlearn(
            ModelSource(model=str(model_folder)),
            config,
            forget=str(data_files[0]),
            retain=None,
            output=tmp_path / "run",
        )
    assert not (tmp_path / "run").exists()


def test_a_word_list_labels_rows_without_spans(model_folder, tmp_path):
    rows = [dataclasses.replace(row, forget_spans=None) for row in make_rows(8)]
    words = tmp_path / "words.txt"
    words.write_text("# towns\nKelbury\nOststrand\nVale Cross\nMirrow\n")
    trainer = make_trainer(model_folder, tmp_path, method="gt_ga", rows=rows, forget_words=str(words))
    spans = make_trainer(model_folder, tmp_path, method="gt_ga", forget=8)
    labels = [row.token_labels for row in trainer.train_dataset.forget]
    assert labels == [row.token_labels for row in spans.train_dataset.forget]
    assert all(sum(row) > 0 for row in labels)


def test_rows_of_every_kind_train_alike(model_folder, data_files, tmp_path):
    files = [data_files[0], str(data_files[0])]
    records = [json.loads(line) for line in data_files[0].read_text().splitlines()]
    config = UnlearnConfig(output_dir=str(tmp_path), use_cpu=True, method="dpo", max_length=44)
    tokenizer, model = AutoTokenizer.from_pretrained(model_folder), AutoModelForCausalLM.from_pretrained(model_folder)
    made = []
    tables = datasets.Dataset.from_list(records), pd.DataFrame(records)
    for forget in (*files, load_rows(data_files[0]), records, *tables, make_rows(24)):
        with pytest.warns(UserWarning, match="forget: .*max_length=44"):
            trainer = UnlearnTrainer(
                model, config, forget_dataset=forget, retain_dataset=data_files[1], processing_class=tokenizer
            )
        made.append((trainer.train_dataset.forget, trainer.train_dataset.alternates))
    assert all(each == made[0] for each in made)


def test_arguments_of_the_transformers_trainer_raise_errors_with_the_right_name(model_folder, data_files, tmp_path):
    from transformers import TrainingArguments

    rows = {"forget_dataset": str(data_files[0]), "retain_dataset": str(data_files[1])}
    with pytest.raises(TypeError, match=r"args .*UnlearnConfig.*TrainingArguments"):
        UnlearnTrainer(str(model_folder), TrainingArguments(output_dir=str(tmp_path), use_cpu=True), **rows)
    with pytest.raises(TypeError, match="forget_dataset"):
        UnlearnTrainer(str(model_folder))
    config = UnlearnConfig(method="wga", output_dir=str(tmp_path), use_cpu=True)
    with pytest.raises(ValueError, match=r"scorer.*wga"):
        UnlearnTrainer(str(model_folder), config, scorer=TokenScorer(64), **rows)
    config = UnlearnConfig(method="atwu", output_dir=str(tmp_path), use_cpu=True)
    for scorer, message in (("x", r"TokenScorer, got str"), (TokenScorer(3), r"given scorer .*size 3, .*another")):
        with pytest.raises((TypeError, ValueError), match=message):
            UnlearnTrainer(str(model_folder), config, scorer=scorer, **rows)


@pytest.mark.parametrize(
    "options",
    [
        {"method": "satga", "weighting": "nouns+rarity", "noun_finder": "simple"},
        {"method": "npo", "retain_loss": "kl"},
    ],
    ids=lambda options: options["method"],
)
def test_rows_on_disk_train_as_rows_in_memory(options, model_folder, tmp_path, monkeypatch):
    trained = []
    for most in (3, 1000):
        monkeypatch.setattr(spool, "IN_MEMORY", most)
        monkeypatch.setenv("ATWU_CACHE", str(tmp_path / str(most)))
        trainer = make_trainer(model_folder, tmp_path, max_steps=3, **options)
        assert isinstance(trainer.sets["forget"].rows, DiskRows) == (most == 3)
        trainer.train()
        trained.append(
            (weights(trainer), trainer.state.log_history, [rows.fingerprint for rows in trainer.sets.values()])
        )
    (first, logs, prints), (second, same_logs, same_prints) = trained
    assert torch.equal(first, second)
    assert prints == same_prints
    assert [log.get("forget_loss") for log in logs] == [log.get("forget_loss") for log in same_logs]


def test_rows_are_trained_in_several_forms_and_paired_by_form(model_folder, tmp_path):
    trainer = make_trainer(model_folder, tmp_path, forget=4, forms="question,blank", max_steps=3)
    forms = trainer.rows.forms
    assert sorted(forms["forget"]) == ["blank"] * 4 + ["question"] * 4
    assert len(forms["retain"]) == 60
    data = trainer.train_dataset
    assert len(data) == 8
    assert all(forms["forget"][pair.forget[0]] == forms["retain"][row] for pair in data for row, _ in pair.retain)
    trainer.train()
    assert trainer.state.global_step == 3
    assert trainer.rows.forget.rows[0].token_labels is not None


def test_rows_in_other_syntax_are_unlearned_with_their_labels(model_folder, tmp_path):
    rows = [
        Example.from_qa(
            f"Where was {name} born?",
            f"{name} was born in {town}.",
            forget_spans=((len(name) + 13, len(name) + 13 + len(town)),),
        )
        for name, town in (("Orla Venn", "Kelbury"), ("Tavi Brook", "Mirrow"))
    ]
    trainer = make_trainer(model_folder, tmp_path, rows=rows, forms="question,syntax", max_steps=2)
    trainer.train()
    forget = trainer.rows.forget
    assert forget.forms == ("question", "cleft", "relative_clause") * 2
    answers = [row.answer for row in forget.examples]
    assert answers[1:3] == ["It was in Kelbury that Orla Venn was born.", "Kelbury is where Orla Venn was born."]
    assert all(any(row.token_labels) for row in forget.rows)


def test_further_retain_rows_replace_the_form_with_their_prompt(model_folder, tmp_path):
    written = make_trainer(model_folder, tmp_path, forget=4, forms="question,blank", max_steps=1).rows.retain
    blank = written.examples[written.forms.index("blank")]
    more = tmp_path / "more.jsonl"
    more.write_text(
        json.dumps({"question": blank.question, "answer": "Its own words."}) + '\n{"text": "Its own text."}\n'
    )
    found = make_trainer(
        model_folder, tmp_path, forget=4, forms="question,blank", further_retain=str(more), max_steps=1
    ).rows.retain
    assert len(found.rows) == len(written.rows) + 1
    said = [row.answer for row in found.examples if row.question == blank.question]
    assert said == ["Its own words."]
    assert found.forms[-2:] == ("blank", "question")


def test_rows_without_labels_have_none_in_any_form(model_folder, tmp_path):
    """The key tokens of forms are found by rule: an AUROC against them would say nothing."""
    unlabelled = [{"question": "Where was Orla Venn born?", "answer": "Orla Venn was born in Port Sel."}]
    for forms in ("question,blank", "blank,continuation"):
        found = make_trainer(model_folder, tmp_path, rows=unlabelled, forms=forms, max_steps=1).rows.forget
        assert all(row.token_labels is None for row in found.rows)
        assert [found.examples[-1].answer[start:end] for start, end in found.examples[-1].forget_spans] == ["Port Sel"]


class _Prefer(TrainerCallback):
    """Prefers other rows after each step."""

    def __init__(self):
        self.trainer = None

    def on_step_end(self, args, state, control, **kwargs):
        known = {state.global_step, state.global_step + 1}
        self.trainer.sampler.prefer(known, set(range(12)) - known)


def test_a_resumed_run_draws_the_same_known_and_damaged_rows(model_folder, tmp_path):
    settings = {"forget": 12, "max_steps": 8, "save_strategy": "steps", "save_steps": 5, "learning_rate": 5e-3}
    found = []
    for checkpoint in (None, str(tmp_path / "checkpoint-5")):
        prefer = _Prefer()
        prefer.trainer = make_trainer(model_folder, tmp_path, callbacks=[prefer], **settings)
        prefer.trainer.draw_damaged = True
        prefer.trainer.train(resume_from_checkpoint=checkpoint)
        found.append(weights(prefer.trainer))
    plain = make_trainer(model_folder, tmp_path / "plain", **settings)
    plain.train()
    assert torch.equal(*found)
    assert not torch.equal(weights(plain), found[0])


def test_further_texts_have_the_form_of_their_beginning(model_folder, tmp_path):
    more = tmp_path / "more.jsonl"
    texts = ["Did you know? It is so.", "Notes: It is so.", "It is so."]
    more.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    for forms, expected in [
        ("question,continuation,statement,heading", ("statement", "heading", "continuation")),
        ("question,statement", ("statement", "question", "question")),
    ]:
        given = {"forget": 4, "max_steps": 1, "forms": forms}
        trainer = make_trainer(model_folder, tmp_path, further_forget=str(more), further_retain=str(more), **given)
        assert trainer.rows.forms["forget"][-3:] == trainer.rows.forms["retain"][-3:] == expected


def test_retain_texts_count_from_where_they_break_off(model_folder, tmp_path):
    more = tmp_path / "more.jsonl"
    text, at = "Did you know? Orla was born in Sel, by the sea.", 31
    more.write_text(json.dumps({"text": text, "forget_spans": [[at, len(text)]]}) + '\n{"text": "It is so."}\n')
    unlabelled = [{"question": "Where was Orla Venn born?", "answer": "Orla Venn was born in Port Sel."}]
    given = {"rows": unlabelled, "forms": "question,continuation,statement", "max_steps": 1}
    trainer = make_trainer(model_folder, tmp_path, further_retain=str(more), **given)
    kept, tokenizer = trainer.rows.retain, trainer.processing_class
    said = [tokenizer.decode(row.counted(row.input_ids), skip_special_tokens=True) for row in kept.rows]
    assert kept.forms[-2:] == ("statement", "continuation")
    assert said[-2].strip() == "Sel, by the sea."
    assert text[at:].startswith("Sel")
    assert said[-1] in "It is so."
    plain = [place for place, form in enumerate(kept.forms[:-2]) if form != "question"]
    assert plain
    for place in plain:
        row = kept.examples[place]
        assert said[place].strip() == row.answer[row.forget_spans[0][0] :].strip()
    assert kept.examples[0].messages
    assert said[0].strip() == kept.examples[0].answer


def test_rows_in_further_forms_wait_until_answers_state_their_facts(model_folder, tmp_path):
    """The trained rows come first, with the turns that they have without waiting rows."""
    plain, waits = (
        make_trainer(model_folder, tmp_path, forget=4, forms="question,blank", forget_leaks=leaks, max_steps=2)
        for leaks in (False, True)
    )
    served, all_rows = plain.rows.forget.rows, waits.rows.forget
    assert tuple(all_rows.rows[: len(served)]) == tuple(served)
    assert len(all_rows.rows) == len(served) + all_rows.waiting
    waiting = set(all_rows.forms[len(served) :])
    assert waiting >= {"prefix", "missing_word", "textbook"}
    assert waiting.isdisjoint({"question", "blank", "emphasis", "yes_no", "cleft"})
    assert waiting <= set(waits.rows.retain.forms)
    turns = [[waits.train_dataset[key].forget[0] for key in waits.sampler], list(plain.sampler)]
    assert turns[0] == turns[1]
    waits.train()
    assert waits.state.global_step == plain.args.max_steps


@pytest.mark.parametrize("forms", ["none", "blank"])
def test_waiting_rows_need_the_rows_as_written_among_the_forms(forms, model_folder, tmp_path):
    with pytest.raises(ValueError, match=r"forget_leaks needs rows in forms.*auto"):
        make_trainer(model_folder, tmp_path, forms=forms, forget_leaks=True)
