"""Collate encoded rows into batches of padded tensors, with the names of transformers.

Attention masks follow from row lengths, not from the pad id: the pad token may equal the end token, which is trained.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NotRequired, TypedDict

import torch
from torch import Tensor

from atwu.data.encode import EncodedRow
from atwu.data.pairing import IndexedRow, PairedRow
from atwu.data.schema import IGNORE_INDEX


class PairBatch(TypedDict):
    """Input of one training step."""

    forget: dict[str, Tensor]
    """Tensors of `collate_rows` for the forget rows."""
    retain: NotRequired[dict[str, Tensor]]
    """The same for their retain rows; absent when there is no retain set."""
    rows: Tensor
    """Index of each forget row in the forget set, shape (batch,), long."""
    retain_rows: NotRequired[Tensor]
    """Index of each retain row in the retain set, shape (batch * retain rows per forget row,), long."""
    alternate: NotRequired[dict[str, Tensor]]
    """Forget prompts with preferred answers, for losses that use them."""
    alternate_rows: NotRequired[Tensor]
    """Index of each alternate among the alternates of the run."""
    retain_alternate: NotRequired[dict[str, Tensor]]
    """Retain prompts with alternate answers, for losses that use them."""


def collate_rows(rows: Sequence[EncodedRow]) -> dict[str, Tensor]:
    """Pad rows on the right and stack them; padding is token 0 (masked, so its value does not matter).

    Returns:
        `input_ids`, `attention_mask` and `labels` (long), and `token_labels` (float32, unshifted axis, 0 on prompt and
        padding) if all rows have them; each of shape (batch, tokens).
    """
    batch = {
        "input_ids": _padded([row.input_ids for row in rows]),
        "attention_mask": _padded([[1] * len(row.input_ids) for row in rows]),
        "labels": _padded([row.labels for row in rows], fill=IGNORE_INDEX),
    }
    if all(row.token_labels is not None for row in rows):
        batch["token_labels"] = _padded([row.token_labels or () for row in rows]).float()
    return batch


def _padded(rows: Sequence[Sequence[int]], *, fill: int = 0) -> Tensor:
    tensors = [torch.tensor(row, dtype=torch.long) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=fill)


def collate_pairs(pairs: Sequence[PairedRow]) -> PairBatch:
    """Collate pairs; forget, retain and alternate rows are padded separately."""
    forget, rows = _side([pair.forget for pair in pairs])
    batch = PairBatch(forget=forget, rows=rows)
    if retain := [row for pair in pairs for row in pair.retain]:
        batch["retain"], batch["retain_rows"] = _side(retain)
    if alternate := [pair.alternate for pair in pairs if pair.alternate is not None]:
        batch["alternate"], batch["alternate_rows"] = _side(alternate)
    if against := [row for pair in pairs for row in pair.retain_alternate]:
        batch["retain_alternate"], _ = _side(against)
    return batch


def _side(placed: Sequence[IndexedRow]) -> tuple[dict[str, Tensor], Tensor]:
    indices = torch.tensor([index for index, _ in placed], dtype=torch.long)
    return collate_rows([row for _, row in placed]), indices


def length_batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Group rows of similar length, longest first, with at most `budget` tokens per batch (a longer row gets its own)."""
    batch: list[int] = []
    used = 0
    for index in sorted(range(len(lengths)), key=lambda index: lengths[index], reverse=True):
        if batch and used + lengths[index] > budget:
            yield batch
            batch, used = [], 0
        batch.append(index)
        used += lengths[index]
    if batch:
        yield batch
