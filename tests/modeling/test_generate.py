"""Batched decoding versus single rows and a plain loop; sampling versus its exact distribution."""

from __future__ import annotations

import logging
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from scipy.stats import chisquare
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GenerationConfig,
    GPT2Config,
    LlamaConfig,
    LlamaForCausalLM,
    OPTConfig,
)

from atwu.modeling.generate import end_ids, generate
from atwu.modeling.scratch import train_tokenizer
from atwu.modeling.single_pass import fast_path_support

PROMPTS = [[3, 4], [5, 6, 7, 8, 9, 10], [11], [3, 4, 5], [12, 13, 14, 15], [16, 1]]


@pytest.fixture
def model() -> LlamaForCausalLM:
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=20,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=128,
        bos_token_id=1,
        eos_token_id=None,
    )
    config.initializer_range = 0.6
    return LlamaForCausalLM(config)


def _tokenizer(eos: int | None) -> Any:
    return SimpleNamespace(eos_token_id=eos, pad_token_id=None, pad_token=None, chat_template=None)


@torch.no_grad()
def _plain(model: LlamaForCausalLM, prompt: list[int], count: int, ends: set[int]) -> tuple[int, ...]:
    ids = list(prompt)
    for _ in range(count):
        token = int(model(input_ids=torch.tensor([ids])).logits[0, -1].argmax())
        if token in ends:
            break
        ids.append(token)
    return tuple(ids[len(prompt) :])


def test_batches_equal_single_rows_and_a_plain_loop(model: LlamaForCausalLM) -> None:
    tokenizer = _tokenizer(None)
    model.eval()
    expected = [_plain(model, prompt, 12, set()) for prompt in PROMPTS]
    together = generate(model, tokenizer, PROMPTS, max_new_tokens=12, progress=False)
    alone = [generate(model, tokenizer, [prompt], max_new_tokens=12, progress=False)[0] for prompt in PROMPTS]
    split = generate(model, tokenizer, PROMPTS, max_new_tokens=12, batch_tokens=40, progress=False)
    assert together == alone == split == expected
    assert len(set(together)) > 3, "rows must differ for the order to be tested"


@pytest.mark.parametrize("kind", [GPT2Config, OPTConfig])
def test_rows_up_to_the_last_learned_position_equal_a_plain_loop(kind: Any) -> None:
    torch.manual_seed(1)
    sizes = {"n_positions": 24} if kind is GPT2Config else {"max_position_embeddings": 24, "ffn_dim": 32}
    config = kind(vocab_size=20, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, pad_token_id=0, **sizes)
    config.bos_token_id = config.eos_token_id = None
    model = AutoModelForCausalLM.from_config(config).eval()
    for weights in model.parameters():
        torch.nn.init.normal_(weights, std=0.6)
    caps = [24 - len(prompt) for prompt in PROMPTS]
    expected = [_plain(model, prompt, cap, set()) for prompt, cap in zip(PROMPTS, caps, strict=True)]
    assert generate(model, _tokenizer(None), PROMPTS, max_new_tokens=caps, progress=False) == expected


def test_the_terminal_of_the_chat_template_ends_an_answer(model: LlamaForCausalLM) -> None:
    tokenizer = train_tokenizer(["Hello there, where was she born?"], vocab_size=300)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    assert end_ids(model, tokenizer) == {tokenizer.eos_token_id}
    tokenizer.chat_template = (
        "{% for turn in messages %}<|im_start|>{{ turn.role }}\n{{ turn.content }}<|im_end|>\n{% endfor %}"
    )
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert end_ids(model, tokenizer) == {tokenizer.eos_token_id, end}


def test_stops_at_the_end_token_and_leaves_it_out(model: LlamaForCausalLM) -> None:
    model.eval()
    free = [_plain(model, prompt, 12, set()) for prompt in PROMPTS]
    end = free[1][4]
    expected = [_plain(model, prompt, 12, {end}) for prompt in PROMPTS]
    assert expected != free
    assert generate(model, _tokenizer(end), PROMPTS, max_new_tokens=12, progress=False) == expected
    # end token in the model's config, and another in the tokenizer
    other = next(token for token in free[0] if token != end)
    both = [_plain(model, prompt, 12, {end, other}) for prompt in PROMPTS]
    model.generation_config.eos_token_id = [end]
    assert generate(model, _tokenizer(other), PROMPTS, max_new_tokens=12, progress=False) == both


