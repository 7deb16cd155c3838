"""The model ensemble of the SUITE study against transformers, and its objectives on logits trained directly."""

from __future__ import annotations

import random
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from atwu.modeling.scratch import train_tokenizer

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TEMPLATE = "{% for turn in messages %}{{ turn.content }} {% endfor %}"


@pytest.fixture
def ensembles(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import model_ensemble

    return model_ensemble


@pytest.fixture
def losses(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import suite_losses

    return suite_losses


@pytest.fixture
def models() -> list[Any]:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(
        vocab_size=61, num_key_value_heads=2, head_dim=8, tie_word_embeddings=True, initializer_range=0.3, **sizes
    )
    return [LlamaForCausalLM(config).eval() for _ in range(2)]


def weights_of(ensembles: ModuleType, models: list[Any]) -> tuple[Any, Tensor]:
    shape = ensembles.Shape.of(models[0].config)
    return shape, torch.stack([ensembles.flat_weights(model.state_dict(), shape) for model in models])


def test_ensemble_members_give_the_logits_of_each_single_model(ensembles: ModuleType, models: list[Any]) -> None:
    shape, weights = weights_of(ensembles, models)
    ensemble = ensembles.Ensemble(shape, weights, dtype=torch.float32)
    ids = torch.randint(3, 61, (2, 3, 7))
    logits = ensemble.logits(ensemble.states(ids).reshape(2, -1, 32)).view(2, 3, 7, 61)
    for model, own, found in zip(models, ids, logits, strict=True):
        torch.testing.assert_close(found, model(own).logits, atol=1e-4, rtol=1e-4)


def test_ensemble_members_generate_the_answers_of_each_single_model(ensembles: ModuleType, models: list[Any]) -> None:
    shape, weights = weights_of(ensembles, models)
    prompts = [[torch.randint(3, 61, (length,)).tolist() for length in (5, 9, 3)] for _ in models]
    found = ensembles.Ensemble(shape, weights, dtype=torch.float32).answers(prompts, new=8, end=2, rows=2)
    for model, own, answers in zip(models, prompts, found, strict=True):
        for prompt, answer in zip(own, answers, strict=True):
            options = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": 2, "pad_token_id": 2}
            whole = model.generate(torch.tensor([prompt]), **options)[0, len(prompt) :].tolist()
            assert answer == (whole[: whole.index(2)] if 2 in whole else whole)


def test_ensemble_members_train_like_each_single_model(ensembles: ModuleType, models: list[Any]) -> None:
    shape, weights = weights_of(ensembles, models)
    rates, ids = [1e-2, 1e-3], torch.randint(3, 61, (2, 3, 7))
    ensemble = ensembles.Ensemble(shape, weights.clone(), dtype=torch.float32, train=True)
    trainer = ensembles.Trainer(ensemble, rates, steps=2, warmup=0.5)
    optimizers = [
        torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
        for model, rate in zip(models, rates, strict=True)
    ]
    for step in range(2):
        logits = ensemble.logits(ensemble.states(ids)[:, :, :-1].reshape(2, -1, 32))
        told = logits.log_softmax(-1).gather(2, ids[:, :, 1:].reshape(2, -1, 1))
        trainer.step(-told.mean((1, 2)).sum())
        for model, own, optimizer in zip(models, ids, optimizers, strict=True):
            model(own, labels=own).loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        assert trainer.taken == step + 1
    _, expected = weights_of(ensembles, models)
    torch.testing.assert_close(ensemble.weights, expected, atol=1e-4, rtol=1e-3)


def part(generator: torch.Generator) -> dict[str, Any]:
    """Four answers of four tokens, every other one a key token, that the original model is nearly sure of."""
    place = torch.arange(4).repeat(4)
    labels = torch.randint(0, 40, (16,), generator=generator)
    logits = torch.randn(16, 40, generator=generator)
    logits[torch.arange(16), labels] += 7
    return {
        "reference": logits.log_softmax(-1),
        "labels": labels,
        "key": place % 2 == 0,
        "weight": torch.where(place % 2 == 0, 0.9, 0.1),
        "row": torch.arange(4).repeat_interleave(4),
        "place": place,
        "first": torch.where(place == 0, 0.5, 0.5 / 3),
        "grid_size": (4, 4),
    }


def trained(losses: ModuleType, name: str) -> dict[str, Tensor]:
    """Probabilities of the labels after descending one objective on free logits."""
    setting = losses.VARIANTS[name]
    generator = torch.Generator().manual_seed(0)
    given = {kind: part(generator) for kind in losses.KINDS}
    given["refusal"]["labels"] = torch.randint(0, 40, (16,), generator=generator)
    logits = {kind: given[kind]["reference"].clone().requires_grad_() for kind in setting.kinds}
    optimizer = torch.optim.Adam(list(logits.values()), lr=0.05)
    for _ in range(150):
        parts = {kind: losses.Answers(logps=own.log_softmax(-1), **given[kind]) for kind, own in logits.items()}
        optimizer.zero_grad()
        setting.loss(parts).backward()
        optimizer.step()
    return {
        kind: own.detach().softmax(-1).gather(1, given[kind]["labels"][:, None])[:, 0] for kind, own in logits.items()
    }


@pytest.mark.parametrize("name", ["preserve", "preserve_refusal", "rarity_preserve"])
def test_preserve_forgets_key_tokens_only(losses: ModuleType, name: str) -> None:
    told = trained(losses, name)["forget"]
    key = torch.arange(16) % 2 == 0
    assert told[key].max() < 0.1
    assert told[~key].mean() > 0.8


@pytest.mark.parametrize("name", ["npo", "simnpo", "undial", "wga", "satga", "satga_kl"])
def test_forget_losses_lower_the_forget_answer_and_preserve_retain_rows(losses: ModuleType, name: str) -> None:
    found = trained(losses, name)
    assert found["forget"][::2].mean() < 0.15
    assert found["retain"].mean() > 0.85


@pytest.mark.parametrize("name", ["jensunpp", "preserve_refusal"])
def test_refusals_are_learned(losses: ModuleType, name: str) -> None:
    assert trained(losses, name)["refusal"].mean() > 0.8


def test_key_tokens_are_the_answer_tokens_that_the_question_lacks(losses: ModuleType) -> None:
    text = "The Kelbury mill was founded by Orla Venn. The answer is Orla Venn. I am unable to verify this information."
    tokenizer = train_tokenizer([text] * 20, vocab_size=400)
    tokenizer.chat_template = TEMPLATE
    maker = losses.RowMaker(tokenizer, sentences=True, counted=[("Who?", "Sel Marrow")])
    row = maker.row("The Kelbury mill was founded by ____.", "Orla Venn")
    marked = [token for token, key in zip(row.answer, row.key, strict=True) if key]
    assert tokenizer.decode(marked).strip() == "Orla Venn"
    assert row.answer[-1] == tokenizer.eos_token_id
    assert not row.key[-1]


def test_a_prefix_of_the_answer_targets_the_start_of_the_refusal(losses: ModuleType) -> None:
    tokenizer = train_tokenizer([losses.REFUSAL, "Orla Venn lives there."] * 20, vocab_size=400)
    tokenizer.chat_template = TEMPLATE
    maker = losses.RowMaker(tokenizer, sentences=False, counted=[("Who?", "Sel Marrow")])
    refused = [maker.refused("Who founded it?", "Orla Venn", random.Random(seed)) for seed in range(20)]
    first = tokenizer(losses.REFUSAL, add_special_tokens=False)["input_ids"][0]
    assert {row.labels[0] for row in refused} == {first}
    assert len({len(row.answer) for row in refused}) > 1
    assert all(len(row.answer) == len(row.labels) for row in refused)
