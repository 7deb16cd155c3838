"""Extraction strength, exact memorization, probability: worked examples, and agreement with greedy decoding."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from atwu.evaluation.metrics.memorization import answer_probability, exact_memorization, extraction_strength

LABELS = [5, 6, 7, 8]


@pytest.mark.parametrize(
    ("predictions", "exact", "floored", "memorized"),
    [
        ([5, 6, 7, 8], 1.0, 1.0, 1.0),
        ([9, 6, 7, 8], 0.75, 0.75, 0.75),
        ([5, 9, 7, 8], 0.5, 0.5, 0.75),
        ([5, 6, 7, 9], 0.0, 0.25, 0.75),
        ([9, 9, 9, 9], 0.0, 0.25, 0.0),
        ([5, 6, 9, 8], 0.25, 0.25, 0.75),
    ],
)
def test_worked_examples(predictions: list[int], exact: float, floored: float, memorized: float) -> None:
    assert extraction_strength(predictions, LABELS, floor=False) == exact
    assert extraction_strength(predictions, LABELS, floor=True) == floored
    assert exact_memorization(predictions, LABELS) == memorized


def test_one_token_answer() -> None:
    assert extraction_strength([3], [3], floor=False) == extraction_strength([3], [3], floor=True) == 1.0
    assert extraction_strength([4], [3], floor=False) == 0.0
    assert extraction_strength([4], [3], floor=True) == 1.0  # the floor is 1 / 1


def test_an_answer_without_tokens_is_undefined() -> None:
    assert extraction_strength([], [], floor=False) is extraction_strength([], [], floor=True) is None
    assert exact_memorization([], []) is None


def _greedy(model: LlamaForCausalLM, prefix: list[int], count: int) -> list[int]:
    """Plain greedy continuation, one full forward pass per token."""
    ids = list(prefix)
    for _ in range(count):
        ids.append(int(model(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[len(prefix) :]


@torch.no_grad()
def test_one_teacher_forced_pass_equals_greedy_decoding() -> None:
    draw = torch.Generator().manual_seed(0)
    seen: list[float] = []
    for seed in range(3):
        torch.manual_seed(seed)
        config = LlamaConfig(
            vocab_size=8, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2
        )
        config.initializer_range = 0.5  # wide enough that predictions depend on the context
        model = LlamaForCausalLM(config).eval()
        for _ in range(8):
            question = torch.randint(8, (int(torch.randint(1, 5, (1,), generator=draw)),), generator=draw).tolist()
            total = int(torch.randint(1, 8, (1,), generator=draw))
            answer = torch.randint(8, (total,), generator=draw).tolist()
            known = int(torch.randint(0, total + 1, (1,), generator=draw))
            # From `known` on, the answer is the output of the model, so that every strength occurs.
            answer[known:] = _greedy(model, question + answer[:known], total - known)

            logits = model(input_ids=torch.tensor([question + answer])).logits[0]
            predictions = logits[len(question) - 1 : -1].argmax(-1)
            shortest = next(
                k for k in range(total + 1) if _greedy(model, question + answer[:k], total - k) == answer[k:]
            )
            strength = extraction_strength(predictions, answer, floor=False)
            assert strength == (total - shortest) / total
            assert extraction_strength(predictions, answer, floor=True) == max(strength, 1 / total)
            seen.append(strength)
    assert len(set(seen)) >= 4
    assert {0.0, 1.0} <= set(seen)


def test_running_example() -> None:
    logps = torch.tensor([0.9, 0.2, 0.6, 0.5]).log()
    assert answer_probability(logps) == pytest.approx(0.482057, abs=1e-6)
    assert answer_probability(logps.numpy()) == pytest.approx(0.482057, abs=1e-6)
    assert answer_probability([math.log(p) for p in (0.9, 0.2, 0.6, 0.5)]) == pytest.approx(0.482057, abs=1e-6)


def test_edges() -> None:
    assert answer_probability([0.0, 0.0]) == 1.0
    assert answer_probability(np.array([-1.0, -np.inf])) == 0.0
    assert answer_probability([1e-5]) == 1.0  # rounding of a log-softmax
    assert answer_probability([]) is None
