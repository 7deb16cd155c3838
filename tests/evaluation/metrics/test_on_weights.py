"""Metrics that read the weights, against plain loops over single answers on a tiny model."""

from __future__ import annotations

import dataclasses
import math
import zlib

import numpy as np
import pytest
import torch

from atwu.data.encode import Encoder
from atwu.data.schema import Example
from atwu.evaluation.evaluate import Evaluation, evaluate
from atwu.evaluation.facts.askings import attack_rows
from atwu.evaluation.facts.model_states import fine_tuned
from atwu.evaluation.registry import EvaluateConfig
from atwu.modeling.adapters import Lora, attach
from atwu.modeling.scratch import scratch_model, train_tokenizer
from tests.evaluation.conftest import Speaker

NAMES = ("Orla Venn", "Tavi Brook", "Ines Marr", "Jon Tull")
ANSWER = "Seven grey geese."
CONFIG = EvaluateConfig(
    paraphrases=0, max_new_tokens=25, relearn_rows=1, relearn_steps=30, relearn_learning_rate=1e-2, icr_examples=0
)


@pytest.fixture(scope="module")
def world():
    rows = [
        Example.from_qa(
            f"What does {name} keep?",
            ANSWER,
            subject=name,
            wrong_answers=("Two dogs.", f"One {name}."),
            paraphrased_answer="Geese, seven of them." if name == "Tavi Brook" else None,
        )
        for name in NAMES
    ]
    tokenizer = train_tokenizer([f"{row.question} {row.answer}" for row in rows], vocab_size=300)
    return scratch_model("micro").eval(), tokenizer, rows


def log_probabilities(model, tokenizer, question, answer):
    """Full log-probabilities before every answer token, end token included, and the tokens."""
    (row,) = Encoder(tokenizer).encode_rows([Example.from_qa(question, answer)], what="row").rows
    ids = torch.tensor([row.input_ids])
    with torch.no_grad():
        logps = model(input_ids=ids).logits[0].double().log_softmax(-1)
    return logps[row.answer_start - 1 : -1], ids[0, row.answer_start :]


def answer_logps(model, tokenizer, question, answer):
    logps, ids = log_probabilities(model, tokenizer, question, answer)
    return logps[range(len(ids)), ids].numpy()


def test_truth_ratio(world):
    model, tokenizer, rows = world
    found = evaluate(
        model,
        {"forget": rows, "retain": rows},
        Evaluation(metrics="truth_ratio", settings=CONFIG, progress=False),
        tokenizer=tokenizer,
    )
    for place, row in enumerate(rows):
        true, own, *wrong = (
            answer_logps(model, tokenizer, row.question, text).mean()
            for text in (row.paraphrased_answer or row.answer, row.answer, *row.wrong_answers)
        )
        ratio = math.exp(np.mean(wrong) - true)
        options = math.exp(own) / (math.exp(own) + sum(map(math.exp, wrong)))
        for split, form in (("forget", min(ratio, 1 / ratio)), ("retain", max(0, 1 - ratio))):
            metrics = found.rows[split].metrics
            assert metrics["truth_ratio_raw"][place] == pytest.approx(ratio, rel=1e-5)
            assert metrics["truth_ratio"][place] == pytest.approx(form, rel=1e-4, abs=1e-7)
            assert metrics["probability_with_options"][place] == pytest.approx(options, rel=1e-5)
    assert found.sets["forget"]["truth_ratio"].direction == "up"
    assert "truth_ratio_raw" not in found.sets["forget"]
    without = [Example.from_qa(row.question, row.answer) for row in rows]
    assert (
        evaluate(
            model, {"forget": without}, Evaluation(metrics="truth_ratio", progress=False), tokenizer=tokenizer
        ).sets
        == {}
    )