SHARED = [2, 7, 11, 5, 19, 8, 3, 14, 6]
TINY = {"vocab_size": 20, "bos_token_id": 1, "eos_token_id": None, "pad_token_id": None}
WIDE = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 8}
ARCHITECTURES = {
    "llama": {**WIDE},
    "mistral": {**WIDE, "num_key_value_heads": 1, "sliding_window": 6},
    "ministral": {**WIDE, "num_key_value_heads": 1, "sliding_window": 64},
    "gpt2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 128},
    "mamba": {"hidden_size": 16, "num_hidden_layers": 2, "state_size": 4},
}


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_common_prefix_and_finished_rows_change_nothing(kind: str) -> None:
    torch.manual_seed(3)
    config = AutoConfig.for_model(kind, **TINY, **ARCHITECTURES[kind])
    config.initializer_range = 0.6
    model = AutoModelForCausalLM.from_config(config).eval()
    prompts = [[*SHARED, *prompt] for prompt in PROMPTS]
    free = [_plain(model, prompt, 12, set()) for prompt in prompts]
    ends = {free[0][3], free[2][9]}
    model.generation_config.eos_token_id = sorted(ends)
    expected = [_plain(model, prompt, 12, ends) for prompt in prompts]
    assert len({len(tokens) for tokens in expected}) > 1, "rows must end at different times"
    assert generate(model, _tokenizer(None), prompts, max_new_tokens=12, progress=False) == expected
    assert generate(model, _tokenizer(None), PROMPTS, max_new_tokens=12, progress=False) == [
        _plain(model, prompt, 12, ends) for prompt in PROMPTS
    ]


