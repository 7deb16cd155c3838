"""`evaluate` on a real tiny model: schema, no repeated work, and values equal to a plain computation."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from dataclasses import replace

import jsonschema
import numpy as np
import pytest
import torch

from atwu.benchmarks.people_rows import people
from atwu.data.encode import Encoder
from atwu.data.schema import Example, Message
from atwu.evaluation import backends
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.evaluate import Evaluation, evaluate
from atwu.evaluation.generations import GenerationStore
from atwu.evaluation.metrics import fluency
from atwu.evaluation.registry import EvaluateConfig
from atwu.evaluation.result import EVAL_SCHEMA, read_result
from atwu.evaluation.result_checks import different_template
from atwu.evaluation.teacher_forced import read_tokens
from atwu.methods.weightings.token_scorer import TokenScorer
from atwu.modeling.load import model_fingerprint
from atwu.modeling.quantization import quantize_model
from atwu.modeling.scratch import scratch_model, train_tokenizer

CONFIG = EvaluateConfig(
    max_new_tokens=6,
    paraphrases=2,
    icr_examples=1,
    samples=2,
    relearn_rows=2,
    relearn_steps=2,
    relearn_learning_rate=1e-3,
)


@pytest.fixture(scope="module")
def world():
    benchmark = people("tiny")
    tokenizer = train_tokenizer(benchmark.texts(), vocab_size=300)
    rows = {"forget": benchmark.forget[::4], "retain": benchmark.retain[::12], "holdout": benchmark.holdout[::4]}
    return scratch_model("micro").eval(), tokenizer, rows


@pytest.fixture
def few_instructions(monkeypatch):
    monkeypatch.setattr(fluency, "OPEN_INSTRUCTIONS", fluency.OPEN_INSTRUCTIONS[:2])
    monkeypatch.setattr(fluency, "ANSWER_LENGTH_LIMIT", 8)


def everything(model, tokenizer, rows, **options):
    how = Evaluation(metrics="all", settings=CONFIG, progress=False, **options)
    return evaluate(model, rows, how, tokenizer=tokenizer)


@pytest.mark.usefixtures("few_instructions")
def test_all_metrics_satisfy_the_schema_and_do_not_change_the_model(world, tmp_path, monkeypatch):
    model, tokenizer, rows = world
    store = GenerationStore(tmp_path / "store")
    original, retain_only = (
        everything(scratch_model("micro", seed=seed), tokenizer, rows, reference=True, name=name)
        for seed, name in ((1, "original"), (2, "retain-only"))
    )
    references = {"original": original, "retain_only": retain_only}
    before, generation_config = model_fingerprint(model), model.generation_config
    model.train()
    model.lm_head.weight.requires_grad_(False)
    scorer = TokenScorer(32)
    random_state = torch.get_rng_state()
    try:
        found = everything(model, tokenizer, rows, scorer=scorer, store=store, **references)
        assert all(module.training for module in model.modules())
        assert torch.equal(torch.get_rng_state(), random_state)
        assert not model.lm_head.weight.requires_grad
        assert all(weight.grad is None for weight in model.parameters())
    finally:
        model.eval().requires_grad_(True)
    assert model_fingerprint(model) == before == found.fingerprint
    assert model.generation_config is generation_config

    found.write(tmp_path / "eval.json")
    plain = json.loads((tmp_path / "eval.json").read_text())
    jsonschema.validate(plain, EVAL_SCHEMA)
    assert plain == found.to_json()
    assert read_result(tmp_path / "eval.json") == found

    assert {split for split, shown in found.sets.items() if shown} == {"forget", "retain", "instructions"}
    assert found.sets["forget"]["auroc_scorer"].value == 0.5  # an untrained scorer is constant
    assert found.sets["forget"]["extraction_strength"].direction == "down"
    assert found.sets["retain"]["extraction_strength"].direction == "up"
    assert found.sets["forget"]["extraction_strength@relearn_forget"].skipped >= 2
    assert not any("@" in metric for metric in original.sets["forget"])
    assert {"ES_delta", "model_utility", "forget_quality_p", "mia_auc_reference", "privleak_loss"} <= set(found.overall)
    assert found.references == {"original": original.fingerprint, "retain-only": retain_only.fingerprint}
    for values in [*found.sets.values(), found.overall]:
        for metric in values.values():
            assert metric.low is None or metric.low <= metric.high

    def no_generation(*_, **__):
        raise AssertionError("generated again")

    monkeypatch.setattr(backends, "generate", no_generation)
    again = everything(model, tokenizer, rows, scorer=scorer, store=store, **references)
    assert json.dumps(again.to_json()) == json.dumps(found.to_json())


class Counting:
    """A generator that records its texts."""

    def __init__(self, model, tokenizer):
        self._inner = TransformersGenerator(model, tokenizer)
        self.identity = self._inner.identity
        self.made = {}
        self.calls = Counter()

    def generate(self, prompts, decoding, on_done):
        def keep(done):
            for index, generation in done:
                self.made[prompts[index], decoding] = generation
                self.calls[prompts[index], decoding] += 1
            on_done(done)

        self._inner.generate(prompts, decoding, keep)


@pytest.mark.usefixtures("few_instructions")
def test_no_prompt_is_generated_twice(world, tmp_path):
    model, tokenizer, rows = world
    store = GenerationStore(tmp_path / "replies.sqlite")
    metrics = ["rouge", "judge", "families", "sampling", "open_ended"]
    first, second = Counting(model, tokenizer), Counting(model, tokenizer)
    results = [
        evaluate(
            model,
            rows,
            Evaluation(metrics=metrics, settings=CONFIG, generator=generator, store=store, progress=False),
            tokenizer=tokenizer,
        )
        for generator in (first, second)
    ]
    assert set(first.calls.values()) == {1}
    assert results[0].cost["generated_tokens"] == sum(generation.tokens for generation in first.made.values())
    greedy = [prompt for prompt, decoding in first.made if decoding.temperature == 0 and decoding.max_new_tokens == 6]
    plain = {
        prompt for prompt in greedy if prompt.messages[-1].content in questions(rows) and len(prompt.messages) == 1
    }
    plain = {prompt for prompt in plain if not prompt.prefill}
    assert len(plain) == len(questions(rows)) == 36
    assert second.made == {}
    assert results[0] == results[1]


@pytest.mark.usefixtures("few_instructions")
def test_every_prompt_and_row_is_read_with_the_system_turn(world, tmp_path):
    model, tokenizer, rows = world
    own = Example(messages=(Message("system", "You live."), Message("user", "Who?")), answer="Orla Venn.")
    rows = rows | {"retain": (*rows["retain"], own)}
    metrics = ["memorization", "rouge", "judge", "sampling", "open_ended"]
    system, generators, results = Message("system", "You keep bees."), [], []
    for given in (None, system.content):
        generators.append(Counting(model, tokenizer))
        config = EvaluateConfig(**{**CONFIG.values, "system": given})
        results.append(
            evaluate(
                model,
                rows,
                Evaluation(
                    metrics=metrics,
                    settings=config,
                    generator=generators[-1],
                    store=GenerationStore(tmp_path / "replies.sqlite"),
                    progress=False,
                ),
                tokenizer=tokenizer,
            )
        )
    plain, told = ({prompt for prompt, _ in generator.made} for generator in generators)
    kept = {prompt for prompt in plain if prompt.messages[0].content == "You live."}
    assert kept
    assert {(*prompt.messages, prompt.prefill, prompt.draw) for prompt in told} == {
        (system, *prompt.messages, prompt.prefill, prompt.draw) for prompt in plain - kept
    }  # the row's own system turn is kept, and its answers come from the store
    assert results[1].settings["system"] == system.content
    settings = results[1].settings
    other = replace(results[1], settings={**settings, "chat_template": "0" * 32})
    assert "another chat template" in str(different_template(settings, other, role="original"))
    assert different_template(settings, results[1], role="original") is None
    encoded = Encoder(tokenizer, system=system.content).encode_rows(rows["forget"], what="rows").rows
    wanted = [float(np.exp(np.mean(row.logps))) for row in read_tokens(model, encoded)]
    assert results[1].rows["forget"].metrics["probability"] == pytest.approx(wanted)
    with pytest.raises(ValueError, match=r"system.*None.*'You keep bees\.'"):
        evaluate(
            model,
            rows,
            Evaluation(metrics=["rouge"], settings=config, original=results[0], progress=False),
            tokenizer=tokenizer,
        )
    with pytest.raises(ValueError, match=r"system.*empty"):
        EvaluateConfig(system="")


def questions(rows):
    return {
        text for split in ("forget", "retain") for row in rows[split] for text in (row.question, *row.paraphrases[:2])
    }


def test_omitting_rows_or_metrics_does_not_change_other_values(world):
    model, tokenizer, rows = world
    together = evaluate(
        model, rows, Evaluation(metrics=["memorization", "membership"], progress=False), tokenizer=tokenizer
    )
    alone = evaluate(
        model, {"forget": rows["forget"]}, Evaluation(metrics=["memorization"], progress=False), tokenizer=tokenizer
    )
    for metric, value in alone.sets["forget"].items():
        assert together.sets["forget"][metric] == value


def test_numbers_equal_a_plain_computation(world):
    model, tokenizer, rows = world
    encoded = Encoder(tokenizer).encode_rows(rows["forget"], what="rows").rows
    strengths, probabilities, memorised = [], [], []
    for row in encoded:
        ids = torch.tensor([row.input_ids])
        logps = model(input_ids=ids).logits[0, :-1].log_softmax(-1)
        start, end = row.answer_start, len(row.input_ids)
        chosen = logps[range(start - 1, end - 1), ids[0, start:]]
        probabilities.append(chosen.mean().exp().item())
        correct = [int(logps[t - 1].argmax()) == row.input_ids[t] for t in range(start, end - 1)]
        wrong = [index + 1 for index, right in enumerate(correct) if not right]
        strengths.append(1 - (wrong[-1] if wrong else 0) / len(correct))
        memorised.append(sum(correct) / len(correct))
    config = EvaluateConfig(batch_tokens=40)
    found = evaluate(
        model,
        {"forget": rows["forget"]},
        Evaluation(metrics="memorization", settings=config, progress=False),
        tokenizer=tokenizer,
    )
    assert set(found.sets) == {"forget"}
    for metric, expected in (
        ("extraction_strength", strengths),
        ("probability", probabilities),
        ("exact_memorization", memorised),
    ):
        assert found.rows["forget"].metrics[metric] == pytest.approx(expected, rel=1e-5, abs=1e-6)
        value = found.sets["forget"][metric]
        assert (value.value, value.std) == pytest.approx((np.mean(expected), np.std(expected)), rel=1e-5, abs=1e-6)
        assert (value.n, value.clusters, value.skipped) == (6, 4, 0)


def test_batching_changes_nothing(world):
    model, tokenizer, rows = world
    encoded = Encoder(tokenizer).encode_rows(rows["forget"], what="rows").rows
    scorer = TokenScorer(32, hidden_position="own")
    torch.nn.init.normal_(scorer.linear.weight)
    single = read_tokens(model, encoded, scorer=scorer, batch_tokens=1)
    together = read_tokens(model, encoded, scorer=scorer, batch_tokens=10_000)
    for one, other in zip(single, together, strict=True):
        np.testing.assert_allclose(one.logps, other.logps, atol=1e-5)
        np.testing.assert_allclose(one.entropy, other.entropy, atol=1e-5)
        np.testing.assert_allclose(one.scores, other.scores, atol=1e-5)
        assert one.content.sum() == len(one.targets) - 1  # all but the end token
        assert one.labels.sum() > 0


def test_plain_text_rows_and_unused_tasks(world):
    model, tokenizer, _ = world
    text = Example((), "Orla lives in house 3 and keeps bees.")
    how = Evaluation(metrics=["memorization", "rouge"], settings=EvaluateConfig(tasks=["mmlu"]), progress=False)
    found = evaluate(model, {"retain": [text]}, how, tokenizer=tokenizer)
    assert any(re.search("tasks mmlu .*rouge", said) for said in found.warnings)
    assert found.sets["retain"]["rouge_l_recall"].value is None
    assert found.sets["retain"]["rouge_l_recall"].skipped == 1
    assert found.sets["retain"]["probability"].n == 1
    assert found.sets["retain"]["probability"].low is None
    assert any(re.search("^retain: .*one subject", said) for said in found.warnings)


def test_attacks_alone_can_be_compared_with_a_full_reference(world):
    model, tokenizer, rows = world
    forget = {"forget": rows["forget"]}
    alone = Evaluation(metrics=["memorization", "judge"], settings=CONFIG, progress=False)
    original = evaluate(scratch_model("micro", seed=1), forget, alone, tokenizer=tokenizer)
    attacked = dataclasses.replace(alone, metrics=["quantization"], original=original)
    found = evaluate(model, forget, attacked, tokenizer=tokenizer)
    assert "extraction_strength@int4" in found.sets["forget"]


def test_reserved_set_names_are_rejected(world):
    model, tokenizer, rows = world
    for name in ("instructions", "rwku", "tasks", "overall"):
        with pytest.raises(ValueError, match=name):
            evaluate(
                model,
                {"retain": rows["retain"], name: rows["forget"]},
                Evaluation(metrics="rouge", progress=False),
                tokenizer=tokenizer,
            )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"original": "eval.json"}, "original must be an EvalResult .*, got str"),
        ({"settings": {"max_new_tokens": 4}}, "settings must be an EvaluateConfig, got dict"),
        ({"judge": "offline"}, r"judge .*OfflineJudge\(\), got str"),
        ({"scorer": "run"}, "scorer must be a TokenScorer, got str"),
    ],
)
def test_arguments_of_other_types_are_rejected(world, given, message):
    model, _, rows = world
    with pytest.raises(TypeError, match=r"tokenizer .*transformers, got str"):
        evaluate(model, rows, tokenizer="folder")
    with pytest.raises(TypeError, match=message):
        Evaluation(**given)


def test_a_named_model_in_four_bits_is_not_attacked(world, tiny_llama, tmp_path):
    pytest.importorskip("bitsandbytes")
    _, tokenizer, rows = world
    model = tiny_llama(hidden_size=64, intermediate_size=128, vocab_size=300, max_position_embeddings=512)
    quantize_model(model, "4bit").save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    few, how = {"forget": rows["forget"][:2]}, Evaluation(settings=EvaluateConfig(max_new_tokens=2), progress=False)
    assert evaluate(str(tmp_path), few, how).sets["forget"]["extraction_strength"].n == 2
    with pytest.raises(ValueError, match=r"'quantization'.*weights"):
        evaluate(str(tmp_path), few, dataclasses.replace(how, metrics="quantization"))


def test_ordinary_rows_give_a_single_warning(world):
    model, tokenizer, _ = world
    rows = [{"question": f"Where is town {number}?", "answer": "By the sea."} for number in range(12)]
    found = evaluate(
        model, {"forget": rows, "retain": rows}, Evaluation(settings=CONFIG, progress=False), tokenizer=tokenizer
    )
    assert [warning.partition(":")[0] for warning in found.warnings] == ["forget and retain"]
    asked = evaluate(
        model, {"forget": rows}, Evaluation(metrics=["memorization", "scores"], progress=False), tokenizer=tokenizer
    )
    assert any(said.startswith("scores: ") for said in asked.warnings)
