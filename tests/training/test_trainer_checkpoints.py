"""Stopping and resuming: non-finite values, checkpoints, and their contents."""

from __future__ import annotations

import json
import os
import shutil

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback

from atwu import FinetuneConfig, FinetuneTrainer, TokenScorer, UnlearnConfig
from atwu._manifest import MANIFEST_NAME, write_manifest
from atwu.errors import NonFiniteLossError
from atwu.training.checkpoints import names_as_stored
from tests.training.conftest import make_rows, make_trainer, weights, with_tokenizer


@pytest.mark.parametrize(
    ("poisoned", "message"),
    [(4, "not finite.*step 4.*checkpoint-2"), (5, r"loss.*step 6 \(rows \[.*\]\).*checkpoint-4")],
)
def test_non_finite_values_stop_the_run(poisoned, message, model_folder, tmp_path):
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


@pytest.mark.parametrize(
    "options",
    [
        {"method": "pdu", "retain_weight": 2.0, "retain_bound": 1.0, "dual_step": 0.5, "dual_warmup": 0.0},
        {"rectify_gradient": 0.5},
        {"sam_radius": 0.05},
        {"weight_noise": 0.05},
        {"collapse_components": 3},
        {"clean_change": 5.0},
    ],
    ids=lambda options: next(iter(options)),
)
def test_a_resumed_run_has_the_same_result(options, model_folder, tmp_path):
    settings = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, **options}
    whole, again = (make_trainer(model_folder, tmp_path / name, **settings) for name in ("whole", "again"))
    whole.train()
    again.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-2"))
    assert torch.equal(weights(again), weights(whole))
    if "method" in options:
        assert again.retain_weight.value == whole.retain_weight.value


def test_a_resumed_run_goes_on_with_the_rows_that_leaked_before(model_folder, tmp_path):
    """Two waiting rows are found to leak at the step of the checkpoint, and no other row is known."""

    class Leak(TrainerCallback):
        def __init__(self, trainer):
            self.trainer = trainer

        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 2:
                count = len(self.trainer.rows.forget.rows)
                self.trainer.sampler.prefer((), range(self.trainer.sampler.served))
                self.trainer.sampler.prefer_also((count - 1, count - 2))

    settings = {"max_steps": 6, "save_strategy": "steps", "save_steps": 2, "save_total_limit": 5}
    settings |= {"forms": "question,blank", "forget": 8}
    trainers = {}
    for name in ("whole", "again", "without"):
        trainers[name] = make_trainer(model_folder, tmp_path / name, forget_leaks=True, **settings)
        if name != "without":
            trainers[name].add_callback(Leak(trainers[name]))
    trainers["whole"].train()
    trainers["again"].train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-2"))
    trainers["without"].train()
    assert torch.equal(weights(trainers["again"]), weights(trainers["whole"]))
    assert not torch.equal(weights(trainers["without"]), weights(trainers["whole"]))


@pytest.mark.parametrize(
    "kind", ["qwen3_moe", *(pytest.param(kind, marks=pytest.mark.night) for kind in ("nemotron_h", "gemma3"))]
)
def test_a_run_is_resumed_whose_files_name_the_weights_otherwise(kind, model_folder, tmp_path):
    """Experts are stored one by one, and parts of hybrids and wrappers under other names than the model's."""
    folder = with_tokenizer(kind, model_folder, tmp_path / "model")
    settings = {"method": "grad_diff", "max_steps": 4, "save_strategy": "steps", "save_steps": 3}
    whole, again = (make_trainer(folder, tmp_path / name, **settings) for name in ("whole", "again"))
    whole.train()
    checkpoint = tmp_path / "whole" / "checkpoint-3"
    assert not names_as_stored(again.model, checkpoint)
    again.train(resume_from_checkpoint=str(checkpoint))
    assert torch.equal(weights(again), weights(whole))