def _rows_of_passes(model: LlamaForCausalLM) -> list[tuple[int, ...]]:
    """Return a list to which every further forward pass adds the shape of its token ids."""
    fast_path_support(model, torch.device("cpu"))  # tries some passes
    read: list[tuple[int, ...]] = []
    model.model.register_forward_pre_hook(
        lambda module, args, kwargs: read.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    return read


def test_common_beginnings_are_processed_once_and_finished_rows_are_dropped(model: LlamaForCausalLM) -> None:
    model.eval()
    prompts = [[*SHARED, *prompt] for prompt in PROMPTS]
    free = [_plain(model, prompt, 24, set()) for prompt in prompts]
    end = free[0][3]
    read = _rows_of_passes(model)
    generate(model, _tokenizer(end), prompts, max_new_tokens=24, progress=False)
    beginnings = {tuple(prompt[:length]) for prompt in prompts for length in range(1, len(prompt))}
    assert read[0] == (1, len(beginnings))
    assert {tokens for _, tokens in read[1:]} == {1}
    rows = [rows for rows, _ in read[1:]]
    assert rows == sorted(rows, reverse=True)
    lengths = sorted(len(tokens) for tokens in (_plain(model, prompt, 24, {end}) for prompt in prompts))
    assert rows[-1] <= len(PROMPTS) / 2 < rows[0], lengths


def test_the_last_rows_of_several_batches_are_continued_together(model: LlamaForCausalLM) -> None:
    model.eval()
    prompts = [[*SHARED[:start], *prompt] for start in (1, 4, 9) for prompt in PROMPTS]
    free = [_plain(model, prompt, 24, set()) for prompt in prompts]
    ends = {free[0][3], free[5][5]}
    model.generation_config.eos_token_id = sorted(ends)
    expected = [_plain(model, prompt, 24, ends) for prompt in prompts]
    caps = [24 - place for place in range(len(prompts))]
    read = _rows_of_passes(model)
    found = generate(model, _tokenizer(None), prompts, max_new_tokens=caps, batch_tokens=160, progress=False)
    assert found == [tokens[:cap] for tokens, cap in zip(expected, caps, strict=True)]
    first = [index for index, (_, tokens) in enumerate(read) if tokens > 1]
    assert len(first) > 3  # batches
    assert max(rows for rows, _ in read) > max(read[index + 1][0] for index in first)
    drawn: dict[str, Any] = {
        "max_new_tokens": 24,
        "temperature": 1.0,
        "noise_seeds": range(len(prompts)),
        "progress": False,
    }
    together = generate(model, _tokenizer(None), prompts, batch_tokens=160, **drawn)
    assert together == generate(model, _tokenizer(None), prompts, **drawn)
    assert together != expected


def test_batches_stay_within_the_token_budget(model: LlamaForCausalLM, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes: list[tuple[int, int]] = []
    plain = model.generate

    def spy(**given: Any) -> Any:
        shapes.append(tuple(given["input_ids"].shape))
        return plain(**given)

    monkeypatch.setattr(model, "generate", spy)
    generate(model, _tokenizer(None), PROMPTS, max_new_tokens=4, batch_tokens=16, progress=False)
    assert shapes == [(1, 6), (2, 4), (2, 2), (1, 1)]  # longest first, rows x (width + 4) <= 16


def test_the_checkpoints_sampling_settings_have_no_effect(
    model: LlamaForCausalLM, caplog: pytest.LogCaptureFixture
) -> None:
    model.eval()
    expected = [_plain(model, prompt, 12, set()) for prompt in PROMPTS]
    shipped = GenerationConfig(
        do_sample=True,
        temperature=5.0,
        top_p=0.3,
        top_k=3,
        repetition_penalty=9.0,
        no_repeat_ngram_size=1,
        min_length=9,
    )
    model.generation_config = shipped
    library = logging.getLogger("transformers")
    library.addHandler(caplog.handler)
    try:
        with warnings.catch_warnings(), caplog.at_level(logging.WARNING):
            warnings.simplefilter("error")
            assert generate(model, _tokenizer(None), PROMPTS, max_new_tokens=12, progress=False) == expected
    finally:
        library.removeHandler(caplog.handler)
    assert not caplog.records
    assert model.generation_config is shipped


def test_training_mode_is_restored_after_an_error(model: LlamaForCausalLM, monkeypatch: pytest.MonkeyPatch) -> None:
    model.train()
    model.model.layers[0].eval()
    before = [module.training for module in model.modules()]
    generate(model, _tokenizer(None), PROMPTS[:1], max_new_tokens=1, progress=False)
    assert [module.training for module in model.modules()] == before

    def fail(**given: Any) -> Any:
        assert not model.training
        raise RuntimeError("out of memory")

    shipped = model.generation_config
    monkeypatch.setattr(model, "generate", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        generate(model, _tokenizer(None), PROMPTS[:1], max_new_tokens=1, progress=False)
    assert [module.training for module in model.modules()] == before
    assert model.generation_config is shipped


def test_a_drawn_token_has_the_softmax_distribution(model: LlamaForCausalLM) -> None:
    model.eval()
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[3, 4, 5]])).logits[0, -1].double()

    def drawn(temperature: float) -> list[int]:
        rows = generate(
            model,
            _tokenizer(None),
            [[3, 4, 5]] * 4000,
            max_new_tokens=1,
            batch_tokens=16384,
            temperature=temperature,
            noise_seeds=range(4000),
            progress=False,
        )
        return torch.bincount(torch.tensor(rows).flatten(), minlength=20).tolist()

    def p_value(found: list[int], assumed: float) -> float:
        expected = 4000 * (logits / assumed).softmax(-1).numpy()
        return float(chisquare(found, expected * 4000 / expected.sum()).pvalue)

    found = drawn(1.0)
    assert p_value(found, 1.0) > 0.01
    assert p_value(found, 1.2) < 1e-6, "the check must be able to fail"
    assert p_value(drawn(2.5), 2.5) > 0.01


