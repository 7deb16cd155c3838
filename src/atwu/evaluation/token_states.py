"""Hidden states of every layer at and before the answer tokens of rows, in one padded pass without the output layer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from atwu._progress import progress_bar
from atwu.data.collate import collate_rows, length_batches
from atwu.data.encode import EncodedRow
from atwu.modeling.batches import TokenBatch, lay_out
from atwu.modeling.modes import eval_mode
from atwu.modeling.single_pass import unwrap

ProbePosition = Literal["own", "pred", "both"]
POSITIONS: tuple[ProbePosition, ...] = get_args(ProbePosition)
"""State after the token (own), state that predicts it (pred), and both concatenated."""


@dataclass(frozen=True, slots=True)
class TokenStates:
    """Hidden states of the answer tokens of some rows; states shared by tokens are stored once."""

    states: Mapping[int, Tensor]
    """Layer -> float32 on the CPU, shape (slots, hidden)."""
    own: tuple[Tensor, ...]
    """Per row, the slot of each answer token's own state, shape (tokens,)."""
    pred: tuple[Tensor, ...]
    """Per row, the slot of the state before each answer token, shape (tokens,)."""

    def features(self, layer: int, position: ProbePosition) -> list[Tensor]:
        """Return the probe's input per row, shape (tokens, hidden), or (tokens, 2 * hidden) for `both`."""
        states = self.states[layer]
        if position == "both":
            return [torch.cat([states[a], states[b]], dim=1) for a, b in zip(self.own, self.pred, strict=True)]
        return [states[slots] for slots in (self.own if position == "own" else self.pred)]


@torch.no_grad()
def read_states(
    model: nn.Module,
    rows: Sequence[EncodedRow],
    *,
    layers: Sequence[int] | None = None,
    batch_tokens: int = 4096,
    progress: bool = False,
) -> TokenStates:
    """Run the model once and keep the states at and before the counted tokens.

    Args:
        layers: Layers to keep, negative ones from the end; None: all.
    """
    inner = unwrap(model)
    body = getattr(inner, "base_model", inner)  # without the output layer: no logits are needed
    device = next(model.parameters()).device
    kept: dict[int, list[Tensor]] = {}
    own: list[Tensor] = [torch.empty(0)] * len(rows)
    pred = list(own)
    slots = 0
    with (
        eval_mode(model),
        progress_bar(total=len(rows), desc="read states", unit="row", shown=progress, leave=False) as bar,
    ):
        for batch in length_batches([len(row.input_ids) for row in rows], batch_tokens):
            tensors = collate_rows([dataclasses.replace(rows[index], token_labels=None) for index in batch])
            tokens = TokenBatch.of({key: value.to(device) for key, value in tensors.items()})
            arranged = lay_out([tokens], packed=False)
            hidden_states = body(
                input_ids=arranged.input_ids,
                attention_mask=arranged.attention_mask,
                position_ids=arranged.position_ids,
                output_hidden_states=True,
                use_cache=False,
            ).hidden_states
            if not kept:
                kept = {layer: [] for layer in layer_numbers(layers, len(hidden_states))}
            needed, places = torch.unique(torch.cat([*arranged.own, *arranged.predicting]), return_inverse=True)
            for layer, parts in kept.items():
                parts.append(hidden_states[layer].flatten(0, 1)[needed].float().cpu())
            sizes = tokens.mask.sum(dim=1).tolist()
            at, before = (places.cpu() + slots).chunk(2)
            for index, row_own, row_pred in zip(batch, at.split(sizes), before.split(sizes), strict=True):
                own[index], pred[index] = row_own, row_pred
            slots += len(needed)
            bar.update(len(batch))
    return TokenStates({layer: torch.cat(kept.pop(layer)) for layer in list(kept)}, tuple(own), tuple(pred))


def layer_numbers(layers: Sequence[int] | None, count: int) -> list[int]:
    """Return distinct layer numbers from 0, in ascending order."""
    if layers is None:
        return list(range(count))
    wrong = [layer for layer in layers if not -count <= layer < count]
    if wrong or not layers:
        got = wrong[0] if wrong else "none"
        raise ValueError(f"layers must be from 0 (embeddings) to {count - 1} (final states) for this model, got {got}.")
    return sorted({layer % count for layer in layers})
