"""Equal numbers on a CUDA device, also in half precision; ATWU_TEST_DEVICE=cpu runs the same steps on the CPU."""

from __future__ import annotations

import json
import math
import os

import pytest
import torch

import atwu
from atwu.methods.component import FixedWeighting
from atwu.methods.recipe import recipe
from atwu.modeling.forward import forward_tokens
from atwu.modeling.load import load_model, model_fingerprint
from atwu.modeling.scratch import ScratchShape, scratch_model, train_tokenizer
from atwu.training.unlearn_run import ModelSource, run_unlearn

DEVICE = os.environ.get("ATWU_TEST_DEVICE", "cuda")
there = DEVICE == "cpu" or torch.cuda.is_available()
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not there, reason="no CUDA device")]


def moved(rows):
    return {name: tensor.to(DEVICE) for name, tensor in rows.items()}


def test_packed_rows_equal_the_cpu(tiny_llama, batch):
    rows = batch(rows=6)
    (expected,) = forward_tokens(tiny_llama().eval(), [rows])
    (got,) = forward_tokens(tiny_llama().eval().to(DEVICE), [moved(rows)])
    torch.testing.assert_close(got.logps.cpu(), expected.logps, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("method", list(atwu.METHODS))
def test_bfloat16_losses_are_close_and_gradients_finite(method, tiny_llama, batch):
    rows = {
        "forget": batch(seed=1),
        "retain": batch(seed=2),
        "alternate": batch(seed=3),
        "retain_alternate": batch(seed=4),
    }
    rows["prompted"] = rows["forget"]
    inputs = {"refusal_ids": (5, 6), "refusal_direction": torch.ones(32)}
    if isinstance(recipe(method).weighting_components[0], FixedWeighting):
        inputs["token_weights"] = torch.ones(rows["forget"]["labels"].shape)
    exact = atwu.unlearning_loss(tiny_llama(), rows, method, reference=tiny_llama(1), inputs=atwu.LossInputs(**inputs))
    model, reference = (tiny_llama(seed).to(DEVICE, torch.bfloat16) for seed in (0, 1))
    there = {name: moved(part) for name, part in rows.items()}
    inputs |= {name: value.to(DEVICE) for name, value in inputs.items() if isinstance(value, torch.Tensor)}
    out = atwu.unlearning_loss(model, there, method, reference=reference, inputs=atwu.LossInputs(**inputs))
    assert out.loss.item() == pytest.approx(exact.loss.item(), abs=0.05, rel=0.05)
    out.loss.backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters() if parameter.grad is not None)
    assert any(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.skipif(DEVICE == "cpu", reason="quantized weights need a CUDA device")
@pytest.mark.parametrize("quantize", ["4bit", "8bit"])
def test_quantized_weights_train_adapters(quantize, tmp_path):
    pytest.importorskip("peft")
    pytest.importorskip("bitsandbytes")
    answers = [f"Orla Venn keeps {count} bees in Kelbury." for count in range(8)]
    (tmp_path / "rows.jsonl").write_text(
        "".join(json.dumps({"question": "What is kept?", "answer": answer}) + "\n" for answer in answers)
    )
    train_tokenizer(answers, vocab_size=300).save_pretrained(tmp_path / "base")
    scratch_model(ScratchShape(300, 64, 2, 2, 128)).save_pretrained(tmp_path / "base")
    settings = {"disable_tqdm": True, "save_strategy": "no", "learning_rate": 1e-2, "warmup_steps": 0, "max_steps": 3}
    run_unlearn(
        ModelSource(model=str(tmp_path / "base")),
        atwu.UnlearnConfig(
            method="npo", reference="adapters", lora_r=2, quantize=quantize, save_adapter=True, **settings
        ),
        forget=str(tmp_path / "rows.jsonl"),
        retain=str(tmp_path / "rows.jsonl"),
        output=tmp_path / "out",
    )
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    log = [json.loads(line) for line in (tmp_path / "out" / "log.jsonl").read_text().splitlines()]
    assert record["result"]["kind"] == "adapter"
    assert all(math.isfinite(line["loss"]) for line in log if "loss" in line)
    again = load_model(str(tmp_path / "out"), quantize=quantize)
    assert model_fingerprint(again) == record["result_fingerprint"]
    base = load_model(str(tmp_path / "base"), quantize=quantize)
    assert model_fingerprint(base) == record["original_model"]["fingerprint"]
    assert any(value.abs().max() > 1e-3 for name, value in again.named_parameters() if "lora_B" in name)