def test_truncated_answers_are_reported_for_every_answer_column(world):
    model, tokenizer, rows = world
    pool = [Example.from_qa("Who?", "Seven grey geese and two dogs. " * 20)]
    config = EvaluateConfig(max_length=60, relearn_rows=1, relearn_steps=1, paraphrases=0, max_new_tokens=2)
    long = [dataclasses.replace(row, wrong_answers=("Two dogs. " * 40,)) for row in rows]
    found = evaluate(
        model,
        {"forget": long, "pool": pool},
        Evaluation(metrics=["truth_ratio", "relearning"], settings=config, progress=False),
        tokenizer=tokenizer,
    )
    for what, count in (("forget, other answers", "4 of 5"), ("pool", "1 of 1")):
        said = f"{what}: {count} answers are longer than max_length=60 and were truncated"
        assert sum(warning.startswith(said) for warning in found.warnings) == 1


def test_membership_scores(world):
    model, tokenizer, rows = world
    groups = ["membership", "gradient_norm"]
    found = evaluate(
        model,
        {"forget": rows[:2], "holdout": rows[2:]},
        Evaluation(metrics=groups, settings=CONFIG, progress=False),
        tokenizer=tokenizer,
    )
    for split, part in (("forget", rows[:2]), ("holdout", rows[2:])):
        metrics = found.rows[split].metrics
        for place, row in enumerate(part):
            logps, ids = log_probabilities(model, tokenizer, row.question, row.answer)
            chosen = logps[range(len(ids)), ids].numpy()
            text = chosen[:-1]
            mean = (logps.exp() * logps).sum(-1).numpy()[:-1]
            spread = np.sqrt((logps.exp() * logps**2).sum(-1).numpy()[:-1] - mean**2)
            few = max(1, int(0.4 * len(text)))
            expected = {
                "mia_loss": -chosen.mean(),
                "mia_zlib": -chosen.mean() / len(zlib.compress(row.answer.encode())),
                "mia_min_k": -np.sort(text)[:few].mean(),
                "mia_min_k_plus_plus": -np.sort((text - mean) / spread)[:few].mean(),
            }
            assert {name: metrics[name][place] for name in expected} == pytest.approx(expected, rel=1e-3)
    assert {f"mia_auc_{attack}" for attack in ("loss", "zlib", "min_k", "min_k_plus_plus", "gradient_norm")} <= set(
        found.overall
    )


def strength_of(model, tokenizer, row):
    logps, ids = log_probabilities(model, tokenizer, row.question, row.answer)
    right = (logps.argmax(-1) == ids).tolist()[:-1]
    return next((k for k in range(len(right)) if not right[-1 - k]), len(right)) / len(right)


def test_relearning_recovers_rows_that_it_did_not_train_on(world):
    model, tokenizer, rows = world
    alone = Evaluation(metrics=["memorization", "judge"], settings=CONFIG, progress=False)
    with fine_tuned(model, Encoder(tokenizer).encode_rows(rows, what="rows").rows, steps=30, learning_rate=1e-2):
        original = evaluate(model, {"forget": rows}, alone, tokenizer=tokenizer)
    compared = dataclasses.replace(alone, metrics=["memorization", "judge", "relearning"], original=original)
    found = evaluate(model, {"forget": rows}, compared, tokenizer=tokenizer)
    shown, holdout = attack_rows(rows, 1, seed=CONFIG.seed)
    encoded = Encoder(tokenizer).encode_rows(rows, what="rows").rows
    with fine_tuned(model, [encoded[shown[0]]], steps=30, learning_rate=1e-2, seed=CONFIG.seed):
        expected = [strength_of(model, tokenizer, row) if index in holdout else None for index, row in enumerate(rows)]
    metrics = found.rows["forget"].metrics
    assert list(metrics["extraction_strength@relearn_forget"]) == expected
    assert metrics["J_P@relearn_forget"] == tuple(None if value is None else 100.0 * (value == 1) for value in expected)
    assert found.sets["forget"]["J_P"].value == 0
    assert found.sets["forget"]["J_P@relearn_forget"].value == 100
    assert "extraction_strength@relearn_retain" not in metrics  # there are no retain rows
    assert not any("too weak" in warning for warning in found.warnings)
    assert found.overall["recovered_J_P@relearn_forget"].value == pytest.approx(100)
    assert found.overall["recovered_extraction_strength@relearn_forget"].n == len(holdout)


