"""Adapted models: exact in every fast path, exact when disabled, exact when merged."""

from __future__ import annotations

import contextlib
import copy

import pytest
import torch

pytest.importorskip("peft")

from atwu.modeling.adapters import Lora, attach, merge_adapters, original_model
from atwu.modeling.forward import forward_tokens
from atwu.modeling.load import model_fingerprint
from atwu.modeling.single_pass import fast_path_support
from tests.modeling.small_models import in_layout, logps, shaken

CPU = torch.device("cpu")
ALL = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


def adapted_names(model):
    return {name.partition(".lora_A")[0] for name, _ in model.named_parameters() if ".lora_A" in name}


# (settings, whether log-probabilities come straight from the hidden states)
CASES = [
    (Lora(r=2), True),
    (Lora(r=3, alpha=1.0, targets=("q_proj", "v_proj")), True),
    (Lora(r=2, targets=("gate_proj", "down_proj"), layers=(1,)), True),  # the last MLP alone
    (Lora(r=2, targets=("lm_head",)), False),
    (Lora(r=2, targets=("lm_head", "up_proj")), False),
]


@pytest.mark.parametrize(("lora", "fused"), CASES)
def test_equals_the_plain_computation_in_value_and_gradient(lora, fused, tiny_llama, batch, plain_logps):
    base, first, second = tiny_llama(), batch(rows=3, seed=1), batch(rows=2, length=9, seed=2)
    assert fast_path_support(base, CPU).fused_head
    model = shaken(attach(base, lora, seed=0))
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    expected = [plain_logps(model, one) for one in (first, second)]
    wanted = torch.autograd.grad(sum((values * values).sum() for values, _ in expected), parameters)
    abilities = fast_path_support(model, CPU)
    assert (abilities.fused_head, abilities.last_mlp) == (fused, fused)
    assert abilities.packed or not fused
    for layout in ("packed", "padded") if abilities.packed else ("padded",):
        with in_layout(model, layout):
            outputs = forward_tokens(model, [first, second])
        for out, (values, counted) in zip(outputs, expected, strict=True):
            torch.testing.assert_close(out.logps[counted], values.float(), atol=3e-6, rtol=1e-5)
        got = torch.autograd.grad(sum((out.logps**2).sum() for out in outputs), parameters)
        for left, right in zip(got, wanted, strict=True):
            assert right.abs().max() > 0
            torch.testing.assert_close(left, right, atol=2e-5, rtol=1e-4)


def test_layer_outputs_are_those_of_the_adapted_model(tiny_llama, batch):
    model, rows = shaken(attach(tiny_llama(), Lora(r=2), seed=0)), batch()
    hidden = model(rows["input_ids"], attention_mask=rows["attention_mask"], output_hidden_states=True).hidden_states[1]
    (out,) = forward_tokens(model, [rows], layer=0, stop=True)
    torch.testing.assert_close(out.layer_states, hidden[:, 1:][out.mask], atol=1e-5, rtol=1e-5)
    out.layer_states.sum().backward()
    names = [name for name, parameter in model.named_parameters() if parameter.grad is not None]
    assert names
    assert all("layers.0." in name and "lora_" in name for name in names)


def test_only_adapters_are_trainable_and_new_ones_change_nothing(tiny_llama, batch):
    base, rows = tiny_llama().eval(), batch()
    before = logps(base, rows).detach()
    model = attach(base, Lora(r=2), seed=0)
    assert torch.equal(logps(model, rows), before)
    assert not model.training
    assert all(("lora_" in name) == parameter.requires_grad for name, parameter in model.named_parameters())
    logps(model, rows).sum().backward()
    assert all((parameter.grad is not None) == parameter.requires_grad for parameter in model.parameters())


def test_equal_seeds_give_equal_adapters_and_leave_the_global_state_alone(tiny_llama):
    torch.manual_seed(5)
    expected = torch.rand(1)
    bases = [tiny_llama() for _ in range(3)]
    torch.manual_seed(5)
    first, same, other = (attach(base, Lora(r=2), seed=seed) for base, seed in zip(bases, (1, 1, 2), strict=True))
    assert torch.equal(torch.rand(1), expected)
    assert model_fingerprint(first) == model_fingerprint(same) != model_fingerprint(other)