def test_runs_that_share_a_folder_keep_and_resume_only_their_own_checkpoints(model_folder, tmp_path):
    saving = {"method": "grad_diff", "save_strategy": "steps", "save_total_limit": 1}
    make_trainer(model_folder, tmp_path, **saving, save_steps=12).train()
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-12"]
    later = make_trainer(model_folder, tmp_path, **saving, save_steps=6, learning_rate=2e-3)
    with pytest.raises(ValueError, match=r"checkpoint-12 .*options\.learning_rate"):
        later.train(resume_from_checkpoint=True)
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere; resume from a checkpoint"):
        later.train(resume_from_checkpoint=tmp_path / "nowhere")
    write_manifest(tmp_path)
    with pytest.raises(ValueError, match="is not a checkpoint; resume from one, such as"):
        later.train(resume_from_checkpoint=tmp_path)
    (tmp_path / MANIFEST_NAME).unlink()

    class Interrupt(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 7:
                raise KeyboardInterrupt

    named = make_trainer(model_folder, tmp_path, **saving, save_steps=6, learning_rate=2e-3)
    named.train(resume_from_checkpoint=tmp_path / "checkpoint-12")  # by its name, a path too
    assert named.timing.resumed_from == 12
    later.add_callback(Interrupt())
    with pytest.raises(KeyboardInterrupt):
        later.train()
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-6"]
    again = make_trainer(model_folder, tmp_path, **saving, save_steps=6, learning_rate=2e-3)
    again.train(resume_from_checkpoint=True)
    assert again.timing.resumed_from == 6


def test_a_copied_run_resumes_from_the_checkpoint_of_its_last_step(model_folder, tmp_path):
    saving = {"method": "grad_diff", "save_strategy": "steps", "save_steps": 3, "max_steps": 6}
    make_trainer(model_folder, tmp_path, **saving).train()
    for step, time in ((3, 2e9), (6, 1e9)):  # a copy has other times
        for path in (tmp_path / f"checkpoint-{step}", *(tmp_path / f"checkpoint-{step}").iterdir()):
            os.utime(path, (time, time))
    resumed = make_trainer(model_folder, tmp_path, **saving)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.timing.resumed_from == 6


def test_logged_terms_do_not_depend_on_logging_steps_or_resuming(model_folder, tmp_path):
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
    again = make_trainer(model_folder, tmp_path / "a", **options)
    again.train(resume_from_checkpoint=str(tmp_path / "a" / "checkpoint-8"))
    for entry in (e for e in again.state.log_history if "forget_loss" in e and e["step"] > 8):
        assert entry["mean_score"] == pytest.approx(parts[entry["step"]]["mean_score"], abs=1e-6)
        assert entry["forget_loss"] == pytest.approx(parts[entry["step"]]["forget_loss"], abs=1e-6)


def test_checkpoints_contain_the_scorer_but_neither_the_hub_token_nor_pickled_arguments(
    model_folder, tmp_path, monkeypatch
):
    pickled = []
    original = torch.save
    monkeypatch.setattr(
        torch, "save", lambda value, *rest, **more: pickled.append(value) or original(value, *rest, **more)
    )
    trainer = make_trainer(
        model_folder, tmp_path, method="atwu", save_strategy="steps", save_steps=6, hub_token="hf_secret"
    )
    trainer.train()
    modes = {path.stat().st_mode for path in (tmp_path / "checkpoint-12").iterdir()}
    assert len(modes) == 1, "safetensors' files are readable by their owner alone"
    assert json.loads((tmp_path / "checkpoint-12" / "scorer_progress.json").read_text()) == {"updates": 6}
    loaded = TokenScorer.from_pretrained(tmp_path / "checkpoint-12")
    assert torch.equal(loaded.linear.weight, trainer.scorer.linear.weight)
    assert not any(isinstance(value, UnlearnConfig) for value in pickled)
    for file in (path for path in tmp_path.rglob("*") if path.is_file()):
        assert b"hf_secret" not in file.read_bytes(), file


def test_errors_of_fine_tuning_give_advice_for_fine_tuning(model_folder, tmp_path):
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
    with pytest.raises(NonFiniteLossError, match=r"checkpoint.*learning rate"):
        trainer.train()
