"""Scratch tokenizer and model."""

from __future__ import annotations

import pytest
import torch

from atwu.benchmarks.people_rows import people
from atwu.modeling.scratch import scratch_config, scratch_model, train_tokenizer

TEXTS = people("tiny").texts()


def test_tokenizer_round_trips_any_text_adds_nothing_and_reports_offsets() -> None:
    tokenizer = train_tokenizer(TEXTS, vocab_size=600)
    for text in (*TEXTS[:4], "unseen Ünïcödé \n\t 12 ☃", " leading and trailing "):
        assert tokenizer.decode(tokenizer(text).input_ids) == text
    encoded = tokenizer(TEXTS[0], return_offsets_mapping=True)
    assert not set(encoded.input_ids) & set(tokenizer.all_special_ids)
    assert encoded.offset_mapping[0][0] == 0
    assert encoded.offset_mapping[-1][1] == len(TEXTS[0])
    assert tokenizer.chat_template is None
    assert (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id) == (0, 1, 2)


def test_impossible_sizes_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"\b259\b"):
        train_tokenizer(TEXTS, vocab_size=200)
    with pytest.raises(ValueError, match="tofu6m"):
        scratch_config("tofu7b")


def test_equal_seeds_give_equal_weights_and_leave_the_global_state_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first, second, other = (
        scratch_model("micro", seed=1),
        scratch_model("micro", seed=1),
        scratch_model("micro", seed=2),
    )
    assert torch.equal(torch.rand(1), expected)
    for left, right in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(left, right)
    assert not torch.equal(first.lm_head.weight, other.lm_head.weight)
