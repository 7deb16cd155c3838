"""Encoded rows into batches of padded tensors (names as in transformers, so the tensors go into any model).

Attention masks come from row lengths, never from the pad id: the pad token may be the end token, which is trained.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NotRequired, TypedDict

import torch
from torch import Tensor

from atwu.data.encode import EncodedRow, labelled
from atwu.data.pairing import PairedRow, Placed
from atwu.data.schema import IGNORE_INDEX


class PairBatch(TypedDict):
    """What the trainer gets per step."""

    forget: dict[str, Tensor]
    """Tensors of `collate_rows` for the forget rows."""
    retain: NotRequired[dict[str, Tensor]]
    """The same for their retain rows; absent when there is no retain set."""
    rows: Tensor
    """Index of each forget row in the forget set, shape (batch,), long."""
    retain_rows: NotRequired[Tensor]
    """Index of each retain row in the retain set, same shape."""
    alternate: NotRequired[dict[str, Tensor]]
    """The forget prompts with preferred answers, for losses that learn from them."""
    alternate_rows: NotRequired[Tensor]
    """Index of each of these among the run's alternates."""


def collate_rows(rows: Sequence[EncodedRow], *, pad_id: int = 0) -> dict[str, Tensor]:
    """Pad rows at the right and stack them.

    Args:
        rows: the rows of the batch.
        pad_id: id written on padding; it is masked out, so any id of the vocabulary will do.

    Returns:
        `input_ids`, `attention_mask` and `labels` (long), and `token_labels` (float32, unshifted axis, 0 on prompt and
        padding) when the rows have them; each of shape (batch, tokens).

    Raises:
        ValueError: no rows, or only some of them with token labels.
    """
    if not rows:
        raise ValueError("cannot collate an empty batch; give at least one row.")
    length = max(len(row.input_ids) for row in rows)
    batch = {
        "input_ids": torch.full((len(rows), length), pad_id, dtype=torch.long),
        "attention_mask": torch.zeros((len(rows), length), dtype=torch.long),
        "labels": torch.full((len(rows), length), IGNORE_INDEX, dtype=torch.long),
    }
    if labelled(rows, what="rows of one batch"):
        batch["token_labels"] = torch.zeros((len(rows), length), dtype=torch.float32)
    for index, row in enumerate(rows):
        size = len(row.input_ids)
        batch["input_ids"][index, :size] = torch.tensor(row.input_ids)
        batch["attention_mask"][index, :size] = 1
        batch["labels"][index, :size] = torch.tensor(row.labels)
        if row.token_labels is not None:
            batch["token_labels"][index, :size] = torch.tensor(row.token_labels, dtype=torch.float32)
    return batch


@dataclass(frozen=True, slots=True)
class PairCollator:
    """Collates pairs; forget and retain rows are padded apart."""

    pad_id: int

    def __call__(self, pairs: Sequence[PairedRow]) -> PairBatch:
        """Build the batch of some pairs.

        Raises:
            ValueError: some pairs have a retain row and some have none, or as `collate_rows`.
        """
        retain = [pair.retain for pair in pairs if pair.retain is not None]
        if retain and len(retain) < len(pairs):
            raise ValueError(f"{len(retain)} of {len(pairs)} pairs have a retain row; give one to all or to none.")
        forget, rows = self._side([pair.forget for pair in pairs])
        batch = PairBatch(forget=forget, rows=rows)
        if retain:
            batch["retain"], batch["retain_rows"] = self._side(retain)
        if alternate := [pair.alternate for pair in pairs if pair.alternate is not None]:
            batch["alternate"], batch["alternate_rows"] = self._side(alternate)
        return batch

    def _side(self, placed: Sequence[Placed]) -> tuple[dict[str, Tensor], Tensor]:
        indices = torch.tensor([index for index, _ in placed], dtype=torch.long)
        return collate_rows([row for _, row in placed], pad_id=self.pad_id), indices


def by_length(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Indices of rows of similar length together, longest first, at most `budget` tokens a batch (a longer row is alone)."""
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
