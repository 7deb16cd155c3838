"""Unlearning depth score: the formula by hand, patching against plain hooks, and models with a known score."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from atwu.data.encode import EncodedRow, Encoder
from atwu.data.schema import Example
from atwu.evaluation.activation_patching import layer_outputs, patched_drops
from atwu.evaluation.evaluate import Evaluation, evaluate
from atwu.evaluation.metrics.unlearning_depth import count_key_tokens, layer_erasure, unlearning_depth
from atwu.evaluation.session import ReferenceModels
from atwu.modeling.load import load_model, load_tokenizer
from atwu.modeling.scratch import train_tokenizer

ROWS = [Example.from_qa(f"Where does {name} live?", f"{name} lives in {town}.") for name, town in (
    ("Orla Venn", "Port Avon"), ("Tavi Brook", "Elm"), ("Ines Marr", "Upper Lindenau"))]  # fmt: skip


def test_a_worked_example():
    """Layer 0 encodes nothing; layers 1 to 3 are erased by half, fully (clipped) and not at all (clipped)."""
    retain_drops = np.array([0.05, 1.0, 2.0, 1.0])
    drops = np.array([0.5, 0.5, 3.0, -0.2])
    np.testing.assert_allclose(layer_erasure(drops, retain_drops), [np.nan, 0.5, 1.0, 0.0])
    assert unlearning_depth(drops, retain_drops) == pytest.approx((1.0 * 0.5 + 2.0 * 1.0 + 1.0 * 0.0) / 4.0)
    assert unlearning_depth(drops, np.array([0.05, 0.0, -1.0, 0.01])) is None


def test_only_key_tokens_count(world):
    encoded = Encoder(load_tokenizer(world["original"])).encode(ROWS[0])
    kept = count_key_tokens(ROWS[0], encoded)
    text = "".join(ROWS[0].answer[slice(*span)] for span in kept.counted(kept.answer_offsets))
    assert text.replace(" ", "") == "PortAvon"
    assert count_key_tokens(Example.from_qa("What?", "?!"), encoded) is None


def plain_drops(original, source, row: EncodedRow) -> list[float]:
    """One row at a time: full logits, with the states written by a hook."""
    ids = torch.tensor([row.input_ids])
    places = [place - 1 for place, label in enumerate(row.labels) if label >= 0]

    def mean_logp() -> float:
        logps = original(ids).logits[0].log_softmax(-1)
        return float(sum(logps[place, row.input_ids[place + 1]] for place in places) / len(places))

    before, drops = mean_logp(), []
    for own, other in zip(original.model.layers, source.model.layers, strict=True):
        seen = []
        reading = other.register_forward_hook(lambda module, args, output, seen=seen: seen.append(output.clone()))
        source(ids)
        reading.remove()

        def write(module, args, output, seen=seen):
            output = output.clone()
            output[:, places] = seen[0][:, places]
            return output

        writing = own.register_forward_hook(write)
        drops.append(before - mean_logp())
        writing.remove()
    return drops


@torch.no_grad()
def test_equals_patching_with_plain_hooks(tiny_llama):
    original, *sources = (
        tiny_llama(seed, initializer_range=0.3, num_hidden_layers=3).double().eval() for seed in range(3)
    )
    rows = []
    for seed, (length, counted) in enumerate([(9, {4, 5, 8}), (14, {3}), (11, {9, 10})]):
        ids = torch.randint(3, 64, (length,), generator=torch.Generator().manual_seed(seed)).tolist()
        labels = tuple(token if place in counted else -100 for place, token in enumerate(ids))
        rows.append(EncodedRow(tuple(ids), labels, None, (None,) * length, has_terminal=True))
    found = patched_drops(
        original, rows, [layer_outputs(source, rows, batch_tokens=24) for source in sources], batch_tokens=24
    )
    wanted = [[plain_drops(original, source, row) for row in rows] for source in sources]
    np.testing.assert_allclose(found, wanted, atol=1e-12)
    assert np.abs(found).min() > 1e-3


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    tokenizer = train_tokenizer((f"{row.question} {row.answer}" for row in ROWS), vocab_size=300)
    for seed, (name, layers) in enumerate({"original": 2, "retain-only": 2, "deep": 3}.items()):
        torch.manual_seed(seed)
        shape = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_hidden_layers": layers}
        config = LlamaConfig(vocab_size=len(tokenizer), initializer_range=0.5, **shape)
        LlamaForCausalLM(config).save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return {name: str(folder / name) for name in ("original", "retain-only", "deep")}


def measured(world, model="original", *, rows=ROWS, original="original", retain_only="retain-only"):
    name = world[model]
    return evaluate(
        load_model(name),
        {"forget": rows},
        Evaluation(
            metrics=["uds"], progress=False, reference_models=ReferenceModels(world[original], world[retain_only])
        ),
        tokenizer=load_tokenizer(name),
    )


@pytest.mark.parametrize(("model", "score"), [("original", 0.0), ("retain-only", 1.0)])
def test_the_original_model_scores_0_and_the_retain_only_model_1(world, model, score):
    found = measured(world, model)
    row = found.sets["forget"]["uds"]
    assert (row.value, row.direction) == (score, "up")
    layers = [name for name in found.rows["forget"].metrics if name.startswith("uds_layer_")]
    assert layers == ["uds_layer_0", "uds_layer_1"]
    assert {value for name in layers for value in found.rows["forget"].metrics[name]} <= {score, None}
    assert list(found.sets["forget"]) == ["uds"]


def test_inputs_without_a_score_are_explained(world):
    with pytest.raises(ValueError, match=r"retain-only model .*deep has 3 layers of hidden size 32, .* 2 of 32; uds"):
        measured(world, retain_only="deep")
    with pytest.raises(
        ValueError, match="'uds' needs the weights of the original and the retain-only model; give both"
    ):
        evaluate(world["original"], {"forget": ROWS}, Evaluation(metrics=["uds"]))
    same = measured(world, "deep", original="deep", retain_only="deep")
    assert same.sets["forget"]["uds"].value is None
    assert said(same.warnings, "at most 0.000 nats (needed: 0.05)")
    wordless = measured(world, rows=[Example.from_qa("What?", "?!")])
    assert said(wordless.warnings, "no forget row has key tokens within max_length 512")


def said(warnings, text):
    return any(text in warning for warning in warnings)
