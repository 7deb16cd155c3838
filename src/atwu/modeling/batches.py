"""Token batches in the transformers convention, and the layout of their tokens in one forward pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from atwu.data.schema import IGNORE_INDEX


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Rows of token ids with explicit masks; every tensor has shape (batch, length)."""

    input_ids: Tensor
    attention_mask: Tensor
    """True on real tokens."""
    labels: Tensor
    """Token ids on counted tokens, IGNORE_INDEX elsewhere (not shifted)."""
    token_labels: Tensor | None = None
    """1 on labelled tokens, 0 elsewhere (not shifted); None without labels."""

    @classmethod
    def of(cls, batch: Mapping[str, Tensor] | TokenBatch, *, name: str = "batch") -> TokenBatch:
        """Check and convert a mapping with `input_ids`, `attention_mask`, `labels` (and optionally `token_labels`)."""
        if isinstance(batch, TokenBatch):
            return batch
        missing = [key for key in ("input_ids", "attention_mask", "labels") if key not in batch]
        if missing:
            raise ValueError(f"{name} lacks {', '.join(missing)}; it has {', '.join(sorted(batch)) or 'nothing'}.")
        shapes = {key: tuple(batch[key].shape) for key in ("input_ids", "attention_mask", "labels")}
        if len(set(shapes.values())) != 1 or len(shapes["input_ids"]) != 2:
            raise ValueError(
                f"{name}: input_ids, attention_mask and labels must share one (batch, length), got {shapes}."
            )
        return cls(batch["input_ids"], batch["attention_mask"].bool(), batch["labels"], batch.get("token_labels"))

    @property
    def mask(self) -> Tensor:
        """True on counted tokens, on the shifted axis: shape (batch, length - 1), entry j refers to token j + 1.

        A counted token needs a preceding token; the first token of a row is never counted.
        """
        counted = self.labels[:, 1:] != IGNORE_INDEX
        return counted & self.attention_mask[:, 1:] & self.attention_mask[:, :-1]


SHARED_LEAST = 16
"""Minimum length in tokens of a common prefix that is computed once; shorter ones do not pay for the copies in attention."""


@dataclass(frozen=True, slots=True)
class RowLengths:
    """Number of tokens of each row of one forward pass."""

    rows: tuple[int, ...]
    shared: int = 0
    """Length of a common prefix of all rows (such as a system turn) that is computed once; 0 for none."""

    @property
    def tokens(self) -> int:
        """Number of tokens computed in a pass over packed rows."""
        return sum(self.rows) - (len(self.rows) - 1) * self.shared


@dataclass(frozen=True, slots=True)
class Layout:
    """The tokens of several batches without padding, arranged as the input of one forward pass."""

    input_ids: Tensor
    """Shape (1, tokens) when packed, (rows, width) when padded."""
    position_ids: Tensor
    """Same shape; restarts at 0 in every row."""
    attention_mask: Tensor | None
    """Same shape when padded, None when packed."""
    lengths: RowLengths
    """Row lengths in the order of the layout; longest first when packed."""
    predicting: tuple[Tensor, ...]
    """For each batch, index into the flattened hidden states of the state that predicts each counted token."""
    own: tuple[Tensor, ...]
    """For each batch, index of the state at each counted token."""
    targets: tuple[Tensor, ...]
    """For each batch, the id of each counted token; row-major order of the batch's mask."""


def lay_out(batches: Sequence[TokenBatch], *, packed: bool) -> Layout:
    """Arrange the tokens of all batches for one forward pass, without their padding.

    A common prefix of packed rows appears once: with causal attention its states are equal in all rows.
    """
    lengths = torch.cat([batch.attention_mask.sum(dim=1) for batch in batches])
    sizes: list[int] = lengths.tolist()
    if min(sizes) == 0:
        raise ValueError("a row has no token (its attention mask is all zero); remove it from the batch.")
    ids = torch.cat([batch.input_ids[batch.attention_mask] for batch in batches])
    device, rows, width = ids.device, len(sizes), max(sizes)
    row = torch.repeat_interleave(torch.arange(rows, device=device), lengths)
    first = torch.cumsum(lengths, 0) - lengths
    position = torch.arange(ids.shape[0], device=device) - first[row]
    shared = _in_common(ids, first, min(sizes)) if packed else 0
    if packed:
        order = torch.argsort(lengths, descending=True, stable=True)
        sizes = lengths[order].tolist()
        own_lengths = lengths - shared
        starts = torch.empty_like(lengths)
        starts[order] = torch.cumsum(own_lengths[order], 0) - own_lengths[order]
        shape, mask = (1, RowLengths(tuple(sizes), shared).tokens), None
    else:
        starts = torch.arange(rows, device=device) * width
        shape, mask = (rows, width), torch.zeros(rows * width, dtype=torch.long, device=device)

    def placed(start: Tensor, position: Tensor) -> Tensor:
        return torch.where(position < shared, position, start + position) if shared else start + position

    place = placed(starts[row], position)
    input_ids, position_ids = ids.new_zeros(shape).flatten(), ids.new_zeros(shape).flatten()
    input_ids[place], position_ids[place] = ids, position
    if mask is not None:
        mask[place] = 1
        mask = mask.view(shape)
    own, predicting, targets, done = [], [], [], 0
    for batch in batches:
        size = batch.input_ids.shape[0]
        within = (torch.cumsum(batch.attention_mask, dim=1) - 1)[:, 1:]
        start = starts[done : done + size, None]
        counted = batch.mask
        own.append(placed(start, within)[counted])
        predicting.append(placed(start, within - 1)[counted])
        targets.append(batch.labels[:, 1:][counted])
        done += size
    return Layout(
        input_ids=input_ids.view(shape),
        position_ids=position_ids.view(shape),
        attention_mask=mask,
        lengths=RowLengths(tuple(sizes), shared),
        predicting=tuple(predicting),
        own=tuple(own),
        targets=tuple(targets),
    )


def _in_common(ids: Tensor, first: Tensor, shortest: int) -> int:
    """Return the length of the common prefix that is computed once."""
    if first.shape[0] == 1 or shortest <= SHARED_LEAST:
        return 0
    beginnings = ids[first[:, None] + torch.arange(shortest - 1, device=ids.device)]
    alike = (beginnings == beginnings[0]).all(dim=0)
    return shared_prefix(int(alike.long().cumprod(0).sum()), shortest)


def shared_prefix(common: int, shortest: int) -> int:
    """Return the part of a common prefix to compute once: every row keeps one own token; a short prefix is not shared."""
    common = min(common, shortest - 1)
    return common if common >= SHARED_LEAST else 0
