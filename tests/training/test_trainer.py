"""The trainer: scaling under accumulation, what changes and what does not, the scorer's schedule, stopping, saving."""

from __future__ import annotations

import dataclasses
import json
import shutil

import pytest
import torch
from tests.training.conftest import make_rows
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback

from atwu import FinetuneConfig, FinetuneTrainer, TokenScorer, UnlearnConfig, UnlearnTrainer, unlearning_loss
from atwu.methods import METHODS
from atwu.modeling.abilities import abilities_of
from atwu.training.errors import NonFiniteLossError


def make_trainer(folder, output, *, forget=24, callbacks=None, **changes):
    settings = {
        "output_dir": str(output),
        "use_cpu": True,
        "disable_tqdm": True,
        "save_strategy": "no",
        "learning_rate": 1e-3,
        "num_train_epochs": 2,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 1,
        "scorer_every": 2,
    } | changes
    return UnlearnTrainer(
        AutoModelForCausalLM.from_pretrained(folder),
        UnlearnConfig(**settings),
        forget_dataset=make_rows(forget),
        retain_dataset=make_rows(30, 24),
        processing_class=AutoTokenizer.from_pretrained(folder),
        callbacks=callbacks,
    )


def weights(trainer):
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])


@pytest.mark.parametrize("method", ["grad_diff", "wga", "gt_ga", "atwu"])
def test_eight_by_one_equals_one_by_eight(method, model_folder, tmp_path):
    trainers = []
    for rows, steps in ((8, 1), (1, 8), (2, 4)):
        trainer = make_trainer(
            model_folder,
            tmp_path,
            method=method,
            per_device_train_batch_size=rows,
            gradient_accumulation_steps=steps,
            scorer_max_grad_norm=0.0,
        )
        trainer.train()
        trainers.append(trainer)
    start = make_trainer(model_folder, tmp_path)
    moved = (weights(trainers[0]) - weights(start)).abs().max()
    for other in trainers[1:]:
        assert (weights(other) - weights(trainers[0])).abs().max() < 1e-3 * moved
        if method == "atwu":
            assert trainers[0].alternation.updates == 3
            assert trainers[0].scorer.linear.weight.abs().max() > 1e-3
            torch.testing.assert_close(
                other.scorer.linear.weight, trainers[0].scorer.linear.weight, atol=1e-6, rtol=1e-4
            )
        logged = [entry["forget_loss"] for entry in other.state.log_history if "forget_loss" in entry]
        expected = [entry["forget_loss"] for entry in trainers[0].state.log_history if "forget_loss" in entry]
        assert logged == pytest.approx(expected, abs=1e-4)


NEEDS = {
    "fundial": lambda folder: {"noun_finder": "simple"},
    "su_llm": lambda folder: {"auxiliary_forget": str(folder), "auxiliary_retain": str(folder)},
}


@pytest.mark.parametrize("method", list(METHODS))
def test_every_method_takes_two_steps(method, model_folder, tmp_path):
    options = NEEDS.get(method, lambda folder: {})(model_folder)
    trainer = make_trainer(
        model_folder, tmp_path, method=method, max_steps=2, weight_decay=0.0, cache_dir=str(tmp_path), **options
    )
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    trainer.train()
    logs = [entry for entry in trainer.state.log_history if "forget_loss" in entry]
    assert len(logs) == 2
    assert all(torch.isfinite(torch.tensor(entry["loss"])) for entry in logs)
    recipe = trainer.recipe
    assert ("retain_loss" in logs[0]) == recipe.needs_retain
    assert (trainer.scorer is not None) == recipe.needs_scorer
    if trainer.scorer is not None:
        assert trainer.alternation.updates == 1
        assert "scorer_loss" not in logs[0]
        assert "scorer_loss" in logs[1]
    assert ("score_auroc" in logs[0]) == (recipe.weighting not in ("uniform", "labels"))
    moved = {name for name, value in trainer.model.state_dict().items() if not torch.equal(value, before[name])}
    if method == "rmu":
        layers = trainer.model.config.num_hidden_layers
        assert moved == {f"model.layers.{layer}.mlp.down_proj.weight" for layer in range(max(0, layers - 3), layers)}
    else:
        assert moved == {name for name in before if "rotary" not in name}


def test_logged_parts_make_up_the_loss(model_folder, tmp_path):
    trainer = make_trainer(model_folder, tmp_path, method="satimp", gradient_accumulation_steps=2)
    trainer.train()
    for entry in trainer.state.log_history:
        if "forget_loss" in entry:
            total = 0.87 * entry["forget_loss"] + 0.49 * entry["retain_loss"]
            assert entry["loss"] == pytest.approx(total, abs=1e-5)
            assert 0 <= entry["selected"] <= 1


