"""Reference outputs equal a plain pass, row by row; tables and a live model give the same losses."""

from __future__ import annotations

import contextlib
import copy

import pytest
import torch
from transformers import BloomConfig, BloomForCausalLM, GPT2Config, GPT2LMHeadModel

from atwu.data.encode import EncodedRow
from atwu.data.pairing import collate_rows
from atwu.modeling.adapters import Lora, attach
from atwu.modeling.batches import TokenBatch
from atwu.modeling.distribution_distance import Teacher
from atwu.modeling.reference import (
    ReferenceSpec,
    TokenTable,
    attention_temperature,
    compute_reference,
    counted_tokens,
    plain_head,
    reference_of_batch,
)

EVERYTHING = ReferenceSpec(logps=True, states=True, layer=0)


def make_rows(count=7, *, seed=0, vocab=64):
    """Return rows of equal and unequal length, one without counted tokens, counted tokens not always last."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for index in range(count):
        size = (9, 4, 9, 14, 2, 6, 11)[index % 7]
        ids = torch.randint(3, vocab, (size,), generator=generator).tolist()
        counted = [place >= size // 3 and place % 5 != 4 and place > 0 and index != 5 for place in range(size)]
        labels = tuple(token if keep else -100 for token, keep in zip(ids, counted, strict=True))
        rows.append(EncodedRow(tuple(ids), labels, (1,) * size if index % 2 else None, (None,) * size, True))
    return rows


def row_alone(model, row):
    """Compute log-probabilities, final states and outputs of the first layer at counted tokens by a plain pass."""
    places = [t for t in range(1, len(row.labels)) if row.labels[t] != -100]
    with torch.no_grad():
        out = model(input_ids=torch.tensor([row.input_ids]), output_hidden_states=True)
    logps = out.logits[0].log_softmax(-1)
    return (
        torch.stack([logps[t - 1, row.input_ids[t]] for t in places]) if places else logps.new_zeros(0),
        out.hidden_states[-1][0, [t - 1 for t in places]],
        out.hidden_states[1][0, places],
    )


def batch_of(rows):
    return TokenBatch.of(collate_rows([EncodedRow(r.input_ids, r.labels, None, r.answer_offsets, True) for r in rows]))


@pytest.mark.parametrize("batch_tokens", [10, 10_000])
@pytest.mark.parametrize("order", [1, -1])
def test_rows_keep_their_order_for_any_batch_size(batch_tokens, order, tiny_llama):
    model, rows = tiny_llama().double().eval(), make_rows()[::order]
    found = compute_reference(model, rows, EVERYTHING, batch_tokens=batch_tokens)
    lengths = [counted_tokens(row) for row in rows]
    tables = [TokenTable(found[name], lengths) for name in ("logps", "states", "layer")]
    assert 0 in lengths
    for index, row in enumerate(rows):
        for table, expected in zip(tables, row_alone(model, row), strict=True):
            torch.testing.assert_close(table.rows([index]), expected, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (ReferenceSpec(logps=True), {"logps"}),
        (ReferenceSpec(states=True), {"states"}),
        (ReferenceSpec(layer=1), {"layer"}),
        (ReferenceSpec(logps=True, layer=1), {"logps", "layer"}),
    ],
)
def test_only_requested_quantities_are_returned(wanted, names, tiny_llama):
    model, rows = tiny_llama().eval(), make_rows()
    found = compute_reference(model, rows, wanted)
    assert found.keys() == names
    for tensor in found.values():
        assert tensor.shape[0] == sum(map(counted_tokens, rows))
        assert not tensor.requires_grad


def test_reading_one_layer_does_not_run_the_later_ones(tiny_llama):
    model, ran = tiny_llama(num_hidden_layers=3).eval(), []
    compute_reference(model, make_rows(1), ReferenceSpec(layer=0))
    model.model.layers[1].mlp.register_forward_hook(lambda *_: ran.append(1))
    found = compute_reference(model, make_rows(), ReferenceSpec(layer=0))
    assert not ran
    torch.testing.assert_close(found["layer"], compute_reference(model, make_rows(), EVERYTHING)["layer"])


def test_train_mode_of_every_module_is_restored(tiny_llama):
    model = tiny_llama().train()
    compute_reference(model, make_rows(1), EVERYTHING)
    model.model.layers[0].eval()
    modes = [part.training for part in model.modules()]
    compute_reference(model, make_rows(), EVERYTHING)
    assert [part.training for part in model.modules()] == modes
    reference_of_batch(model, {"forget": batch_of(make_rows())}, {"forget": ReferenceSpec(logps=True)})
    assert [part.training for part in model.modules()] == modes
    with pytest.raises(RuntimeError, match="stop here"):
        compute_reference(model, make_rows(), EVERYTHING, autocast=raising)
    assert [part.training for part in model.modules()] == modes


@contextlib.contextmanager
def raising():
    raise RuntimeError("stop here")
    yield


def test_autocast_is_that_of_training(tiny_llama):
    model, rows = tiny_llama().eval(), make_rows()
    half = compute_reference(model, rows, EVERYTHING, autocast=lambda: torch.autocast("cpu", dtype=torch.bfloat16))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        live = reference_of_batch(model, {"forget": batch_of(rows)}, {"forget": ReferenceSpec(logps=True)})
    torch.testing.assert_close(half["logps"], live.logps["forget"], atol=1e-2, rtol=1e-2)
    assert not torch.equal(half["logps"], compute_reference(model, rows, EVERYTHING)["logps"])


def test_live_reference_equals_tables(tiny_llama):
    model = tiny_llama().double().eval()
    sets = {"forget": make_rows(seed=1), "retain": make_rows(seed=2), "alternate": make_rows(seed=3)}
    wanted = {
        "forget": ReferenceSpec(logps=True, states=True),
        "retain": ReferenceSpec(states=True, layer=1),
        "alternate": ReferenceSpec(logps=True),
    }
    tables = {
        name: {
            key: TokenTable(tensor, [counted_tokens(row) for row in rows])
            for key, tensor in compute_reference(model, rows, wanted[name], batch_tokens=20).items()
        }
        for name, rows in sets.items()
    }
    chosen = {"forget": [3, 0, 6], "retain": [2, 2, 1], "alternate": [4, 5, 3]}
    live = reference_of_batch(
        model, {name: batch_of([sets[name][i] for i in rows]) for name, rows in chosen.items()}, wanted
    )
    pairs = [
        (live.logps["forget"], tables["forget"]["logps"].rows(chosen["forget"])),
        (live.logps["alternate"], tables["alternate"]["logps"].rows(chosen["alternate"])),
        (live.teachers["forget"].states, tables["forget"]["states"].rows(chosen["forget"])),
        (live.teachers["retain"].states, tables["retain"]["states"].rows(chosen["retain"])),
        (live.layers["retain"], tables["retain"]["layer"].rows(chosen["retain"])),
    ]
    for left, right in pairs:
        torch.testing.assert_close(left, right, atol=1e-9, rtol=1e-9)
        assert not left.requires_grad


def teacher_logps(teacher):
    return teacher.logits(slice(None), teacher.states.dtype).log_softmax(-1)


def row_distributions(model, rows):
    found = []
    for row in rows:
        with torch.no_grad():
            logps = model(input_ids=torch.tensor([row.input_ids])).logits[0].log_softmax(-1)
        found += [logps[t - 1] for t in range(1, len(row.labels)) if row.labels[t] != -100]
    return torch.stack(found)


class DividedHead(torch.nn.Module):
    """A causal model that wraps another and scales its logits, without a config entry."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.config = inner, inner.config

    def get_output_embeddings(self):
        return self.inner.get_output_embeddings()

    def forward(self, **inputs):
        out = self.inner(**inputs)
        out.logits = out.logits / 3
        return out


