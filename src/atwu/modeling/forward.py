"""One forward pass over any number of batches that applies the output layer to counted tokens only.

All losses and metrics get their log-probabilities here. The pass packs rows and computes log-probabilities directly from
hidden states; fast paths that would change the outputs of a model (see `single_pass.py`) are not used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn

from atwu.modeling.batches import TokenBatch, lay_out
from atwu.modeling.distribution_distance import Comparison
from atwu.modeling.layers import unwrap
from atwu.modeling.single_pass import ForwardSpec, can_stop_at, fast_path_support, run_pass

HiddenPosition = Literal["own", "pred"]


_POSITIONS = re.compile(r"(^|\.)(wpe|embed_positions|positions_embed|position_embeddings?|pos_encoding)$")
"""Name of a table of positions: a learned embedding, or a buffer."""


@dataclass(frozen=True, slots=True)
class TokenOutputs:
    """Outputs of the model at the counted tokens of one batch.

    Two-dimensional tensors have shape (batch, length - 1): entry j refers to token j + 1 and is 0 where `mask` is False.
    """

    logps: Tensor
    mask: Tensor
    states: Tensor
    """Final hidden states of the whole pass, flattened, without gradient, shape (slots, hidden)."""
    own: Tensor
    """Index into `states` of the state at each counted token."""
    predicting: Tensor
    """Index into `states` of the state that predicts each counted token."""
    predictions: Tensor | None = None
    """Greedy token before each position, or None if not requested."""
    entropy: Tensor | None = None
    """Entropy in nats of the next-token distribution, without gradient, or None if not requested."""
    variance: Tensor | None = None
    """Variance of the log-probability under the same distribution, without gradient, or None if not requested."""
    distance: Tensor | None = None
    """Distance of the comparison of this batch, with gradient; None without comparison."""
    layer_states: Tensor | None = None
    """Output of the requested decoder layer at the counted tokens, with gradient, shape (counted tokens, hidden)."""
    slope: Tensor | None = None
    """Squared norm of the gradient of the distance in the logits, if the comparison has one; without gradient."""

    def hidden(self, position: HiddenPosition) -> Tensor:
        """Return the states of counted tokens, shape (counted tokens, hidden), in row-major order of `mask`.

        Args:
            position: `own` for the state at the token, `pred` for the state that predicts it.
        """
        if position == "own":
            return self.states[self.own]
        return self.states[self.predicting]

    def to_grid(self, values: Tensor) -> Tensor:
        """Arrange one value per counted token in shape (batch, length - 1), 0 elsewhere."""
        return _to_grid(values, self.mask)


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
) -> list[TokenOutputs]:
    """Run the model once over all rows of all batches.

    Args:
        model: a causal language model, wrapped (DDP, FSDP, PEFT) or not.
        batches: any number of batches; their padding may be on either side and is not computed.
        predictions: also return the greedy token at every counted position.
        entropy_temperature: also return the entropy of the distribution at this temperature; None for no entropy.
        variance: also return the variance of the log-probability at that temperature.
        comparisons: for each batch, a distance between distributions to compute at its counted tokens, or None.
        layer: also return the output of this decoder layer (from 0) at the counted tokens.
        stop: skip everything after `layer` if the model allows it; log-probabilities are then meaningless.
    """
    checked = [TokenBatch.of(batch) for batch in batches]
    fast_paths = fast_path_support(model, checked[0].input_ids.device)
    if layer is not None and hasattr(unwrap(model), "config"):
        # Also called where the pass does not stop: it refuses a model whose layer cannot be read.
        stop = can_stop_at(model, layer, checked[0].input_ids.device) and stop
    # Packed where the model allows it: padded rows take 1.15 to 1.3 times as long on a CPU (benchmarks/results/step-cpu.md).
    arranged = lay_out(checked, packed=fast_paths.packed)
    # A position outside the table is an index error, on a GPU one after which the process cannot go on.
    check_length(unwrap(model), max(map(len, arranged.rows)))
    spec = ForwardSpec(predictions, entropy_temperature, variance, tuple(comparisons), layer, stop)
    output = run_pass(model, arranged, fast_paths, spec)
    head, results, first = output.head, [], 0
    compared = comparisons or (None,) * len(checked)
    for batch, own, predicting, comparison in zip(checked, arranged.own, arranged.predicting, compared, strict=True):
        mask, span = batch.mask, slice(first, first + own.shape[0])
        first += own.shape[0]
        values = {"predictions": head.predictions, "entropy": head.entropy, "variance": head.variance}
        if comparison is not None:  # the other batches of the pass have zeros there
            values |= {"distance": output.distances, "slope": output.slopes}
        optional = {name: _to_grid(value[span], mask) for name, value in values.items() if value is not None}
        if output.layer_states is not None:
            optional["layer_states"] = output.layer_states[own]
        logps = _to_grid(head.logps[span], mask)
        results.append(TokenOutputs(logps, mask, output.states, own, predicting, **optional))
    return results


def position_limit(model: nn.Module) -> int | None:
    """Return the number of positions of a model that has a table of them, such as GPT-2 and GPT-J; None for other models."""
    config: Any = getattr(model, "config", None)
    if getattr(config, "model_type", None) == "mpt":  # its table is computed for each pass
        return int(config.max_seq_len)
    limit: int | None = getattr(config, "max_position_embeddings", None)
    if limit is None:
        return None
    for name, table in model.named_modules():
        if isinstance(table, nn.Embedding) and _POSITIONS.search(name):
            if table.padding_idx is not None:  # RoBERTa counts positions from the one behind that of padding
                return limit - table.padding_idx - 1
            return limit
    # A buffer holds sines, as in GPT-J, which are computed for as many positions as the config says.
    if any(_POSITIONS.search(name) for name, _ in model.named_buffers()):
        return limit
    return None


def check_length(model: nn.Module, longest: int) -> None:
    """Check that rows fit into a model with a table of positions."""
    known = getattr(getattr(model, "config", None), "max_position_embeddings", None) or 0
    if 2 * longest <= known:  # no table is that short, and looking for it takes time
        return
    limit = position_limit(model)
    if limit is not None and longest > limit:
        raise ValueError(
            f"a row has {longest} tokens, but {type(model).__name__} has {limit} positions; set max_length to {limit} or less "
            "(--max-length), which cuts longer answers; for longer prompts use another model."
        )


def _to_grid(values: Tensor, mask: Tensor) -> Tensor:
    return values.new_zeros(mask.shape).masked_scatter(mask, values)
