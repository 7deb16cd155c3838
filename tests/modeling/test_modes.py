"""Modes, weights and gradients are changed within a context and restored afterwards; fingerprints of weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import nn
from transformers import AutoModelForCausalLM

from atwu.modeling.layers import bfloat16_weights, eval_mode, full_precision, restored
from atwu.modeling.load import model_fingerprint
from atwu.modeling.scratch import scratch_model
from tests.modeling.small_models import small_model


@pytest.fixture(autouse=True)
def own_accelerator() -> Iterator[None]:
    """An accelerator of another test in this process may have another precision."""
    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


def test_full_precision_removes_the_wrapper_of_a_trainer() -> None:
    model, ids = small_model("llama"), torch.tensor([[5, 9, 2, 7]])
    with torch.no_grad(), eval_mode(model):
        plain = model(input_ids=ids).logits
        Accelerator(mixed_precision="bf16", cpu=True).prepare_model(model)
        rounded = model(input_ids=ids).logits
        with full_precision(model):
            assert torch.equal(model(input_ids=ids).logits, plain)
        assert not torch.equal(rounded, plain)
        assert torch.equal(model(input_ids=ids).logits, rounded)


def test_bfloat16_weights_compute_as_a_model_loaded_in_bfloat16(tmp_path: Path) -> None:
    model, ids = small_model("llama"), torch.tensor([[5, 9, 2, 7]])
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    before = {name: (weights, weights.data_ptr(), weights.clone()) for name, weights in model.named_parameters()}
    with torch.no_grad(), eval_mode(model), bfloat16_weights(model):
        assert torch.equal(model(input_ids=ids).logits, loaded(input_ids=ids).logits)
    with pytest.raises(ValueError, match="invalid"), bfloat16_weights(model):
        raise ValueError("invalid")
    for name, weights in model.named_parameters():
        same, place, values = before[name]
        assert weights is same
        assert weights.data_ptr() == place
        assert torch.equal(weights, values)
    with bfloat16_weights(model, False):
        assert model.dtype == torch.float32


@pytest.fixture
def model():
    model = scratch_model("micro").train()
    model.model.layers[0].eval()
    model.model.norm.weight.requires_grad_(False)
    model(input_ids=torch.arange(8)[None]).logits.sum().backward()
    return model


def spoil(model):
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.mul_(3).add_(1)
    model.eval().requires_grad_(True)
    model(input_ids=torch.arange(5)[None]).logits.sum().backward()


def test_weights_are_restored_after_an_error(model):
    def state():
        modes = [module.training for module in model.modules()]
        flags = [weight.requires_grad for weight in model.parameters()]
        grads = [None if weight.grad is None else weight.grad.tolist() for weight in model.parameters()]
        return model_fingerprint(model), model.model.rotary_emb.inv_freq.tolist(), modes, flags, grads

    before, weights = state(), list(model.parameters())

    def fail():
        assert all(weight.grad is None for weight in weights)
        spoil(model)
        assert state() != before
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"), restored(model):
        fail()
    assert state() == before
    assert all(now is then for now, then in zip(model.parameters(), weights, strict=True))


def test_tied_parameters_and_shared_memory_stay_shared(model):
    parts = nn.Module()
    parts.whole = nn.Parameter(torch.ones(4))
    parts.part = nn.Parameter(parts.whole.data[:2])
    before = model_fingerprint(model)
    with restored(model), restored(parts), torch.no_grad():
        model.lm_head.weight.zero_()
        parts.part.zero_()
    assert model.lm_head.weight is model.get_input_embeddings().weight
    assert model_fingerprint(model) == before
    assert parts.whole.tolist() == [1] * 4
    parts.whole.data[0] = 7
    assert parts.part[0] == 7


def test_fingerprint_depends_on_every_bit_and_shape():
    first, second, empty = nn.Linear(2, 3), nn.Linear(2, 3), nn.Linear(0, 3)
    second.load_state_dict(first.state_dict())
    assert model_fingerprint(first) == model_fingerprint(second) != model_fingerprint(empty)
    second.bias.data[2] = torch.nextafter(second.bias.data[2], torch.tensor(9.0))
    assert model_fingerprint(first) != model_fingerprint(second)


@pytest.mark.parametrize("part", ["device_mesh", "ds_id"])
def test_sharded_weights_have_no_fingerprint(part):
    model = nn.Linear(2, 3)
    setattr(model.weight, part, 0)
    for other in (model, nn.Linear(2, 3, device="meta")):
        with pytest.raises(ValueError, match="processes or not loaded"):
            model_fingerprint(other)
