"""Rarity weights: hand-computed row, ties, unknown ids, prompt tokens, storage, built-in benchmark."""

from __future__ import annotations

import numpy as np
import pytest

from atwu.data.encode import EncodedRow
from atwu.data.schema import IGNORE_INDEX
from atwu.methods.weightings.fixed_weights import TokenCounts
from atwu.methods.weightings.token_scorer import TokenScorer

PROMPT, THE, IS, NAME, END = 1, 2, 3, 4, 5


def row(prompt, answer):
    ids = (*prompt, *answer)
    offsets = (None,) * len(prompt) + tuple((i, i + 1) for i in range(len(answer) - 1)) + (None,)
    return EncodedRow(ids, (IGNORE_INDEX,) * len(prompt) + tuple(answer), None, offsets, True)


RETAIN = [row([PROMPT], [THE, IS, THE, END]), row([PROMPT], [THE, IS, END]), row([PROMPT, NAME], [IS, THE, END])]


def test_hand_computed_row():
    # counts: THE 4, IS 3, END 3, NAME 0 -> ranks 1, 2.5 (tied), 2.5, 4 of 4
    counts = TokenCounts.of(RETAIN)
    assert counts.counts.tolist() == [0, 0, 4, 3, 0, 3]
    assert counts.rarity(row([PROMPT], [THE, IS, NAME, END])).tolist() == [0.125, 0.5, 0.875, 0.5]


def test_surprise_of_prompt_tokens_is_halved():
    # N = 10: log(11 / 5) = .788 for THE, log(11 / 4) = 1.012 for IS, log(11) / 2 = 1.199 for NAME, log(11) for an unknown id
    counts = TokenCounts.of(RETAIN)
    assert counts.rarity(row([PROMPT, NAME], [THE, IS, NAME, 99])).tolist() == [0.125, 0.375, 0.625, 0.875]
    assert counts.rarity(row([PROMPT, IS], [THE, IS, NAME, 99])).tolist() == [0.375, 0.125, 0.75, 0.75]


def test_first_token_of_plain_text_is_not_a_prompt():
    plain = EncodedRow((NAME, THE, NAME, IS), (IGNORE_INDEX, THE, NAME, IS), None, ((0, 1), (1, 2), (2, 3), None), True)
    assert TokenCounts.of(RETAIN).rarity(plain).tolist() == pytest.approx([1 / 6, 5 / 6, 1 / 2])


def test_stored_counts_give_the_same_weights(tmp_path):
    counts = TokenCounts.of(RETAIN)
    TokenScorer(2, prior=counts).save_pretrained(tmp_path)
    again = TokenScorer.from_pretrained(tmp_path).prior
    assert again.counts.tolist() == counts.counts.tolist()
    longer = TokenCounts(np.append(again.counts, [0] * 7))  # any longer vocabulary
    target = row([PROMPT, IS], [THE, IS, NAME, END])
    assert longer.rarity(target).tolist() == counts.rarity(target).tolist()
