"""The relearning attack on an unlearned model, its choice of rows, and the recovered share."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from atwu.benchmarks.people_rows import people
from atwu.data.encode import Encoder
from atwu.data.schema import Example
from atwu.evaluation.facts.askings import attack_rows
from atwu.evaluation.facts.model_states import check_memory, fine_tuned
from atwu.evaluation.teacher_forced import read_tokens
from atwu.modeling.load import model_fingerprint
from atwu.modeling.scratch import scratch_model, train_tokenizer

ROWS = [
    Example.from_qa(f"Where does {name} live?", f"{name} lives in Kelbury.") for name in ("Orla Venn", "Tavi Brook")
]


@pytest.fixture(scope="module")
def world():
    tokenizer = train_tokenizer([f"{row.question} {row.answer}" for row in ROWS], vocab_size=300)
    return scratch_model("micro").train(), Encoder(tokenizer).encode_rows(ROWS, what="rows").rows


def loss_of(model, rows):
    return -np.mean(np.concatenate([row.logps for row in read_tokens(model, rows)]))


def test_training_rows_are_learned_and_the_weights_restored_afterwards(world):
    model, rows = world
    fingerprint, before = model_fingerprint(model), loss_of(model, rows)
    with torch.no_grad(), fine_tuned(model, rows[:1], steps=20, learning_rate=1e-2):
        assert loss_of(model, rows[:1]) < 0.2 * before
        assert not model.training
        assert all(weight.grad is None for weight in model.parameters())
        learned = model_fingerprint(model)
    assert model_fingerprint(model) == fingerprint != learned
    assert model.training
    with fine_tuned(model, rows[:1], steps=0, learning_rate=1.0):
        assert model_fingerprint(model) == fingerprint


def test_one_step_equals_plain_adamw(world):
    model, rows = world
    other = scratch_model("micro").eval()
    optimizer = torch.optim.AdamW(other.parameters(), lr=1e-3, weight_decay=0.0)
    for _ in range(2):
        logps, count = 0.0, 0
        for row in rows:
            ids = torch.tensor([row.input_ids])
            table = other(input_ids=ids).logits[0, :-1].log_softmax(-1)
            places = range(row.answer_start, len(row.input_ids))
            logps, count = logps + sum(table[t - 1, row.input_ids[t]] for t in places), count + len(places)
        optimizer.zero_grad()
        (-logps / count).backward()
        torch.nn.utils.clip_grad_norm_(other.parameters(), 1.0)
        optimizer.step()
    with fine_tuned(model, rows, steps=2, learning_rate=1e-3):
        for weight, expected in zip(model.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(weight, expected, atol=2e-5, rtol=0)


def test_the_order_depends_only_on_the_seed(world):
    model, rows = world

    def trained(seed):
        torch.rand(seed + 1)
        with fine_tuned(model, rows, steps=3, learning_rate=1e-3, batch_size=1, seed=seed):
            return model_fingerprint(model)

    assert trained(0) == trained(0)
    assert len({trained(seed) for seed in range(4)}) > 1


def test_small_updates_accumulate_in_half_precision(world):
    model, rows = scratch_model("micro").bfloat16(), world[1]
    before = loss_of(model, rows)
    with fine_tuned(model, rows, steps=30, learning_rate=3e-5):  # each step is below most weights' spacing
        assert next(model.parameters()).dtype == torch.bfloat16
        half = before - loss_of(model, rows)
    whole = scratch_model("micro")
    with fine_tuned(whole, rows, steps=30, learning_rate=3e-5):
        assert half == pytest.approx(before - loss_of(whole, rows), rel=0.2)


@settings(max_examples=20)
@given(st.integers(1, 12), st.integers(0, 1000))
def test_attack_rows_cover_many_subjects(count, seed):
    forget = people("tiny").forget
    shown, held_out = attack_rows(forget, count, seed)
    assert (shown, held_out) == attack_rows(forget, count, seed)
    assert len(shown) == count
    assert not set(shown) & set(held_out)
    per_subject = [sum(forget[i].subject == name for i in shown) for name in {row.subject for row in forget}]
    assert max(per_subject) - min(per_subject) <= 1
    assert list(shown) == sorted(shown)
    assert list(held_out) == sorted(held_out)


def test_rows_whose_answer_is_in_a_training_row_are_not_held_out():
    def row(question, answer, *secrets, subject="Orla Venn"):
        spans = tuple((answer.index(secret), answer.index(secret) + len(secret)) for secret in secrets)
        return Example.from_qa(question, answer, forget_spans=spans, subject=subject)

    rows = [
        row("When was Orla Venn born?", "Orla Venn was born on 3 May 1961.", "3 May 1961"),
        row("Who was born on 3 May 1961?", "That was Orla Venn.", "Orla Venn"),
        row("What does Orla Venn paint?", "Orla Venn paints boats.", "boats"),
        row("When was Tavi Brook born?", "Also on 3 May 1961.", "3 May 1961", subject="Tavi Brook"),
    ]
    outcomes = {attack_rows(rows, 1, seed) for seed in range(40)}
    assert outcomes == {((0,), (2, 3)), ((1,), (2, 3)), ((2,), (0, 1, 3)), ((3,), (0, 1, 2))}
    nameless = [dataclasses.replace(one, subject=None, forget_spans=None) for one in rows]
    assert {attack_rows(nameless, 1, seed) for seed in range(40)} == {
        ((i,), tuple(j for j in range(4) if j != i)) for i in range(4)
    }
    with pytest.raises(ValueError, match=r"\b1 .* 3\b"):
        attack_rows(rows, 4, 0)
    with pytest.raises(ValueError, match="none"):
        attack_rows([rows[0], rows[0]], 1, 0)


def test_relearning_with_adapters_removes_them_afterwards(world):
    pytest.importorskip("peft")
    model, rows = world
    fingerprint, before, kinds = (
        model_fingerprint(model),
        loss_of(model, rows),
        [type(part) for part in model.modules()],
    )
    with torch.no_grad(), fine_tuned(model, rows[:1], steps=20, learning_rate=5e-2, lora_r=4):
        assert loss_of(model, rows[:1]) < before - 0.2
        assert not model.training
    assert model_fingerprint(model) == fingerprint
    assert [type(part) for part in model.modules()] == kinds
    assert model.training
    assert all(weight.requires_grad and weight.grad is None for weight in model.parameters())
    assert not hasattr(model, "peft_config")


@pytest.mark.parametrize(("dtype", "bytes_each"), [(torch.float32, 4 + 8 + 4), (torch.bfloat16, 2 + 16 + 2)])
def test_memory_for_training_all_weights_is_checked_first(dtype, bytes_each, monkeypatch):
    model = scratch_model("micro").to(dtype)
    needed = bytes_each * sum(weight.numel() for weight in model.parameters())
    monkeypatch.setattr("atwu.modeling.device.free_memory", lambda device: needed)
    check_memory(model)
    monkeypatch.setattr("atwu.modeling.device.free_memory", lambda device: needed - 1)
    with pytest.raises(ValueError, match=r"on cpu.*--relearn-lora-r"):
        check_memory(model)
