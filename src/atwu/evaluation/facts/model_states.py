"""States of a model in which it is asked again: rounded, quantized, fine-tuned a little, pushed along one direction.

Each is a context manager that changes the weights, or adds to a layer's output, and restores the model on leaving.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from atwu.evaluation.metrics.relearning import relearned
from atwu.evaluation.metrics.weight_attacks import quantized_weights
from atwu.modeling.layers import bfloat16_weights

if TYPE_CHECKING:
    from torch import Tensor

    from atwu.data.encode import EncodedRow, Encoder
    from atwu.evaluation.facts.askings import Asking

BFLOAT16, EIGHT_BITS, FOUR_BITS = "bfloat16", "8 bits", "4 bits"
DIRECTION = "pushed back"
LAYER_SHARE = 0.5
"""Depth of the layer whose output is moved: facts about a subject are read out in the middle layers."""
RELEARNING_RATE = 5e-5
"""Learning rate of fine-tuning: at it, a small model learns the rows it is shown within twenty steps."""


def rounded_states(model: Any) -> Mapping[str, AbstractContextManager[None]]:
    """Return the states that need nothing but the weights: bfloat16 and 4 bits, as they apply to the model.

    Empty for a model with quantized weights.
    """
    import torch

    if getattr(model, "is_quantized", False):
        return {}
    found: dict[str, AbstractContextManager[None]] = {}
    if model.dtype == torch.float32:
        found[BFLOAT16] = bfloat16_weights(model)
    found[FOUR_BITS] = quantized_weights(model, 4)
    return found


def fine_tuned_name(steps: int, rows: str) -> str:
    return f"after {steps} steps on {rows}"


def fine_tuned(model: Any, rows: Sequence[EncodedRow], steps: int) -> AbstractContextManager[None]:
    """Fine-tune the model on some rows for a few steps; see `relearned`."""
    return relearned(model, rows, steps=steps, learning_rate=RELEARNING_RATE)


def mean_hidden_states(model: Any, encoder: Encoder, askings: Sequence[Asking]) -> Tensor:
    """Return the mean output of the layer `moved_layer` at the end of prompts, where the answer begins, shape (hidden,)."""
    import torch

    from atwu.data.schema import Example
    from atwu.modeling.layers import decoder_layers

    ends: list[Tensor] = []

    def keep_end(_module: Any, _inputs: Any, output: Any) -> None:
        hidden = output[0] if isinstance(output, tuple) else output
        ends.append(hidden[0, -1].float())

    hook = decoder_layers(model)[moved_layer(model)].register_forward_hook(keep_end)
    try:
        with torch.no_grad():
            for asking in askings:
                row = Example(asking.prompt.messages, "x")  # the ids of a prompt do not depend on its answer
                ids = encoder.encode_prompt(row, prefill=asking.prompt.prefill)
                model(torch.tensor([ids], device=model.device))
    finally:
        hook.remove()
    return torch.stack(ends).mean(0)


def moved_layer(model: Any) -> int:
    return int(LAYER_SHARE * model.config.get_text_config().num_hidden_layers)


@contextmanager
def moved_along(model: Any, direction: Tensor) -> Iterator[None]:
    """Add a vector to the output of one layer at every position (arXiv 2606.03291).

    Args:
        direction: what is added, shape (hidden,): the mean state of the original model minus that of this one.
    """
    from atwu.modeling.layers import decoder_layers

    def move(_module: Any, _inputs: Any, output: Any) -> Any:
        if isinstance(output, tuple):
            return (output[0] + direction.to(output[0]), *output[1:])
        return output + direction.to(output)

    hook = decoder_layers(model)[moved_layer(model)].register_forward_hook(move)
    try:
        yield
    finally:
        hook.remove()
