"""Token batches in the transformers convention, and how their real tokens are laid out for one forward pass."""

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
    """Token ids where counted, IGNORE_INDEX elsewhere (not shifted)."""
    token_labels: Tensor | None = None
    """1 where the token carries the secret, 0 elsewhere (not shifted), or None without annotation."""

    @classmethod
    def of(cls, batch: Mapping[str, Tensor] | TokenBatch, *, name: str = "batch") -> TokenBatch:
        """Check and convert a dict with `input_ids`, `attention_mask`, `labels` (and optionally `token_labels`)."""
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
        """True where a token counts, on the shifted axis: shape (batch, length - 1), entry j is about token j + 1.

        A counted token needs a real token before it: nothing predicts the first token of a row.
        """
        counted = self.labels[:, 1:] != IGNORE_INDEX
        return counted & self.attention_mask[:, 1:] & self.attention_mask[:, :-1]


@dataclass(frozen=True, slots=True)
class Layout:
    """The real tokens of several batches, arranged as the input of one forward pass."""

    input_ids: Tensor
    """Shape (1, tokens) when packed, (rows, width) when padded."""
    position_ids: Tensor
    """Same shape; restarts at 0 in every row."""
    attention_mask: Tensor | None
    """Same shape when padded, None when packed."""
    lengths: tuple[int, ...]
    """Tokens of each row, in the order of the layout: longest first when packed."""
    predicting: tuple[Tensor, ...]
    """For each batch, index into the flattened hidden states of the state that predicts each counted token."""
    own: tuple[Tensor, ...]
    """For each batch, index of the state at each counted token itself."""
    targets: tuple[Tensor, ...]
    """For each batch, the id of each counted token; row-major order of the batch's mask."""


def lay_out(batches: Sequence[TokenBatch], *, packed: bool) -> Layout:
    """Arrange the real tokens of all batches for one forward pass; padding of the given batches is dropped.

    Raises:
        ValueError: a row without any token.
    """
    lengths = torch.cat([batch.attention_mask.sum(dim=1) for batch in batches])
    sizes: list[int] = lengths.tolist()
    if min(sizes) == 0:
        raise ValueError("a row has no token (its attention mask is all zero); drop it before batching.")
    ids = torch.cat([batch.input_ids[batch.attention_mask] for batch in batches])
    device, rows, width = ids.device, len(sizes), max(sizes)
    row = torch.repeat_interleave(torch.arange(rows, device=device), lengths)
    position = torch.arange(ids.shape[0], device=device) - (torch.cumsum(lengths, 0) - lengths)[row]
    if packed:
        order = torch.argsort(lengths, descending=True, stable=True)
        sizes = lengths[order].tolist()
        starts = torch.empty_like(lengths)
        starts[order] = torch.cumsum(lengths[order], 0) - lengths[order]
        shape, mask = (1, ids.shape[0]), None
    else:
        starts = torch.arange(rows, device=device) * width
        shape, mask = (rows, width), torch.zeros(rows * width, dtype=torch.long, device=device)
    place = starts[row] + position
    input_ids, position_ids = ids.new_zeros(shape).flatten(), ids.new_zeros(shape).flatten()
    input_ids[place], position_ids[place] = ids, position
    if mask is not None:
        mask[place] = 1
        mask = mask.view(shape)
    own, targets, first = [], [], 0
    for batch in batches:
        size = batch.input_ids.shape[0]
        within = torch.cumsum(batch.attention_mask, dim=1) - 1
        index = starts[first : first + size, None] + within
        counted = batch.mask
        own.append(index[:, 1:][counted])
        targets.append(batch.labels[:, 1:][counted])
        first += size
    return Layout(
        input_ids=input_ids.view(shape),
        position_ids=position_ids.view(shape),
        attention_mask=mask,
        lengths=tuple(sizes),
        predicting=tuple(index - 1 for index in own),
        own=tuple(own),
        targets=tuple(targets),
    )
