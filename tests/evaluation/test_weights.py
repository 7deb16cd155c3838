"""`restored`: the model is unchanged after the block, also after errors."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from atwu.modeling.fingerprint import model_fingerprint
from atwu.modeling.modes import restored
from atwu.modeling.scratch import scratch_model


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
