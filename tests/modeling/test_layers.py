"""Reading one decoder layer equals `hidden_states` of transformers, with the same gradient and no side effects."""

from __future__ import annotations

import pytest
import torch

from atwu.modeling.batches import TokenBatch
from atwu.modeling.forward import forward_tokens
from atwu.modeling.layers import decoder_layers, tap, train_only_down_projections
from tests.modeling.small_models import in_layout

LAYERS = 4


@pytest.fixture
def model(tiny_llama):
    return tiny_llama(num_hidden_layers=LAYERS).eval()


def traces(model):
    """Return everything that reading a layer could change."""
    return [
        (name, len(module._forward_hooks), "forward" in vars(module), module.training)
        for name, module in model.named_modules()
    ]


def plain_states(model, rows):
    outputs = model(rows["input_ids"], attention_mask=rows["attention_mask"], output_hidden_states=True)
    return [states[:, 1:][TokenBatch.of(rows).mask] for states in outputs.hidden_states]


def gradients(model, states):
    upstream = torch.randn(states.shape, generator=torch.Generator().manual_seed(1))
    found = torch.autograd.grad((states * upstream).sum(), list(model.parameters()), allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for p, g in zip(model.parameters(), found, strict=True)]


@pytest.mark.parametrize("stop", [False, True])
@pytest.mark.parametrize("layout", ["packed", "padded"])
@pytest.mark.parametrize("layer", [0, LAYERS - 2])
def test_equals_the_hidden_states_of_transformers_with_their_gradient(layer, layout, stop, model, batch):
    rows = batch(rows=3, seed=1, left_padded=True)
    expected, before = plain_states(model, rows)[layer + 1], traces(model)
    with in_layout(model, layout):
        (out,) = forward_tokens(model, [rows], layer=layer, stop=stop)
    assert traces(model) == before
    torch.testing.assert_close(out.layer_states, expected, atol=1e-5, rtol=1e-5)
    for left, right in zip(gradients(model, out.layer_states), gradients(model, expected), strict=True):
        torch.testing.assert_close(left, right, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("stop", [False, True])
def test_the_output_of_the_last_layer_is_taken_before_the_final_norm(stop, model, batch):
    rows = batch(rows=3, seed=2)
    (out,) = forward_tokens(model, [rows], layer=LAYERS - 1, stop=stop)
    torch.testing.assert_close(model.model.norm(out.layer_states), plain_states(model, rows)[-1], atol=1e-5, rtol=1e-5)


def test_each_batch_gets_the_states_of_its_own_rows(model, batch):
    first, second = batch(rows=3, seed=3), batch(rows=2, length=9, seed=4)
    outs = forward_tokens(model, [first, second], layer=1, stop=True)
    for out, rows in zip(outs, (first, second), strict=True):
        torch.testing.assert_close(out.layer_states, plain_states(model, rows)[2], atol=1e-5, rtol=1e-5)


def test_stopping_skips_the_later_layers_and_the_logits(model, batch):
    ran = []
    for index, layer in enumerate(decoder_layers(model)):
        layer.mlp.register_forward_hook(lambda *_, index=index: ran.append(index))
    rows = batch()
    forward_tokens(model, [rows], layer=1)
    ran.clear()
    (out,) = forward_tokens(model, [rows], layer=1, stop=True)
    assert ran == [0, 1]
    assert not out.logps.any()
    (full,) = forward_tokens(model, [rows], layer=1)
    (without,) = forward_tokens(model, [rows])
    torch.testing.assert_close(full.logps, without.logps)


@pytest.mark.parametrize("stop", [False, True])
def test_no_side_effects_after_an_exception(stop, model, batch):
    rows = batch()
    plain_states(model, rows)  # transformers installs its own hooks in the first such call
    before = traces(model)
    handle = decoder_layers(model)[0].register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        forward_tokens(model, [rows], layer=1, stop=stop)
    handle.remove()
    assert traces(model) == before


@pytest.mark.parametrize("stop", [False, True])
def test_gradient_checkpointing_gives_the_same_gradient(stop, tiny_llama, batch):
    rows, found = batch(rows=3, seed=5), []
    for checkpointed in (False, True):
        model = tiny_llama(num_hidden_layers=LAYERS).train()
        if checkpointed:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        (out,) = forward_tokens(model, [rows], layer=1, stop=stop)
        found.append((out.layer_states, *gradients(model, out.layer_states)))
        assert found[-1][-1].shape == model.lm_head.weight.shape
    for left, right in zip(*found, strict=True):
        torch.testing.assert_close(left, right, atol=1e-6, rtol=1e-5)


def test_reentrant_checkpointing_is_rejected_because_it_removes_the_gradient(model, batch):
    train_only_down_projections(model, [0, 1])
    model.train()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
    model.disable_input_require_grads()
    rows = batch()
    plain_states(model, rows)
    before = traces(model)
    with pytest.raises(RuntimeError, match="use_reentrant"):
        forward_tokens(model, [rows], layer=1, stop=True)
    assert traces(model) == before


def test_layers_that_return_tuples_are_passed_on_as_tuples():
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, states, mask=None):
            return self.linear(states), "attention weights"

    class Old(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(Layer() for _ in range(3))

        def get_decoder(self):
            return self

        def forward(self, states):
            for layer in self.layers:
                states = layer(states, mask=None)[0]
            return states

    model, into = Old(), []
    states = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))
    with tap(model, 0, into, stop=True):
        out = model(states)
    assert torch.equal(out, model.layers[0](states)[0])
    assert torch.equal(into[0], out.flatten(0, 1))


@pytest.mark.parametrize("layer", [-1, LAYERS])
def test_a_layer_out_of_range_is_rejected(layer, model, batch):
    with pytest.raises(ValueError, match=rf"\b0 .*\b3\b.* {layer}\b"):
        forward_tokens(model, [batch()], layer=layer)
    with pytest.raises(ValueError, match=rf"\b0 .*\b3\b.* {layer}\b"):
        train_only_down_projections(model, [0, layer])
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_only_down_projections_of_the_layers_stay_trainable(model):
    train_only_down_projections(model, range(1, 3))
    trainable = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert trainable == {f"model.layers.{layer}.mlp.down_proj.weight" for layer in (1, 2)}
    with pytest.raises(ValueError, match=r"layer 0 of LlamaForCausalLM.*mlp\.down_proj"):
        train_only_down_projections(model, [0, 1])
    assert {name for name, parameter in model.named_parameters() if parameter.requires_grad} == trainable


def test_with_adapters_only_those_on_the_layers_outputs_stay_trainable(model):
    from atwu.modeling.adapters import Lora, attach

    adapted = attach(model, Lora(r=2), seed=0)
    train_only_down_projections(adapted, [2])
    trainable = {name for name, parameter in adapted.named_parameters() if parameter.requires_grad}
    prefix = "base_model.model.model.layers.2.mlp.down_proj"
    assert trainable == {f"{prefix}.lora_A.default.weight", f"{prefix}.lora_B.default.weight"}


def test_adapters_on_other_modules_are_rejected_with_advice(model):
    from atwu.modeling.adapters import Lora, attach

    adapted = attach(model, Lora(r=2, targets=("q_proj",)), seed=0)
    with pytest.raises(ValueError, match=r"lora_targets=mlp\.down_proj"):
        train_only_down_projections(adapted, [2])
