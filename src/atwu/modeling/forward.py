"""One forward pass over any number of batches, with the output layer only where a token counts.

Every loss and every metric gets its log-probabilities here. The pass packs rows end to end and reads log-probabilities
straight from the hidden states; where a short trial shows that a shortcut would change a model's numbers, it is not taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from atwu.modeling.batches import TokenBatch, lay_out
from atwu.modeling.distribution_distance import Comparison
from atwu.modeling.fast_paths import can_stop_at, fast_path_support
from atwu.modeling.single_pass import ForwardSpec, run_pass, unwrap

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
    variance: Tensor | None
    """Variance of the log-probability under the same distribution, without gradient, or None if not asked for."""
    states: Tensor
    """Final hidden states of the whole pass, flattened, without gradient, shape (slots, hidden)."""
    own: Tensor
    predicting: Tensor
    distance: Tensor | None = None
    """What the comparison of this batch measured, with gradient, or None without one."""
    layer_states: Tensor | None = None
    """Output of the asked for decoder layer at the counted tokens, with gradient, shape (counted tokens, hidden)."""

    def hidden(self, position: HiddenPosition) -> Tensor:
        """States that a scorer sees, shape (counted tokens, hidden), in row-major order of `mask`.

        Args:
            position: `own` for the state after the token was read, `pred` for the one that predicts it.
        """
        return self.states[self.own if position == "own" else self.predicting]

    def to_grid(self, values: Tensor) -> Tensor:
        """Put one value per counted token back on the (batch, length - 1) grid."""
        return _spread(values, self.mask)


def forward_tokens(
    model: nn.Module,
    batches: Sequence[TokenBatch | Mapping[str, Tensor]],
    *,
    predictions: bool = False,
    entropy_temperature: float | None = None,
    variance: bool = False,
    comparisons: Sequence[Comparison | None] = (),
    layer: int | None = None,
    stop: bool = False,
    layout: LayoutChoice = "auto",
) -> list[TokenOutputs]:
    """Run the model once over all rows of all batches.

    Args:
        model: a causal language model, wrapped (DDP, FSDP, PEFT) or not.
        batches: any number of batches; their padding may be on either side and costs nothing.
        predictions: also return the greedy token at every counted position.
        entropy_temperature: also return next-token entropies at this temperature.
        variance: also return the variance of the log-probability at that temperature.
        comparisons: for each batch, a distance between distributions to measure at its counted tokens, or None.
        layer: also return the output of this decoder layer (from 0) at the counted tokens themselves.
        stop: skip what comes after `layer`, where the model allows it; log-probabilities then mean nothing.
        layout: `packed` lays rows end to end, `padded` side by side; `auto` packs where the model allows it.
    """
    checked = [TokenBatch.of(batch) for batch in batches]
    abilities = fast_path_support(model, checked[0].input_ids.device)
    packed = abilities.packed if layout == "auto" else layout == "packed"
    if packed and not abilities.packed:
        raise ValueError(
            f"{type(unwrap(model)).__name__} cannot run packed rows unchanged; use layout='padded' or 'auto'."
        )
    if layer is not None and hasattr(unwrap(model), "config"):
        stop = can_stop_at(model, layer, checked[0].input_ids.device) and stop
    arranged = lay_out(checked, packed=packed)
    questions = ForwardSpec(predictions, entropy_temperature, variance, tuple(comparisons), layer, stop)
    answers = run_pass(model, arranged, abilities, questions)
    out, distances = answers.head, answers.distances
    results, first = [], 0
    compared = comparisons or (None,) * len(checked)
    for batch, own, predicting, comparison in zip(checked, arranged.own, arranged.predicting, compared, strict=True):
        mask, span = batch.mask, slice(first, first + own.shape[0])
        first += own.shape[0]
        results.append(
            TokenOutputs(
                logps=_spread(out.logps[span], mask),
                mask=mask,
                predictions=_spread(out.predictions[span], mask) if out.predictions is not None else None,
                entropy=_spread(out.entropy[span], mask) if out.entropy is not None else None,
                variance=_spread(out.variance[span], mask) if out.variance is not None else None,
                states=answers.states,
                own=own,
                predicting=predicting,
                distance=None if comparison is None or distances is None else _spread(distances[span], mask),
                layer_states=None if answers.layer_states is None else answers.layer_states[own],
            )
        )
    return results


def _spread(values: Tensor, mask: Tensor) -> Tensor:
    return values.new_zeros(mask.shape).masked_scatter(mask, values)