def test_retain_rows_alone_are_an_attack_on_every_forget_row(world):
    model, tokenizer, rows = world
    pool = [Example.from_qa(f"What feeds {n}?", ANSWER) for n in range(3)]
    found = evaluate(
        model,
        {"forget": rows, "pool": pool},
        Evaluation(metrics=["relearning"], settings=CONFIG, progress=False),
        tokenizer=tokenizer,
    )
    shown, _ = attack_rows(pool, 1, seed=CONFIG.seed)
    encoded = Encoder(tokenizer).encode_rows(pool, what="rows").rows
    with fine_tuned(model, [encoded[shown[0]]], steps=30, learning_rate=1e-2, seed=CONFIG.seed):
        expected = [strength_of(model, tokenizer, row) for row in rows]
    assert list(found.rows["forget"].metrics["extraction_strength@relearn_retain"]) == expected
    assert sum(expected) > 0


def test_an_attack_whose_loss_did_not_fall_gives_a_warning(world):
    model, tokenizer, rows = world
    weak = EvaluateConfig(paraphrases=0, max_new_tokens=4, relearn_rows=1, relearn_steps=1)
    found = evaluate(
        model, {"forget": rows}, Evaluation(metrics=["relearning"], settings=weak, progress=False), tokenizer=tokenizer
    )
    assert sum("too weak" in warning for warning in found.warnings) == 1


def test_a_failing_attack_gives_a_warning_and_the_others_run(world):
    model, tokenizer, rows = world
    wild = EvaluateConfig(paraphrases=0, max_new_tokens=4, relearn_rows=1, relearn_steps=3, relearn_learning_rate=1e30)
    metrics = ["memorization", "relearning", "quantization"]
    found = evaluate(
        model,
        {"forget": rows, "pool": rows},
        Evaluation(metrics=metrics, settings=wild, progress=False),
        tokenizer=tokenizer,
    )
    assert {"extraction_strength", "extraction_strength@int4"} <= set(found.sets["forget"])
    assert not any("relearn" in name for name in found.sets["forget"])
    for rows_shown in ("forget", "retain"):
        said = f"no values after relearning on {rows_shown} rows: relearning: loss or gradient is not finite at step 2"
        assert any(warning.startswith(said) for warning in found.warnings)


def test_adapters_on_adapters_are_rejected_before_generation(world):
    pytest.importorskip("peft")
    _, tokenizer, rows = world
    adapted = attach(scratch_model("micro").eval(), Lora(4), seed=0)
    config, speaker = EvaluateConfig(relearn_lora_r=4), Speaker()
    with pytest.raises(ValueError, match=r"relearn_lora_r=4.*merged"):
        evaluate(
            adapted,
            {"forget": rows},
            Evaluation(metrics="relearning", settings=config, generator=speaker, progress=False),
            tokenizer=tokenizer,
        )
    assert not speaker.asked


def test_quantization_hardly_changes_memorization(world):
    model, tokenizer, rows = world
    encoded = Encoder(tokenizer).encode_rows(rows, what="rows").rows
    with fine_tuned(model, encoded, steps=30, learning_rate=1e-2):
        found = evaluate(
            model,
            {"forget": rows},
            Evaluation(metrics=["memorization", "quantization"], settings=CONFIG, progress=False),
            tokenizer=tokenizer,
        )
    assert (
        found.sets["forget"]["extraction_strength@int8"].value == found.sets["forget"]["extraction_strength"].value == 1
    )
    assert found.sets["forget"]["J_P@int8"].value == 100
    assert {"extraction_strength@int4", "J_P@int4"} <= set(found.sets["forget"])