def test_drawn_rows_do_not_depend_on_the_batch(model: LlamaForCausalLM) -> None:
    def draw(rows: list[int], batch_tokens: int = 4096, seeds: int = 0, end: int | None = 7) -> list[tuple[int, ...]]:
        return generate(
            model,
            _tokenizer(end),
            [PROMPTS[row] for row in rows],
            max_new_tokens=12,
            temperature=1.0,
            noise_seeds=[2**64 - 1 - seeds - row for row in rows],
            batch_tokens=batch_tokens,
            progress=False,
        )

    everything = list(range(len(PROMPTS)))
    together = draw(everything)
    assert together == draw(everything)
    assert together == draw(everything, batch_tokens=40)
    assert together == [draw([row])[0] for row in everything]
    assert together[::-1] == draw(everything[::-1])
    assert together != draw(everything, seeds=100)
    free = draw(everything, end=None)
    assert together != free
    assert together == [row[: row.index(7)] if 7 in row else row for row in free]


@torch.no_grad()
def test_groups_of_prompts_are_continued_from_their_sum(model: LlamaForCausalLM) -> None:
    factors, groups, ends = (1.0, -2.0, 2.0), [PROMPTS[:3], PROMPTS[3:], [PROMPTS[1]] * 3], {12}
    model.eval()
    expected = []
    for group in groups:
        new: list[int] = []
        while len(new) < 12 and not ends & set(new):
            logps = [model(input_ids=torch.tensor([prompt + new])).logits[0, -1].log_softmax(-1) for prompt in group]
            new.append(int((torch.tensor(factors) @ torch.stack(logps)).argmax()))
        expected.append(tuple(new[:-1] if ends & set(new) else new))

    def drawn(**options: Any) -> list[tuple[int, ...]]:
        prompts = [prompt for group in groups for prompt in group]
        given = {"max_new_tokens": 12, "factors": factors, "progress": False} | options
        return generate(model, _tokenizer(12), prompts, **given)

    for options in ({}, {"batch_tokens": 60}):
        assert drawn(**options) == [new for new in expected for _ in range(3)]
    assert len(set(map(len, expected))) > 1, "a group must end before another"
    sampled = {"temperature": 1.0, "noise_seeds": [seed for seed in (4, 5, 6) for _ in range(3)]}
    together = drawn(**sampled)
    assert together == drawn(batch_tokens=60, **sampled) != drawn()
    alone = generate(
        model, _tokenizer(12), [PROMPTS[1]], max_new_tokens=12, progress=False, temperature=1.0, noise_seeds=[6]
    )
    assert together[6:] == alone * 3  # the factors of equal prompts add up to 1


def test_each_batch_is_reported_with_its_tokens(model: LlamaForCausalLM) -> None:
    model.eval()
    end = _plain(model, PROMPTS[1], 12, set())[4]
    batches: list[list[tuple[int, tuple[int, ...], int]]] = []
    caps = [3, 12, 0, 12, 5, 12]
    outputs = generate(
        model,
        _tokenizer(end),
        PROMPTS,
        max_new_tokens=caps,
        batch_tokens=40,
        progress=False,
        on_batch=lambda rows: batches.append(list(rows)),
    )
    assert len(batches) > 1
    rows = {index: (ids, spent) for batch in batches for index, ids, spent in batch}
    assert sorted(rows) == [0, 1, 3, 4, 5], "each once, and none for a cap of 0"
    for index, (ids, spent) in rows.items():
        assert ids == outputs[index]
        free = _plain(model, PROMPTS[index], caps[index], set())
        assert spent == (free.index(end) + 1 if end in free else caps[index])
    assert {spent - len(ids) for ids, spent in rows.values()} == {0, 1}


def test_progress_counts_rows(model: LlamaForCausalLM, capsys: pytest.CaptureFixture[str]) -> None:
    generate(model, _tokenizer(None), PROMPTS, max_new_tokens=1)
    assert capsys.readouterr().err == "generate: 0 of 6 rows\n"
    generate(model, _tokenizer(None), PROMPTS, max_new_tokens=1, progress=False)
    assert capsys.readouterr().err == ""


def test_bad_input_is_rejected(model: LlamaForCausalLM) -> None:
    with pytest.raises(ValueError, match=r"prompt 1 .*tokens"):
        generate(model, _tokenizer(None), [[3], []], max_new_tokens=3)
    with pytest.raises(ValueError, match="noise_seeds"):
        generate(model, _tokenizer(None), [[3]], max_new_tokens=1, temperature=0.5)