def test_targets_and_layers_choose_what_is_adapted(tiny_llama):
    prefix = "base_model.model.model.layers"
    names = adapted_names(attach(tiny_llama(), Lora(r=2), seed=0))
    assert {name.rpartition(".")[2] for name in names} == ALL
    assert len(names) == 14
    model = attach(tiny_llama(), Lora(r=2, targets=("self_attn.q_proj", "up_proj"), layers=(1,)), seed=0)
    assert adapted_names(model) == {f"{prefix}.1.self_attn.q_proj", f"{prefix}.1.mlp.up_proj"}
    names = adapted_names(attach(tiny_llama(), Lora(r=2, layers=(0,)), seed=0))
    assert len(names) == 7
    assert all(name.startswith(f"{prefix}.0.") for name in names)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"r": 0}, r"\br\b.*>= 1.* 0"),
        ({"r": 2, "alpha": 0.0}, r"alpha.*> 0.* 0\.0"),
        ({"r": 2, "dropout": 1.0}, r"dropout.* 1\.0"),
        ({"r": 2, "targets": ()}, "targets.*empty"),
    ],
)
def test_impossible_settings_are_rejected(settings, message):
    with pytest.raises(ValueError, match=message):
        Lora(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"targets": ("q_prj",)}, "'q_prj'.* down_proj, .*, lm_head, .*up_proj, v_proj.* q_proj"),
        ({"targets": ("embed_tokens",)}, "'embed_tokens'"),
        ({"layers": (0, 2)}, "layers.*0 and 1"),
        ({"targets": ("q_proj", "lm_head"), "layers": (0,)}, "'lm_head'.*layers"),
    ],
)
def test_errors_name_targets_that_the_model_lacks(settings, message, tiny_llama):
    model = tiny_llama()
    with pytest.raises(ValueError, match=message):
        attach(model, Lora(r=2, **settings), seed=0)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_a_second_adapter_is_rejected(tiny_llama):
    model = attach(tiny_llama(), Lora(r=2), seed=0)
    with pytest.raises(ValueError, match="already"):
        attach(model, Lora(r=2), seed=0)


@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_original_model_equals_the_base_exactly(layout, tiny_llama, batch):
    rows, untouched = batch(), tiny_llama()
    model = shaken(attach(tiny_llama(), Lora(r=2, dropout=0.5), seed=0)).train()
    with in_layout(model, layout), in_layout(untouched, layout):
        adapted = logps(model, rows)
        with original_model(model):
            assert torch.equal(logps(model, rows), logps(untouched, rows))
    assert (adapted - logps(untouched, rows)).abs().max() > 1e-3


def test_original_model_has_no_side_effects_within_a_training_step(tiny_llama, batch):
    model = shaken(attach(tiny_llama(), Lora(r=2), seed=0)).train()
    model.base_model.model.model.norm.eval()
    rows, parameters = batch(), [p for p in model.parameters() if p.requires_grad]
    wanted = torch.autograd.grad(logps(model, rows).sum(), parameters)
    loss = logps(model, rows).sum()
    state = [m.training for m in model.modules()], [p.requires_grad for p in model.parameters()]
    with contextlib.suppress(InterruptedError), original_model(model):
        assert not any(m.training for m in model.modules())
        raise InterruptedError
    assert state == ([m.training for m in model.modules()], [p.requires_grad for p in model.parameters()])
    loss.backward()
    for parameter, expected in zip(parameters, wanted, strict=True):
        torch.testing.assert_close(parameter.grad, expected)


@pytest.mark.parametrize("lora", [Lora(r=2), Lora(r=2, targets=("lm_head", "o_proj"))])
def test_merged_model_is_plain_with_the_same_outputs(lora, tiny_llama, batch):
    model, rows = shaken(attach(tiny_llama(), lora, seed=0)), batch()
    expected = logps(model, rows).detach()
    places = [each.data_ptr() for name, each in model.named_parameters() if "lora_" not in name]
    plain = merge_adapters(model)
    assert [each.data_ptr() for each in plain.parameters()] == places  # no weight is duplicated
    assert type(plain).__name__ == "LlamaForCausalLM"
    assert list(plain.state_dict()) == list(tiny_llama().state_dict())
    assert all(parameter.requires_grad for parameter in plain.parameters())
    torch.testing.assert_close(logps(plain, rows), expected, atol=1e-5, rtol=1e-5)
    assert fast_path_support(plain, CPU).fused_head


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings")
def test_merging_is_rejected_if_it_changes_the_model(tiny_llama):
    with pytest.raises(ValueError, match=r"LlamaForCausalLM.*adapters.*merge"):
        merge_adapters(tiny_llama())
    tied = attach(tiny_llama(tie_word_embeddings=True), Lora(r=2, targets=("lm_head",)), seed=0)
    with pytest.raises(ValueError, match=r"embeddings.*adapter"):
        merge_adapters(tied)
    quantized_weights = attach(tiny_llama(), Lora(r=2), seed=0)
    quantized_weights.get_base_model().is_quantized = True
    with pytest.raises(ValueError, match=r"quantized.*adapter"):
        merge_adapters(quantized_weights)


def test_fingerprint_covers_base_and_adapter_in_any_dtype(tiny_llama):
    def build():
        return attach(tiny_llama().to(torch.bfloat16), Lora(r=2), seed=0)

    model, same = build(), build()
    assert model_fingerprint(model) == model_fingerprint(same)
    for name in ("lora_B", "embed_tokens"):
        changed = copy.deepcopy(model)
        next(p for n, p in changed.named_parameters() if name in n).data[0, 0] += 1
        assert model_fingerprint(changed) != model_fingerprint(model)
    kinds = torch.nn.Module()
    for dtype in (torch.int8, torch.uint8, torch.float8_e4m3fn, torch.bool, torch.complex64):
        kinds.register_buffer(str(dtype)[6:], torch.ones(3, 2).to(dtype).T)
    assert model_fingerprint(kinds) == model_fingerprint(copy.deepcopy(kinds))
