"""What works with transformers' `Trainer` works here, or is refused with the line that does."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import os

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer, EarlyStoppingCallback, HfArgumentParser, TrainingArguments

import atwu
from atwu import FinetuneConfig, FinetuneTrainer, UnlearnConfig, UnlearnTrainer
from tests.training.conftest import make_rows

BASE = {"use_cpu": True, "disable_tqdm": True, "save_strategy": "no", "max_steps": 2, "learning_rate": 1e-3}
MEASURED = {"eval_strategy": "steps", "eval_steps": 1, "metric_for_best_model": "eval_ES_delta"}


@pytest.fixture
def build(model_folder, tmp_path):
    def trainer(model=None, callbacks=None, **options):
        return UnlearnTrainer(
            str(model_folder) if model is None else model,
            UnlearnConfig(str(tmp_path / "out"), **BASE | {"method": "grad_diff"} | options),
            forget_dataset=make_rows(8),
            retain_dataset=make_rows(8, 24),
            processing_class=AutoTokenizer.from_pretrained(model_folder),
            eval_metrics="memorization",
            callbacks=callbacks,
        )

    return trainer


@pytest.fixture
def finetuner(model_folder, tmp_path):
    def trainer(**options):
        model, tokenizer = (each.from_pretrained(model_folder) for each in (AutoModelForCausalLM, AutoTokenizer))
        rows = {"train_dataset": make_rows(4), "processing_class": tokenizer}
        return FinetuneTrainer(model, FinetuneConfig(str(tmp_path / "out"), **BASE), **rows | options)

    return trainer


@pytest.mark.parametrize("config", [UnlearnConfig, FinetuneConfig])
def test_a_config_has_the_fields_of_training_arguments(config, tmp_path):
    given = config(str(tmp_path), use_cpu=True, eval_strategy="steps", eval_steps=2)
    assert given.output_dir == str(tmp_path)
    signature = inspect.signature(config)
    assert next(iter(signature.parameters)) == "output_dir"
    assert inspect.signature(TrainingArguments).parameters.keys() <= signature.parameters.keys()
    signature.bind(str(tmp_path), learning_rate=1e-4, lora_r=4)
    with pytest.raises(TypeError, match="positional"):
        config(str(tmp_path), 8)
    for copied in (copy.deepcopy(given), dataclasses.replace(given)):
        assert copied.as_plain() == given.as_plain()
    words = ["--output_dir", str(tmp_path), "--learning_rate", "1e-4", "--use_cpu", "--report_to", "none"]
    (parsed,) = HfArgumentParser((config,)).parse_args_into_dataclasses(words)
    assert (type(parsed), parsed.output_dir, parsed.learning_rate) == (config, str(tmp_path), 1e-4)


def test_methods_and_their_options_are_parsed(tmp_path):
    values = {"output_dir": str(tmp_path), "use_cpu": True, "method": "npo", "forget_loss": "simnpo"}
    (parsed,) = HfArgumentParser((UnlearnConfig,)).parse_dict(values | {"component_options": {"beta": 0.3}})
    assert (parsed.method, parsed.recipe().values["beta"]) == ("npo", 0.3)
    words = [word for name in ("output_dir", "method", "forget_loss") for word in (f"--{name}", values[name])]
    (parsed,) = HfArgumentParser((UnlearnConfig,)).parse_args_into_dataclasses([*words, "--use_cpu"])
    assert parsed.forget_loss == "simnpo"
    given = ["--component_options", '{"beta": 0.5}', "--lr_scheduler_kwargs", '{"num_cycles": 2}', "--use_cpu"]
    given += ["--lr_scheduler_type", "cosine_with_restarts"]
    (parsed,) = HfArgumentParser((UnlearnConfig,)).parse_args_into_dataclasses([*words, *given])
    assert (parsed.recipe().values["beta"], parsed.lr_scheduler_kwargs) == (0.5, {"num_cycles": 2})


@pytest.mark.parametrize("name", ["component_options", "lr_scheduler_kwargs"])
@pytest.mark.parametrize(
    ("text", "message"),
    [("{'beta': 1}", r", line 1, column 2: invalid JSON.*; give .*JSON"), ("[1]", r" is '\[1\]'; give a mapping")],
)
def test_text_that_is_no_json_object_is_named(name, text, message, tmp_path):
    with pytest.raises(ValueError, match=name + message):
        UnlearnConfig(str(tmp_path), use_cpu=True, **{name: text})


def test_wandb_does_not_get_the_printed_lines(finetuner, monkeypatch):
    monkeypatch.setenv("WANDB_CONSOLE", "")
    monkeypatch.delenv("WANDB_CONSOLE")
    finetuner()
    assert os.environ["WANDB_CONSOLE"] == "off"


def test_adapters_of_a_config_or_of_the_model_are_saved(build, model_folder, tmp_path):
    from peft import LoraConfig, get_peft_model

    lora = LoraConfig(r=2, target_modules=["q_proj"])
    adapted = get_peft_model(AutoModelForCausalLM.from_pretrained(model_folder), lora)
    for name, trainer in {
        "config": build(lora_r=2, lora_targets="q_proj", save_adapter=True, **MEASURED),
        "model": build(model=adapted, save_adapter=True),
    }.items():
        trainer.train()
        trainer.save_model(str(tmp_path / name))
        assert (tmp_path / name / "adapter_model.safetensors").is_file()
    with pytest.raises(ValueError, match=r"save_adapter.*lora_r"):
        build(save_adapter=True)
    with pytest.raises(ValueError, match=r"quantize.*name"):
        build(model=adapted, lora_r=2, quantize="4bit")
    with pytest.raises(TypeError, match=r"model must be .*got list"):
        build(model=[tmp_path])


def test_an_evaluation_of_fine_tuning_is_that_of_the_package(finetuner):
    trainer = finetuner()
    with pytest.raises(TypeError, match=r"eval_dataset.*atwu\.evaluate"):
        finetuner(eval_dataset=make_rows(2))
    with pytest.raises(TypeError, match=r"atwu\.evaluate"):
        trainer.evaluate(make_rows(2))
    found = atwu.evaluate(
        trainer.model,
        {"forget": make_rows(2)},
        atwu.Evaluation(metrics="memorization"),
        tokenizer=trainer.processing_class,
    )
    assert "probability" in found.sets["forget"]


def test_early_stopping_stops(build):
    trainer = build(callbacks=[EarlyStoppingCallback(1, 10.0)], **MEASURED | {"max_steps": 6})
    trainer.train()
    assert trainer.state.global_step == 2


def test_the_best_model_is_the_only_checkpoint(build, tmp_path):
    with pytest.raises(ValueError, match=r"load_best_model_at_end.*save_strategy='best' with save_total_limit=1"):
        build(load_best_model_at_end=True, **MEASURED)
    trainer = build(save_strategy="best", save_total_limit=1, **MEASURED)
    trainer.train()
    (best,) = (tmp_path / "out").iterdir()
    assert best.name == f"checkpoint-{trainer.state.best_global_step}"
    AutoModelForCausalLM.from_pretrained(best)


def test_a_finished_run_continues_with_more_steps_from_a_named_checkpoint(build, tmp_path):
    saving = {"save_strategy": "steps", "save_steps": 2}
    build(**saving).train()
    longer = build(**saving | {"max_steps": 4})
    checkpoint = str(tmp_path / "out" / "checkpoint-2")
    with pytest.raises(ValueError, match=rf"options\.max_steps.*train\(resume_from_checkpoint='{checkpoint}'\)"):
        longer.train(resume_from_checkpoint=True)
    longer.train(resume_from_checkpoint=checkpoint)
    assert (longer.timing.resumed_from, longer.state.global_step) == (2, 4)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("compute_loss_func", "forget_loss"),
        ("compute_metrics", "eval_metrics"),
        ("preprocess_logits_for_metrics", "eval_metrics"),
        ("data_collator", "rows of text"),
        ("model_init", "a model"),
        ("train_dataset", "forget_dataset and retain_dataset"),
        ("tokenizer", "processing_class"),
        ("peft_config", "lora_r"),
    ],
)
def test_arguments_without_effect_are_rejected(name, instead, model_folder):
    with pytest.raises(TypeError, match=f"{instead}.*instead of {name}"):
        UnlearnTrainer(str(model_folder), forget_dataset=make_rows(2), **{name: print})
