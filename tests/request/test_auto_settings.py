"""Settings that a request chooses by rows, model, device and memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from atwu.cli.train import unlearn_options
from atwu.data.schema import Example
from atwu.methods.recipe import recipe
from atwu.request import auto_settings
from atwu.request.auto_settings import (
    LENGTH_OPTIONS,
    MEMORY_STRATEGIES,
    Choice,
    StrategyEstimate,
    choose,
    first_that_fits,
    method_choices,
    possible_strategies,
)
from atwu.request.preparation import settings_shown
from atwu.training.config import UnlearnConfig
from atwu.training.memory_estimate import Memory


def fitted(words: str, *, gigabytes: float = 1.0, free: float = 16.0) -> StrategyEstimate:
    """The way of these words, which needs some of the free memory."""
    taken = Memory(gigabytes * 1e9, 0, 0, 0, 0, 0, 0, 0)
    return StrategyEstimate(next(way for way in MEMORY_STRATEGIES if way.description == words), taken, free=free * 1e9)


def chosen(
    given: dict[str, Any],
    method: str = "atwu",
    *,
    rows: int = 12,
    hidden: int = 8,
    own: bool = False,
    strategy: str = "LoRA, activation checkpointing",
    auto_memory: bool = False,
) -> dict[str, Any]:
    """Name and value of every setting that is chosen; `own`: retain rows are the model's answers."""
    choices = choose(
        given,
        recipe=recipe(method),
        rows=rows,
        hidden=hidden,
        self_generated_answers=own,
        device=torch.device("cpu"),
        fitted=fitted(strategy),
        auto_memory=auto_memory,
    )
    assert all(each.reason for each in choices)
    return {each.name: each.value for each in choices}


def test_the_help_says_chosen_automatically_of_every_option_that_is_chosen_and_of_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(auto_settings, "multiplies_bfloat16", lambda device: True)
    of_method = {choice.name for choice in method_choices({}, [Example.from_qa("Who?", "Orla.")])}
    assert {"method", "weighting", "forms", "preserve"} < of_method
    of_memory = {name for strategy in MEMORY_STRATEGIES for name in strategy.options}
    names = of_method | of_memory | {*chosen({}, own=True), *LENGTH_OPTIONS}
    options = unlearn_options()
    assert {option.name for option in options if "chosen automatically" in option.help} == names
    # A default in brackets would contradict it.
    assert {option.name for option in options if option.name in names and option.default is not None} == set()


@pytest.mark.parametrize("bfloat16", [False, True])
def test_settings_are_chosen_by_rows_model_and_device_unless_given(
    bfloat16: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto_settings, "multiplies_bfloat16", lambda device: bfloat16)
    assert ("bf16" in chosen({})) is bfloat16
    assert not any("bf16" in chosen(given) for given in ({"fp16": True}, {"bf16": False}))
    small = chosen({}, hidden=576, own=True, strategy="all weights")
    assert small.items() >= {"lora_r": 0, "per_device_train_batch_size": 8, "scorer_prior": "labels"}.items()
    assert small["learning_rate"] == pytest.approx(5e-5)
    large = chosen({}, "wga", rows=4000, hidden=4096)
    assert large.items() >= {"lora_r": 16, "activation_checkpointing": True}.items()
    assert large["learning_rate"] == pytest.approx(5e-4 * 576 / 4096)
    assert "scorer_prior" not in large
    assert small["retain_loss"] == large["retain_loss"] == "kl"  # rows of one's own are compared with the model, too

    batch = {"per_device_train_batch_size", "gradient_accumulation_steps"}
    of_length = {"learning_rate", *batch, "scorer_prior", "retain_loss"} | ({"bf16"} if bfloat16 else set())
    assert set(chosen({"max_steps": 7, "lora_r": 4}, strategy="LoRA")) == of_length
    expert = {"max_steps": 7, "lora_r": 4, "learning_rate": 1e-3}
    assert chosen(expert) == {}
    assert chosen(expert, auto_memory=True) == {"activation_checkpointing": True}
    assert chosen(expert, own=True) == {"retain_loss": "kl"}
    assert chosen({**expert, "retain_loss": "nll"}, own=True) == {}


def test_memory_strategies_respect_given_options() -> None:
    def words(device: str = "cpu", **given: object) -> list[str]:
        return [way.description for way in possible_strategies(given, device=device)]

    assert words() == ["all weights", "all weights, activation checkpointing", "LoRA", "LoRA, activation checkpointing"]
    assert words("cuda") == [way.description for way in MEMORY_STRATEGIES]
    assert words("cuda", lora_r=8) == ["LoRA", "LoRA, activation checkpointing", "LoRA on 4-bit weights"]
    assert words("cuda", lora_r=8, quantize="4bit", activation_checkpointing=True) == ["LoRA on 4-bit weights"]
    assert words("cuda", optim="sgd", lora_r=0) == ["all weights", "all weights, activation checkpointing"]
    assert words(lora_r=8, quantize="8bit") == ["as given"]
    assert words("cuda", lora_r=8, save_adapter=True) == words("cuda", lora_r=8)
    assert words("cuda", lora_r=8, save_adapter=False) == ["LoRA", "LoRA, activation checkpointing"]
    assert "LoRA on 4-bit weights" not in [
        way.description for way in possible_strategies({}, device="cuda", adapter=True)
    ]
    for way in MEMORY_STRATEGIES:  # adapters on quantized weights are saved unmerged
        config = UnlearnConfig(**way.options, output_dir="out", use_cpu=True)
        assert config.save_adapter == (config.quantize is not None)


def test_adapters_are_no_strategy_where_whole_gradients_are_collapsed() -> None:
    ways = possible_strategies({"collapse_components": 64}, device="cpu")
    assert ways
    assert not any("lora_r" in way.options for way in ways)


def test_runs_that_cannot_fit_are_rejected_and_close_ones_are_tried() -> None:
    def first(free: float) -> str:
        tried = [fitted("all weights", gigabytes=4.0, free=free), fitted("LoRA", gigabytes=2.0, free=free)]
        return first_that_fits(tried, device="cpu").strategy.description

    assert [first(free) for free in (9.0, 4.2, 1.8)] == ["all weights", "LoRA", "LoRA"]
    with pytest.raises(ValueError, match=r"2\.0 GB.*LoRA.* 1\.0 GB.*cpu.*--batch-size"):
        first(1.0)


def test_settings_are_shown_in_a_few_lines() -> None:
    choices = [Choice(f"setting_{number}", 1 / number, "a reason") for number in range(1, 21)]
    title, *lines = settings_shown(choices)
    assert "20 settings" in title
    assert "request.json" in title
    assert " ".join(line.strip() for line in lines).split()[2] == "setting_3=0.33"
    assert 2 < len(lines) < 8