def model_with_head(kind, tiny_llama):
    model = tiny_llama(tie_word_embeddings=kind == "tied").double()
    if kind == "unknown scale":
        return DividedHead(model).eval()
    if kind != "adapted output layer":
        return model.eval()
    adapted = attach(model, Lora(r=2, targets=("lm_head", "q_proj")), seed=0)
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(4))
    return adapted.double().eval()


@pytest.mark.parametrize("kind", ["plain", "tied", "adapted output layer", "unknown scale"])
def test_distributions_are_exact_with_a_plain_output_layer_and_from_logits_without(kind, tiny_llama):
    model, rows = model_with_head(kind, tiny_llama), make_rows()
    live = reference_of_batch(model, {"retain": batch_of(rows)}, {"retain": ReferenceSpec(states=True)})
    assert (live.teachers["retain"].head is None) == (plain_head(model) is None) == (kind not in ("plain", "tied"))
    torch.testing.assert_close(
        teacher_logps(live.teachers["retain"]), row_distributions(model, rows), atol=1e-9, rtol=1e-9
    )


def test_frozen_head_does_not_change_with_the_model(tiny_llama):
    model, rows = tiny_llama().double().eval(), make_rows()
    head, before = plain_head(model).frozen(), row_distributions(model, rows)
    states = compute_reference(model, rows, ReferenceSpec(states=True))["states"]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1)
    torch.testing.assert_close(teacher_logps(Teacher(states, head)), before, atol=1e-9, rtol=1e-9)
    assert not head.weight.requires_grad


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