def test_the_scorer_learns_after_the_model_step_on_schedule(model_folder, tmp_path):
    rates = []
    trainer = make_trainer(model_folder, tmp_path, method="atwu", num_train_epochs=3, scorer_every=3)

    class Watch(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            rates.append(
                (state.global_step, trainer.alternation.updates, trainer.alternation.optimizer.param_groups[0]["lr"])
            )

    trainer.add_callback(Watch())
    trainer.train()
    assert trainer.state.max_steps == 18
    assert [updates for _, updates, _ in rates] == [step // 3 for step in range(1, 19)]
    after_update = [rate for step, _, rate in rates if step % 3 == 0]
    assert after_update == pytest.approx([0.05 * (1 - k / 6) for k in range(6)])


def test_scorer_sees_what_the_model_step_computed(model_folder, tmp_path):
    """No forward pass belongs to the scorer: the model runs once per micro-batch, whatever the method."""
    for method in ("grad_diff", "atwu"):
        trainer = make_trainer(model_folder, tmp_path, method=method, gradient_accumulation_steps=3)
        abilities_of(trainer.model, trainer.args.device)  # the trial passes before the first step
        calls = []
        trainer.model.model.register_forward_pre_hook(lambda *_: calls.append(1))
        trainer.train()
        assert len(calls) == 12
        assert trainer.alternation is None or trainer.alternation.updates == 2


@pytest.mark.parametrize(
    ("poisoned", "message"),
    [
        (4, r"weights are not finite after step 4; the last good checkpoint is .*checkpoint-2"),
        (5, r"loss is not finite at step 6 \(rows \[.*\]\); the last good checkpoint is .*checkpoint-4"),
    ],
)
def test_numbers_that_are_not_finite_stop_the_run(poisoned, message, model_folder, tmp_path):
    class Poison(TrainerCallback):
        def on_step_end(self, args, state, control, model=None, **kwargs):
            if state.global_step == poisoned:
                with torch.no_grad():
                    next(model.parameters()).fill_(float("nan"))

    trainer = make_trainer(
        model_folder, tmp_path, method="grad_diff", save_strategy="steps", save_steps=2, callbacks=[Poison()]
    )
    with pytest.raises(NonFiniteLossError, match=message):
        trainer.train()


def test_an_interrupted_save_leaves_the_last_checkpoint(model_folder, tmp_path, monkeypatch):
    trainer = make_trainer(model_folder, tmp_path, method="atwu", save_strategy="steps", save_steps=3)
    original = trainer._save_optimizer_and_scheduler

    def dies_at_six(folder):
        original(folder)
        if trainer.state.global_step == 6:
            raise KeyboardInterrupt

    monkeypatch.setattr(trainer, "_save_optimizer_and_scheduler", dies_at_six)
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-3"]
    resumed = make_trainer(model_folder, tmp_path, method="atwu", save_strategy="steps", save_steps=3)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    shutil.rmtree(tmp_path)
    whole = make_trainer(model_folder, tmp_path, method="atwu")
    whole.train()
    assert torch.equal(weights(resumed), weights(whole))
    assert torch.equal(resumed.scorer.linear.weight, whole.scorer.linear.weight)


def test_checkpoints_hold_the_scorer_and_no_pickle_of_ours(model_folder, tmp_path):
    trainer = make_trainer(
        model_folder, tmp_path, method="atwu", save_strategy="steps", save_steps=6, save_total_limit=1
    )
    trainer.train()
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-12"]
    names = {path.name for path in (tmp_path / "checkpoint-12").iterdir()}
    assert {"model.safetensors", "scorer.safetensors", "scorer_optimizer.safetensors", "scorer_progress.json"} <= names
    assert "training_args.bin" not in names
    assert json.loads((tmp_path / "checkpoint-12" / "scorer_progress.json").read_text()) == {"updates": 6}
    loaded = TokenScorer.from_pretrained(tmp_path / "checkpoint-12")
    assert torch.equal(loaded.linear.weight, trainer.scorer.linear.weight)


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


def test_logged_parts_do_not_depend_on_logging_steps_or_a_resume(model_folder, tmp_path):
    options = {"method": "atwu", "save_strategy": "steps", "save_steps": 4}
    every = make_trainer(model_folder, tmp_path / "a", **options)
    every.train()
    parts = {e["step"]: e for e in every.state.log_history if "forget_loss" in e}
    sparse = make_trainer(model_folder, tmp_path / "b", logging_steps=4, **options)
    sparse.train()
    for entry in (e for e in sparse.state.log_history if "forget_loss" in e):
        window = [parts[step] for step in range(entry["step"] - 3, entry["step"] + 1)]
        for name in ("forget_loss", "retain_loss", "mean_score", "scorer_loss"):
            values = [e[name] for e in window if name in e]
            assert entry[name] == pytest.approx(sum(values) / len(values), abs=1e-5)
    shutil.rmtree(tmp_path / "a")
    whole = make_trainer(model_folder, tmp_path / "a", **(options | {"save_total_limit": 5}))
    whole.train()
    again = make_trainer(model_folder, tmp_path / "a", **options)
    again.train(resume_from_checkpoint=str(tmp_path / "a" / "checkpoint-8"))
    for entry in (e for e in again.state.log_history if "forget_loss" in e and e["step"] > 8):
        assert entry["mean_score"] == pytest.approx(parts[entry["step"]]["mean_score"], abs=1e-6)
        assert entry["forget_loss"] == pytest.approx(parts[entry["step"]]["forget_loss"], abs=1e-6)


@pytest.mark.parametrize("bf16", [False, True])
def test_gradient_checkpointing_and_autocast_train_to_nearly_the_same(bf16, model_folder, tmp_path):
    plain = make_trainer(model_folder, tmp_path, method="atwu")
    plain.train()
    other = make_trainer(model_folder, tmp_path, method="atwu", gradient_checkpointing=True, bf16=bf16)
    other.train()
    start = weights(make_trainer(model_folder, tmp_path))
    assert (weights(other) - weights(plain)).norm() < (0.3 if bf16 else 1e-3) * (weights(plain) - start).norm()


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


def test_the_hub_token_is_never_written(model_folder, tmp_path, monkeypatch):
    tokens = []
    original = torch.save

    def spy(value, *rest, **more):
        if isinstance(value, UnlearnConfig):
            tokens.append(value.hub_token)
        return original(value, *rest, **more)

    monkeypatch.setattr(torch, "save", spy)
    trainer = make_trainer(
        model_folder, tmp_path, method="grad_diff", save_strategy="steps", save_steps=6, hub_token="hf_secret"
    )
    trainer.train()
    assert tokens  # transformers still pickles its arguments for a moment
    assert set(tokens) == {None}
    assert trainer.args.hub_token == "hf_secret"
    for file in (path for path in tmp_path.rglob("*") if path.is_file()):
        assert b"hf_secret" not in file.read_bytes(), file


def test_finetuning_gives_its_own_advice(model_folder, tmp_path):
    settings = {
        "output_dir": str(tmp_path),
        "use_cpu": True,
        "disable_tqdm": True,
        "learning_rate": 1e39,
        "max_steps": 3,
    }
    trainer = FinetuneTrainer(
        AutoModelForCausalLM.from_pretrained(model_folder),
        FinetuneConfig(save_strategy="no", **settings),
        train_dataset=make_rows(8),
        processing_class=AutoTokenizer.from_pretrained(model_folder),
    )
    with pytest.raises(NonFiniteLossError, match=r"no checkpoint was written yet\. Lower the learning rate\.$"):
        trainer.train()


@pytest.mark.parametrize("weighting", ["nouns+rarity", "nouns*rarity", "logprob_mask*labels"])
def test_two_fixed_weightings_average_over_their_common_weight(weighting, model_folder, tmp_path):
    """The trainer's masked loss is that of `unlearning_loss` with the weights it says it used."""
    trainer = make_trainer(
        model_folder,
        tmp_path,
        method="seul",
        weighting=weighting,
        noun_finder="simple",
        per_device_train_batch_size=24,
        max_steps=1,
        cache_dir=str(tmp_path),
    )
    seen = []
    compute = trainer._loss
    trainer._loss = lambda *given: seen.append((given[1], compute(*given))) or seen[-1][1]
    start = AutoModelForCausalLM.from_pretrained(model_folder)
    trainer.train()
    batch, result = seen[0]
    weights = torch.nn.functional.pad(result.token_weights, (1, 0))
    again = unlearning_loss(start, batch["forget"], batch["retain"], method="seul", token_weights=weights)
    assert result.token_weights.max() > result.token_weights[result.mask].min()
    assert again.forget.item() == pytest.approx(result.forget.item(), abs=1e-5)


def test_a_second_training_of_a_joint_scorer_goes_on(model_folder, tmp_path):
    trainer = make_trainer(model_folder, tmp_path, method="atwu", scorer_procedure="joint", num_train_epochs=1)
    trainer.train()
    trainer.train()
    assert trainer.alternation.updates == 12


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


def test_the_refusal_loss_teaches_the_alternate_answer(model_folder, tmp_path):
    trainer = make_trainer(model_folder, tmp_path, method="grad_diff", forget_loss="refusal", max_steps=40)
    trainer.train()
    logged = [entry["forget_loss"] for entry in trainer.state.log_history if "forget_loss" in entry]
    assert logged[0] == pytest.approx(5.7, abs=0.4)  # an untrained model: about log 300
    assert logged[-1] < 0.9 * logged[0]
