"""Quantization attack: quantize linear layers, which can restore knowledge that small weight changes had hidden.

Unlearning often moves weights by less than a quantization step, so that the quantized unlearned model equals the
quantized original model (Zhang et al. 2025, "Catastrophic Failure of LLM Unlearning via Quantization"). Quantized
weights are stored in the model's own dtype: values equal those of weight-only integer storage, without its speed.
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
"""Bits -> number of inputs that share a scale; None: all inputs of an output channel."""


def rounded_weight(weight: Tensor, bits: int, group: int | None = None) -> Tensor:
    """Quantize to symmetric integers: `s * round(w / s)` with `s = max |w| / (2^(bits - 1) - 1)`, ties to even.

    Args:
        weight: Floating-point matrix, shape (outputs, inputs).
        bits: Bits per integer, >= 2; levels are -127 to 127 for 8 bits and -7 to 7 for 4.
        group: Number of adjacent inputs that share a scale (the last group may be smaller); None: all inputs.

    Returns:
        Same shape and dtype. Each weight moves by at most half a step, up to the precision of the dtype. Idempotent.
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
    # Dividing by the levels first reproduces the largest weight exactly.
    result: Tensor = integers / levels * largest
    return result.view(outputs, -1)[:, :inputs].to(weight.dtype)


@contextmanager
def quantized_weights(model: nn.Module, bits: int) -> Iterator[None]:
    """Quantize the weight matrix of every linear layer in place; restore the model on leaving.

    As with bitsandbytes and GPTQ, embeddings, output head, biases, norms and unmerged LoRA matrices keep their
    precision. int8 has one scale per output channel, int4 one per 128 inputs.
    """
    from atwu.modeling.modes import restored

    weights = list(_matrices(model))
    if not weights:
        raise ValueError(
            f"{type(model).__name__} has no floating-point linear layer to quantize; load it without quantization."
        )
    with restored(model):
        for weight in weights:
            weight.copy_(rounded_weight(weight, bits, INPUTS_PER_SCALE[bits]))
        yield


class QuantizationAttack(WeightAttack):
    """Weights quantized to 8 and to 4 bits."""

    name = "quantization"
    about = "Quantization attack: forget rows after 8-bit and 4-bit weight quantization"
    cost = "one forward pass, and one answer and judge call per question of a forget row, for each bit width"
    uses = ("max_new_tokens", "paraphrases")
    needs_reference = ("original", "the recovery after quantization")
    words: ClassVar = {f"int{bits}": f"{bits}-bit quantization" for bits in INPUTS_PER_SCALE}
    columns = attack_columns(words)

    def attacks(self) -> Mapping[str, tuple[AbstractContextManager[None], Sequence[int]]]:
        model, everything = self.session.network, range(len(self.session.sets[FORGET]))
        return {f"int{bits}": (quantized_weights(model, bits), everything) for bits in INPUTS_PER_SCALE}


def _matrices(model: nn.Module) -> Iterator[Tensor]:
    """Yield views of the weights to quantize, shape (outputs, inputs), without gradient."""
    from torch import Tensor, nn
    from transformers.pytorch_utils import Conv1D

    ends = [getattr(model, name, lambda: None)() for name in ("get_input_embeddings", "get_output_embeddings")]
    excluded = {id(weight) for end in ends if end is not None for weight in end.parameters()}
    for name, module in model.named_modules():
        if not isinstance(module, (nn.Linear, Conv1D)) or "lora_" in name:
            continue
        weight = module.weight
        if isinstance(weight, Tensor) and weight.is_floating_point() and id(weight) not in excluded:
            yield weight.data.T if isinstance(module, Conv1D) else weight.data
