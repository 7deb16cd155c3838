"""One packed forward pass equals the plain padded computation, row by row, for every supported architecture."""

from __future__ import annotations

import pytest
import torch
import transformers

from atwu.modeling.batches import Packing, TokenBatch, lay_out, packed_attention
from atwu.modeling.forward import forward_tokens, position_limit
from atwu.modeling.single_pass import fast_path_support
from tests.modeling.small_models import in_layout, small_model

SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
ENDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
# name, config class, its arguments, packed rows expected
ARCHITECTURES = [
    ("Llama", "LlamaConfig", SMALL, True),
    ("Llama", "LlamaConfig", SMALL | {"tie_word_embeddings": True}, True),
    ("Mistral", "MistralConfig", SMALL | {"sliding_window": 4}, True),
    (
        "Qwen2",
        "Qwen2Config",
        SMALL | ENDS | {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
        True,
    ),
    ("Gemma3", "Gemma3TextConfig", SMALL | {"head_dim": 8, "sliding_window": 4}, True),
    ("Cohere", "CohereConfig", SMALL | ENDS, True),  # scales its logits
    ("Gemma2", "Gemma2Config", SMALL | {"head_dim": 8}, False),  # caps its logits, eager attention
    ("GPT2LMHead", "GPT2Config", {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4} | ENDS, True),
    ("Mamba", "MambaConfig", {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4}, False),
]


def build(name, config, arguments):
    torch.manual_seed(0)
    model_class = getattr(transformers, name + ("Model" if name == "GPT2LMHead" else "ForCausalLM"))
    return model_class(getattr(transformers, config)(**arguments)).eval()


def begun_alike(rows, tokens, counted):
    """Return the same rows with a common prefix whose last tokens are counted."""
    start = torch.randint(3, 64, (tokens,), generator=torch.Generator().manual_seed(3)).expand(len(rows["labels"]), -1)
    labels = start.clone()
    labels[:, : tokens - counted] = -100
    before = {"input_ids": start, "attention_mask": torch.ones_like(start), "labels": labels}
    return {name: torch.cat([before[name], rows[name]], dim=1) for name in before}


@pytest.mark.parametrize("alike", [0, 20])
@pytest.mark.parametrize(("name", "config", "arguments", "packs"), ARCHITECTURES)
def test_equals_the_plain_padded_computation(name, config, arguments, packs, alike, batch, plain_logps):
    model = build(name, config, arguments)
    first, second = batch(rows=3, seed=1), batch(rows=2, length=9, seed=2)
    if alike:
        first, second = begun_alike(first, alike, 3), begun_alike(second, alike, 0)
    expected = [plain_logps(model, one) for one in (first, second)]
    weights = [torch.rand(counted.shape, generator=torch.Generator().manual_seed(5)) for _, counted in expected]
    total = sum((values * w[counted]).sum() for (values, counted), w in zip(expected, weights, strict=True))
    wanted = torch.autograd.grad(total, list(model.parameters()), allow_unused=True)
    assert fast_path_support(model, torch.device("cpu")).fused_head
    assert fast_path_support(model, torch.device("cpu")).packed == packs
    for layout in ("packed", "padded") if packs else ("padded",):
        with in_layout(model, layout):
            outputs = forward_tokens(model, [first, second])
        for out, (values, counted) in zip(outputs, expected, strict=True):
            assert torch.equal(out.mask, counted)
            torch.testing.assert_close(out.logps[counted], values.float(), atol=3e-6, rtol=1e-5)
            assert not out.logps[~counted].any()
        total = sum((out.logps * w).sum() for out, w in zip(outputs, weights, strict=True))
        got = torch.autograd.grad(total, list(model.parameters()), allow_unused=True)
        for left, right in zip(got, wanted, strict=True):
            if right is not None:
                torch.testing.assert_close(left, right, atol=1e-5, rtol=1e-4)


def test_common_beginnings_are_computed_once(tiny_llama, batch):
    first, second = (TokenBatch.of(begun_alike(batch(rows=3, seed=seed), 20, 0)) for seed in (1, 2))
    tokens = int(first.attention_mask.sum() + second.attention_mask.sum())
    assert lay_out([first, second], packed=True).input_ids.shape == (1, tokens - 5 * 20)
    other = batch(rows=2, seed=3)
    for row, mask in zip(other["input_ids"], other["attention_mask"], strict=True):
        row[mask.nonzero()[0]] = 1 + int(first.input_ids[0][first.attention_mask[0]][0])
    other["input_ids"][1, other["attention_mask"][1].nonzero()[0]] += 1
    other = TokenBatch.of(other)
    assert lay_out([first, other], packed=True).input_ids.shape == (
        1,
        int(first.attention_mask.sum() + other.attention_mask.sum()) - 2 * 20,
    )
    assert lay_out([first, first], packed=True).input_ids.shape == lay_out([first], packed=True).input_ids.shape
    seen = []
    model = tiny_llama().eval()
    fast_path_support(model, torch.device("cpu"))
    model.model.layers[0].mlp.register_forward_pre_hook(lambda _, given: seen.append(given[0].shape[1]))
    forward_tokens(model, [first, second])
    assert seen == [tokens - 5 * 20]


def test_rows_share_beginnings_with_several_others():
    rows = [[1, 2, 3, 4], [9, 2], [1, 2, 3, 5, 6], [1, 2, 7], [1, 2]]
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
    arranged = lay_out([TokenBatch(ids, ids > 0, ids)], packed=True)
    assert arranged.input_ids.shape == (1, 4 + 2 + 2 + 1)
    assert [arranged.input_ids[0][row].tolist() for row in arranged.rows] == rows
    assert all(arranged.position_ids[0][row].tolist() == list(range(len(row))) for row in arranged.rows)
    new = torch.cat([row[is_new] for row, is_new in zip(arranged.rows, arranged.new, strict=True)])
    assert new.sort().values.tolist() == list(range(9))


@pytest.mark.parametrize("alike", [0, 20])
@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_hidden_states_equal_those_of_the_model(layout, alike, tiny_llama, batch):
    model, rows = tiny_llama().eval(), batch(rows=3, seed=8)
    if alike:
        rows = begun_alike(rows, alike, 2)
    with in_layout(model, layout):
        (out,) = forward_tokens(model, [rows], layer=0)
    states = model(
        input_ids=rows["input_ids"], attention_mask=rows["attention_mask"], output_hidden_states=True
    ).hidden_states
    torch.testing.assert_close(out.hidden("pred"), states[-1][:, :-1][out.mask], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(out.hidden("own"), states[-1][:, 1:][out.mask], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(out.layer_states, states[1][:, 1:][out.mask], atol=1e-5, rtol=1e-5)
    assert not out.hidden("own").requires_grad


def test_gradient_checkpointing_gives_the_same_gradients(tiny_llama, batch):
    rows = batch(rows=3, seed=10)
    gradients = []
    for checkpointed in (False, True):
        model = tiny_llama().train()
        if checkpointed:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        (out,) = forward_tokens(model, [rows])
        out.logps.sum().backward()
        gradients.append([p.grad for p in model.parameters()])
    for left, right in zip(*gradients, strict=True):
        torch.testing.assert_close(left, right, atol=1e-6, rtol=1e-5)


def test_model_without_an_output_layer_uses_its_logits(batch):
    class Bigrams(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(64, 64)

        def forward(self, input_ids, attention_mask=None):
            return transformers.modeling_outputs.CausalLMOutput(logits=self.table(input_ids))

    torch.manual_seed(0)
    model, rows = Bigrams(), batch(rows=3, seed=11)
    (out,) = forward_tokens(model, [rows])
    expected = model.table(rows["input_ids"])[:, :-1].log_softmax(-1)
    expected = expected.gather(2, rows["labels"][:, 1:].clamp(min=0)[..., None])[..., 0]
    torch.testing.assert_close(out.logps[out.mask], expected[out.mask])
    assert not fast_path_support(model, torch.device("cpu")).fused_head


def test_the_model_still_generates_after_packing(tiny_llama, batch):
    model, untouched = tiny_llama().eval(), tiny_llama().eval()
    forward_tokens(model, [batch()])
    prompt = torch.tensor([[5, 9, 13], [0, 7, 21]])
    mask = torch.tensor([[1, 1, 1], [0, 1, 1]])
    settings = {"attention_mask": mask, "max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    assert torch.equal(model.generate(prompt, **settings), untouched.generate(prompt, **settings))


def test_a_packed_model_saves_a_plain_config(tiny_llama, batch, tmp_path):
    model = tiny_llama()
    forward_tokens(model, [batch()])
    model.save_pretrained(tmp_path)
    assert "atwu" not in (tmp_path / "config.json").read_text()


def test_missing_and_mismatched_tensors_are_named(batch):
    rows = batch()
    with pytest.raises(ValueError, match=r"forget.*\blabels\b.*attention_mask, input_ids"):
        TokenBatch.of({k: rows[k] for k in ("input_ids", "attention_mask")}, name="forget")
    with pytest.raises(ValueError, match="must share one"):
        TokenBatch.of(rows | {"labels": rows["labels"][:, 1:]})


@pytest.mark.parametrize("autocast", [False, True])
def test_attention_on_a_cpu_uses_float32(autocast):
    draw = torch.Generator().manual_seed(0)
    states = [torch.randn(1, heads, 12, 8, generator=draw).bfloat16() for heads in (4, 2, 2)]
    module = torch.nn.Module()
    module.num_key_value_groups, module.is_causal = 2, True
    sizes = (3, 4, 5)
    new = [torch.ones(size, dtype=torch.bool) for size in sizes]
    packing = Packing.of(torch.arange(12).split(sizes), new, torch.device("cpu"))
    exact, _ = packed_attention(module, *(each.float() for each in states), None, packing=packing)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        half, _ = packed_attention(module, *states, None, packing=packing)
    assert half.dtype == torch.bfloat16
    assert torch.equal(half, exact.bfloat16())


def test_flex_attention_is_rejected_on_a_cpu(tiny_llama):
    model = tiny_llama()
    model.config._attn_implementation = "flex_attention"
    with pytest.raises(ValueError, match=r"FlexAttention.*CPU.*sdpa"):
        fast_path_support(model, torch.device("cpu"))


@pytest.mark.parametrize("kind", ["gpt2", "gptj", "codegen", "openai-gpt", "ctrl", "mpt", "roberta"])
def test_rows_longer_than_the_table_of_positions_are_rejected(kind):
    model = small_model(kind)
    limit = position_limit(model)
    ids = torch.randint(6, 200, (1, limit + 1))
    rows = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.clone()}
    with pytest.raises(ValueError, match=rf"{limit + 1} tokens.*{limit} positions.*max_length.*another model"):
        forward_tokens(model, [rows])
    forward_tokens(model, [{name: each[:, :limit] for name, each in rows.items()}])


def test_models_without_a_table_of_positions_have_no_limit(tiny_llama):
    assert position_limit(tiny_llama()) is None
