"""Rounding a model's linear layers to integers, which can bring back what small weight changes had hidden.

Unlearning often moves weights by less than a quantization step, so that the rounded unlearned model equals the rounded
starting model (Zhang et al. 2025, "Catastrophic Failure of LLM Unlearning via Quantization"). Rounded weights stay in
the model's own dtype: the numbers are those of weight-only integer storage, without its speed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, ClassVar

from atwu.evaluation.columns import FORGET
from atwu.evaluation.metrics.weight_attacks import WeightAttack, attack_columns

if TYPE_CHECKING:
    from torch import Tensor, nn

INPUTS_PER_SCALE: dict[int, int | None] = {8: None, 4: 128}
"""Bits -> how many inputs share a scale; None is all inputs of one output channel."""


def rounded_weight(weight: Tensor, bits: int, group: int | None = None) -> Tensor:
    """Round to symmetric integers: `s * round(w / s)` with `s = max |w| / (2^(bits - 1) - 1)`, ties to even.

    Args:
        weight: floating point matrix, shape (outputs, inputs).
        bits: of one integer, >= 2; the levels are -127 to 127 for 8 bits and -7 to 7 for 4.
        group: so many neighbouring inputs share a scale (the last group may be shorter); None: all inputs of an output.

    Returns:
        Same shape and dtype. At most half a step away from the weight, up to the precision of the dtype; rounding
        again changes nothing.
    """
    import torch
    from torch import nn

    levels = 2 ** (bits - 1) - 1
    outputs, inputs = weight.shape
    group = min(group or inputs, inputs)
    values = weight.detach().to(torch.promote_types(weight.dtype, torch.float32))
    values = nn.functional.pad(values, (0, -inputs % group)).view(outputs, -1, group)
    largest = values.abs().amax(dim=-1, keepdim=True)
    integers = (values / largest.masked_fill(largest == 0, 1) * levels).round()
    # Dividing by the levels first gives the largest weight back exactly.
    result: Tensor = integers / levels * largest
    return result.view(outputs, -1)[:, :inputs].to(weight.dtype)


@contextmanager
def quantized_weights(model: nn.Module, bits: int) -> Iterator[None]:
    """Round the weight matrix of every linear layer in place; on leaving, the model is as it was.

    As with bitsandbytes and GPTQ, embeddings, the output head, biases and norms keep their precision, and so do the
    matrices of LoRA adapters that are not merged. int8 has a scale per output channel, int4 one per 128 inputs.

    Raises:
        ValueError: no linear layer to round (the model may be quantized already).
    """
    from atwu.evaluation.restore_weights import restored

    weights = list(_matrices(model))
    if not weights:
        raise ValueError(
            f"{type(model).__name__} has no linear layer in floating point to round; load it without quantization."
        )
    with restored(model):
        for weight in weights:
            weight.copy_(rounded_weight(weight, bits, INPUTS_PER_SCALE[bits]))
        yield


class QuantizationAttack(WeightAttack):
    """Weights rounded to 8 and to 4 bits."""

    name = "quantization"
    about = "what rounding to 8 and 4 bits brings back"
    cost = "answers and verdicts of forget rows after each rounding"
    uses = ("max_new_tokens", "paraphrases")
    needs_reference = ("original", "what rounding recovers")
    words: ClassVar = {f"int{bits}": f"rounding to {bits} bits" for bits in INPUTS_PER_SCALE}
    columns = attack_columns(words)

    def attacks(self) -> Mapping[str, tuple[AbstractContextManager[None], Sequence[int]]]:
        """Both roundings."""
        model, everything = self.session.network, range(len(self.session.sets[FORGET]))
        return {f"int{bits}": (quantized_weights(model, bits), everything) for bits in INPUTS_PER_SCALE}


def _matrices(model: nn.Module) -> Iterator[Tensor]:
    """Views of the weights to round, shape (outputs, inputs), without gradient."""
    from torch import Tensor, nn
    from transformers.pytorch_utils import Conv1D

    ends = [getattr(model, name, lambda: None)() for name in ("get_input_embeddings", "get_output_embeddings")]
    spared = {id(weight) for end in ends if end is not None for weight in end.parameters()}
    for name, module in model.named_modules():
        if not isinstance(module, (nn.Linear, Conv1D)) or "lora_" in name:
            continue
        weight = module.weight
        if isinstance(weight, Tensor) and weight.is_floating_point() and id(weight) not in spared:
            yield weight.data.T if isinstance(module, Conv1D) else weight.data
