"""Padding, masks from lengths, and token labels, with the whole expected tensor written out."""

from __future__ import annotations

import torch

from atwu.data.collate import collate_pairs, collate_rows
from atwu.data.encode import EncodedRow
from atwu.data.pairing import PairedRow

X = -100
SHORT = EncodedRow((5, 6, 0), (X, 6, 0), (0, 1, 0), (None, (0, 2), None), has_terminal=True)
LONG = EncodedRow((5, 7, 8, 9, 0), (X, X, 8, 9, 0), (0, 0, 0, 1, 0), (None, None, (0, 1), (1, 2), None), True)
BARE = EncodedRow((5, 6, 0), (X, 6, 0), None, (None, (0, 2), None), has_terminal=True)


def test_whole_batch():
    batch = collate_rows([SHORT, LONG])
    # The end token has the id of the padding (0): it is attended to and trained, padding is not.
    assert batch["input_ids"].tolist() == [[5, 6, 0, 0, 0], [5, 7, 8, 9, 0]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
    assert batch["labels"].tolist() == [[X, 6, 0, X, X], [X, X, 8, 9, 0]]
    assert batch["token_labels"].tolist() == [[0, 1, 0, 0, 0], [0, 0, 0, 1, 0]]
    assert {name: tensor.dtype for name, tensor in batch.items()} == {
        "input_ids": torch.long,
        "attention_mask": torch.long,
        "labels": torch.long,
        "token_labels": torch.float32,
    }


def test_token_labels_only_when_every_row_has_them():
    assert "token_labels" not in collate_rows([BARE, BARE])
    assert "token_labels" not in collate_rows([SHORT, BARE, BARE])


def test_pairs():
    pairs = [PairedRow((4, SHORT), ((9, BARE),)), PairedRow((2, LONG), ((9, BARE),))]
    batch = collate_pairs(pairs)
    assert batch["rows"].tolist() == [4, 2]
    assert batch["rows"].dtype == torch.long
    assert batch["forget"]["input_ids"].tolist() == [[5, 6, 0, 0, 0], [5, 7, 8, 9, 0]]
    assert batch["retain"]["input_ids"].tolist() == [[5, 6, 0], [5, 6, 0]]
    assert "token_labels" in batch["forget"]
    assert "token_labels" not in batch["retain"]


def test_pairs_without_retain_set():
    assert set(collate_pairs([PairedRow((0, SHORT), ())])) == {"forget", "rows"}
