"""Memory estimates: exact where tensors can be counted, and never lower for settings that need more."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig

from atwu.data.alternates import Alternates
from atwu.data.encode import EncodedRow
from atwu.data.schema import IGNORE_INDEX
from atwu.modeling.batches import Packing, TokenBatch, lay_out
from atwu.training.config import UnlearnConfig
from atwu.training.load_to_train import ModelSource, model_without_weights
from atwu.training.memory_estimate import (
    Footprint,
    Memory,
    _inputs,
    footprint,
    longest_batch,
    measure_footprint,
    memory,
)
from atwu.training.row_sets import RowSet
from atwu.training.training_rows import UnlearningRows

SHAPE = LlamaConfig(
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=500,
    tie_word_embeddings=True,
)
IDS = torch.arange(4)[:, None].expand(4, 20) + 1  # rows that begin differently
BATCH = lay_out([TokenBatch(IDS, torch.arange(20) < torch.tensor([[20], [15], [10], [5]]), IDS)], packed=True)
PACKING = Packing.of(BATCH.rows, BATCH.new, torch.device("cpu"))
TOKENS = 50


@functools.cache
def measured(lora_r: int) -> Footprint:
    config = UnlearnConfig(use_cpu=True, lora_r=lora_r)
    return measure_footprint(source(), config, BATCH, device="cpu")


def seen(**how: object) -> Memory:
    """Memory of a run with these settings on a CPU."""
    config = UnlearnConfig(**{"use_cpu": True, **how})
    return memory(measured(config.lora_r), config, device="cpu")


def source() -> ModelSource:
    class Shaped(ModelSource):
        def architecture(self) -> LlamaConfig:
            return SHAPE

    return Shaped(scratch="tofu2m")


def test_the_estimate_equals_the_tensors_saved_by_autograd() -> None:
    """Against the saved tensors of a real model with the same weights, counted once per storage."""
    from transformers import LlamaForCausalLM

    real = LlamaForCausalLM(SHAPE).train()
    own = {parameter.untyped_storage().data_ptr() for parameter in real.parameters()}
    saved: dict[int, int] = {}
    alive: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            saved[storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        real.get_decoder()(**_inputs(real, BATCH, PACKING, "cpu"), use_cache=False)
    told = footprint(model_without_weights(SHAPE, trust_remote_code=False), BATCH)
    assert told.weights == told.trained == sum(parameter.nbytes for parameter in real.parameters())
    assert told.kept == pytest.approx(sum(saved.values()), rel=0.05)  # further tensors: positions, the output itself
    assert told.tied
    assert told.inputs == 3 * TOKENS * 64 * 4
    assert told.cache_per_token == 2 * 3 * 2 * 16 * 4


def test_float32_attention_is_counted_if_used() -> None:
    def told(device: str) -> int:
        model = model_without_weights(SHAPE, trust_remote_code=False)
        return footprint(model, BATCH, autocast=torch.bfloat16, device=device).kept

    attended = 3 * (2 * 4 + 2 * 2) * 16 * TOKENS  # numbers in a query, an output, a key and a value of all layers
    assert told("cpu") - told("cuda") >= 2 * attended


def test_a_mixture_of_experts_is_estimated_by_rule() -> None:
    from transformers import MixtralConfig

    shape = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2}
    model = model_without_weights(MixtralConfig(**shape, num_hidden_layers=3, vocab_size=500), trust_remote_code=False)
    told = footprint(model, BATCH)
    assert told.kept == told.of_layers == 3 * 17 * TOKENS * 64 * 4
    assert told.inputs == 3 * TOKENS * 64 * 4


def test_items_follow_the_settings() -> None:
    plain, again, adapters = seen(), seen(activation_checkpointing=True), seen(lora_r=4)
    weights = plain.weights
    assert plain.optimizer == 2 * weights
    assert again.turning < plain.turning
    assert 0 < adapters.optimizer < 0.5 * weights
    assert seen(optim="sgd").optimizer == 0
    assert seen(optim="adamw_8bit").optimizer == pytest.approx(weights / 4 * 2.05)
    assert seen(optim="paged_adamw_8bit").optimizer == 0
    assert seen(method="npo", reference="model").copies == weights
    assert seen(retain_loss="kl").copies == 500 * 64 * 4
    assert seen(gradient_accumulation_steps=2).turning > seen(gradient_accumulation_steps=1).turning


def test_a_large_output_layer_is_counted_as_often_as_it_is_held() -> None:
    """Measured on Gemma 3 270M, whose 262,144 x 640 output layer is two thirds of its weights."""
    head = 500 * 64 * 4

    def turning(**how: object) -> float:
        settings = {"method": "grad_diff", "gradient_accumulation_steps": 1, **how}
        return memory(small, UnlearnConfig(use_cpu=True, **settings), device="cpu").turning

    model = model_without_weights(SHAPE, trust_remote_code=False)
    small = dataclasses.replace(footprint(model, BATCH), kept=0)
    assert turning(retain_loss="kl") - turning() == head  # the product that is added to its gradient
    assert turning(retain_loss="kl", bf16=True) - turning() == 1.5 * head  # half of it, and two converted layers
    wide = dataclasses.replace(small, largest_layer=10**9)  # so that the end of the backward pass needs most
    ended = [
        memory(wide, UnlearnConfig(use_cpu=True, method="grad_diff", gradient_accumulation_steps=steps), device="cpu")
        for steps in (1, 2)
    ]
    assert [each.turning - small.trained - 10**9 for each in ended] == [head, 2 * head]


def test_the_longest_batch_has_common_prefixes_once() -> None:
    start = tuple(range(20))

    def row(*rest: int) -> EncodedRow:
        ids = (*start, *rest)
        return EncodedRow(ids, (IGNORE_INDEX, *ids[1:]), None, (None,) * len(ids), True)

    forget, retain = (row(50, 51), row(60)), (row(50), row(70, 71, 72))
    rows = UnlearningRows(RowSet(forget, ()), RowSet(retain, ()), None)
    one = UnlearnConfig(use_cpu=True, method="grad_diff", per_device_train_batch_size=1)
    found = longest_batch(rows, one)
    assert [len(row) for row in found.rows] == [22, 23]
    assert found.input_ids.shape == (1, 25)
    refused = dataclasses.replace(rows, alternates=Alternates((row(1, 2, 3, 4, 5), row(1)), ((0, 1),)))
    assert [len(row) for row in longest_batch(refused, one).rows] == [22, 23, 25]


def test_memory_is_estimated_without_weights(tmp_path: Path) -> None:
    SHAPE.save_pretrained(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"\.safetensors"):
        ModelSource(model=str(tmp_path))
    there = ModelSource(model=str(tmp_path), weights=False)
    config = UnlearnConfig(use_cpu=True)
    assert memory(measure_footprint(there, config, BATCH, device="cpu"), config, device="cpu") == seen()
