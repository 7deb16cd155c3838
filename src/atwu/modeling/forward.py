"""One forward pass over any number of batches, with the output layer only where a token counts.

Every loss and every metric gets its log-probabilities here. The pass packs rows end to end and reads log-probabilities
straight from the hidden states; where a short trial shows that a shortcut would change a model's numbers, it is not taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from atwu.modeling.abilities import abilities_of
from atwu.modeling.batches import TokenBatch, lay_out
from atwu.modeling.single_pass import run_pass, unwrap

LayoutChoice = Literal["auto", "packed", "padded"]
HiddenPosition = Literal["own", "pred"]


@dataclass(frozen=True, slots=True)
class TokenOutputs:
    """What the model says about the counted tokens of one batch.

    Two-dimensional tensors have shape (batch, length - 1): entry j is about token j + 1, and 0 where `mask` is False.
    """

    logps: Tensor
    mask: Tensor
    predictions: Tensor | None
    """Greedy token before each position, or None if not asked for."""
    entropy: Tensor | None
    """Entropy in nats of the next-token distribution, without gradient, or None if not asked for."""
    states: Tensor
    """Final hidden states of the whole pass, flattened, without gradient, shape (slots, hidden)."""
    own: Tensor
    predicting: Tensor

    def hidden(self, position: HiddenPosition) -> Tensor:
        """States that a scorer sees, shape (counted tokens, hidden), in row-major order of `mask`.

        Args:
            position: `own` for the state after the token was read, `pred` for the one that predicts it.
        """
        return self.states[self.own if position == "own" else self.predicting]

    def spread(self, values: Tensor) -> Tensor:
        """Put one value per counted token back on the (batch, length - 1) grid."""
        return _spread(values, self.mask)


def forward_tokens(
    model: nn.Module,
    batches: Sequence[TokenBatch | Mapping[str, Tensor]],
    *,
    predictions: bool = False,
    entropy_temperature: float | None = None,
    layout: LayoutChoice = "auto",
) -> list[TokenOutputs]:
    """Run the model once over all rows of all batches.

    Args:
        model: a causal language model, wrapped (DDP, FSDP, PEFT) or not.
        batches: any number of batches; their padding may be on either side and costs nothing.
        predictions: also return the greedy token at every counted position.
        entropy_temperature: also return next-token entropies at this temperature.
        layout: `packed` lays rows end to end, `padded` side by side; `auto` packs where the model allows it.
    """
    checked = [TokenBatch.of(batch) for batch in batches]
    abilities = abilities_of(model, checked[0].input_ids.device)
    packed = abilities.packed if layout == "auto" else layout == "packed"
    if packed and not abilities.packed:
        raise ValueError(
            f"{type(unwrap(model)).__name__} cannot run packed rows unchanged; use layout='padded' or 'auto'."
        )
    arranged = lay_out(checked, packed=packed)
    hidden, out = run_pass(model, arranged, abilities, predictions=predictions, entropy_temperature=entropy_temperature)
    results, first = [], 0
    for batch, own, predicting in zip(checked, arranged.own, arranged.predicting, strict=True):
        mask, span = batch.mask, slice(first, first + own.shape[0])
        first += own.shape[0]
        results.append(
            TokenOutputs(
                logps=_spread(out.logps[span], mask),
                mask=mask,
                predictions=_spread(out.predictions[span], mask) if out.predictions is not None else None,
                entropy=_spread(out.entropy[span], mask) if out.entropy is not None else None,
                states=hidden,
                own=own,
                predicting=predicting,
            )
        )
    return results


def _spread(values: Tensor, mask: Tensor) -> Tensor:
    return values.new_zeros(mask.shape).masked_scatter(mask, values)
