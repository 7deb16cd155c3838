"""The quantization attack: integer levels by hand, identities, and the layers that it changes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from atwu.evaluation.facts.model_states import quantized_weights, rounded_weight
from atwu.modeling.load import model_fingerprint


def test_levels_by_hand():
    # Rows: step 12.7 / 127 = 0.1; step 7 / 127.
    weight = torch.tensor([[12.7, 0.04, -0.26, -12.7], [7.0, 0.0, 0.02, -3.0]], dtype=torch.float64)
    expected = [[12.7, 0.0, -0.3, -12.7], [7.0, 0.0, 0.0, -54 * 7 / 127]]
    torch.testing.assert_close(rounded_weight(weight, 8), torch.tensor(expected, dtype=torch.float64))
    # Groups of two inputs, the last one alone: steps 1, 0.5 and 0.2.
    weight = torch.tensor([[7.0, -2.4, 3.5, 0.8, -1.4]], dtype=torch.float64)
    expected = torch.tensor([[7.0, -2.0, 3.5, 1.0, -1.4]], dtype=torch.float64)
    torch.testing.assert_close(rounded_weight(weight, 4, group=2), expected)


def plain(weight, bits, group):
    levels = 2 ** (bits - 1) - 1
    result = weight.clone()
    for row in range(weight.shape[0]):
        for start in range(0, weight.shape[1], group):
            piece = weight[row, start : start + group]
            step = float(piece.abs().max()) / levels
            for place, value in enumerate(piece.tolist()):
                result[row, start + place] = round(value / step) * step if step else 0.0
    return result


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 9), st.integers(1, 12), st.sampled_from([2, 4, 8]))
def test_equals_plain_loops_within_half_a_quantization_step(seed, outputs, inputs, group, bits):
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(outputs, inputs, dtype=torch.float64, generator=generator)
    result = rounded_weight(weight, bits, group)
    torch.testing.assert_close(result, plain(weight, bits, group), atol=1e-9, rtol=0)
    step = weight.abs().max() / (2 ** (bits - 1) - 1)
    assert (result - weight).abs().max() <= step / 2 + 1e-12


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize(("bits", "group"), [(8, None), (4, 128), (4, 7)])
def test_quantizing_twice_equals_quantizing_once(dtype, bits, group):
    scales = torch.logspace(-8, 3, 40, dtype=torch.float64)[:, None]
    weight = (torch.randn(40, 300, generator=torch.Generator().manual_seed(1)) * scales).to(dtype)
    once = rounded_weight(weight, bits, group)
    assert once.dtype == dtype
    assert torch.equal(rounded_weight(once, bits, group), once)
    assert len(once[20, :7].unique()) > 1
    assert torch.equal(once.abs().amax(1), weight.abs().amax(1))


def test_rows_of_zeros_do_not_change():
    assert torch.equal(rounded_weight(torch.zeros(2, 5), 4, group=2), torch.zeros(2, 5))


def test_only_linear_layers_are_quantized_and_restored_afterwards(tiny_llama):
    model = tiny_llama()
    before, fingerprint = {name: w.clone() for name, w in model.named_parameters()}, model_fingerprint(model)
    with quantized_weights(model, 8):
        for name, weight in model.named_parameters():
            if "proj" in name:
                assert torch.equal(weight, rounded_weight(before[name], 8))
                assert not torch.equal(weight, before[name])
            else:
                assert torch.equal(weight, before[name]), name  # lm_head, embeddings, norms
    assert model_fingerprint(model) == fingerprint


def test_conv1d_is_quantized_along_its_inputs():
    model = GPT2LMHeadModel(GPT2Config(vocab_size=20, n_positions=8, n_embd=8, n_layer=1, n_head=2))
    layer = model.transformer.h[0].mlp.c_fc  # weight of shape (inputs, outputs)
    before, embeddings = layer.weight.detach().clone(), model.transformer.wte.weight.detach().clone()
    with quantized_weights(model, 4):
        assert torch.equal(layer.weight, rounded_weight(before.T, 4, 128).T)
        assert torch.equal(model.lm_head.weight, embeddings)


def test_adapters_keep_their_precision(tiny_llama):
    from atwu.modeling.adapters import Lora, attach

    model = attach(tiny_llama(), Lora(r=2), seed=0)
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    with quantized_weights(model, 8):
        changed = {name for name, weight in model.named_parameters() if not torch.equal(weight, before[name])}
    assert changed == {name for name in before if name.endswith("base_layer.weight")}


def test_weights_that_cannot_be_quantized_are_rejected():
    with pytest.raises(ValueError, match="linear layer"), quantized_weights(nn.LayerNorm(3), 8):
        pass
