"""Attention at another temperature equals a model whose queries are divided by it."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers import BloomConfig, BloomForCausalLM, GPT2Config, GPT2LMHeadModel

from atwu.modeling.adapters import Lora, attach
from atwu.modeling.reference import attention_temperature

IDS = torch.randint(3, 64, (2, 9), generator=torch.Generator().manual_seed(0))


def gpt2():
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=2, n_head=2))


@torch.no_grad()
def divided(model, temperature):
    """Divide the queries of a Llama or GPT-2 through their weights."""
    other = copy.deepcopy(model)
    for module in other.modules():
        if hasattr(module, "q_proj"):
            module.q_proj.weight /= temperature
        elif hasattr(module, "c_attn"):
            module.c_attn.weight[:, :16] /= temperature
            module.c_attn.bias[:16] /= temperature
    return other(IDS).logits


@torch.no_grad()
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_scores_are_divided_within_the_context(kind, attention, tiny_llama):
    model = (tiny_llama() if kind == "llama" else gpt2()).double().eval()
    model.set_attn_implementation(attention)
    before = model(IDS).logits
    with attention_temperature(model, 2.3):
        within = model(IDS).logits
    torch.testing.assert_close(within, divided(model, 2.3), atol=1e-10, rtol=1e-10)
    assert (within - before).abs().max() > 1e-4
    assert torch.equal(model(IDS).logits, before)


@torch.no_grad()
def test_adapters_keep_their_own_scaling(tiny_llama):
    model = tiny_llama().double().eval()
    expected = divided(model, 2.3)
    with attention_temperature(adapted := attach(model, Lora(r=2), seed=0), 2.3):
        torch.testing.assert_close(adapted(IDS).logits, expected, atol=1e-10, rtol=1e-10)


def test_attention_without_scaling_is_refused():
    model = BloomForCausalLM(BloomConfig(vocab_size=64, hidden_size=16, n_layer=1, n_head=2))
    with pytest.raises(ValueError, match=r"BloomForCausalLM cannot be changed"), attention_temperature(model, 2.0):
        pass
    with attention_temperature(model, 1.0):
        pass
