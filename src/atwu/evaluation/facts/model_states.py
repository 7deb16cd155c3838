"""States of a model in which it is asked again: rounded, quantized, fine-tuned a little, pushed along one direction.

Each is a context manager that changes the weights, or adds to a layer's output, and restores the model on leaving. Requests ask
for facts in them (`fact_table.py`); the attacks of the metrics room measure forget rows in them.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from atwu.data.encode import EncodedRow, Encoder
from atwu.data.schema import Example
from atwu.evaluation.facts.askings import Asking

if TYPE_CHECKING:
    from torch import Tensor, nn

BFLOAT16, EIGHT_BITS, FOUR_BITS = "bfloat16", "8 bits", "4 bits"
INPUTS_PER_SCALE: dict[int, int | None] = {8: None, 4: 128}
"""Bits -> number of inputs that share a scale; None: all inputs of an output channel."""
DIRECTION = "pushed back"
LAYER_SHARE = 0.5
"""Depth of the layer whose output is moved: facts about a subject are read out in the middle layers."""
RELEARNING_RATE = 5e-5
"""Learning rate of fine-tuning: at it, a small model learns the rows it is shown within twenty steps."""
CLIP = 1.0
"""Maximum gradient norm."""


def rounded_states(model: Any) -> Mapping[str, AbstractContextManager[None]]:
    """Return the states that need nothing but the weights: bfloat16 and 4 bits, as they apply to the model.

    Empty for a model with quantized weights.
    """
    import torch

    from atwu.modeling.layers import bfloat16_weights

    if getattr(model, "is_quantized", False):
        return {}
    states: dict[str, AbstractContextManager[None]] = {}
    if model.dtype == torch.float32:
        states[BFLOAT16] = bfloat16_weights(model)
    states[FOUR_BITS] = quantized_weights(model, 4)
    return states


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
    # A group of zeros has no scale.
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
    from atwu.modeling.layers import restored

    weights = list(_matrices(model))
    if not weights:
        raise ValueError(
            f"{type(model).__name__} has no floating-point linear layer to quantize; load it without quantization."
        )
    with restored(model):
        for weight in weights:
            weight.copy_(rounded_weight(weight, bits, INPUTS_PER_SCALE[bits]))
        yield


def _matrices(model: nn.Module) -> Iterator[Tensor]:
    """Yield views of the weights to quantize, shape (outputs, inputs), without gradient."""
    from torch import Tensor, nn
    from transformers.pytorch_utils import Conv1D

    # By identity: a head that is tied to the embeddings is a linear layer, too.
    ends = [getattr(model, name, lambda: None)() for name in ("get_input_embeddings", "get_output_embeddings")]
    excluded = {id(weight) for end in ends if end is not None for weight in end.parameters()}
    for name, module in model.named_modules():
        if not isinstance(module, (nn.Linear, Conv1D)) or "lora_" in name:
            continue
        weight = module.weight
        if isinstance(weight, Tensor) and weight.is_floating_point() and id(weight) not in excluded:
            # GPT-2's layers store the transpose.
            if isinstance(module, Conv1D):
                yield weight.data.T
            else:
                yield weight.data


def fine_tuned_name(steps: int, rows: str) -> str:
    return f"after {steps} steps on {rows}"


@contextmanager
def fine_tuned(
    model: nn.Module,
    rows: Sequence[EncodedRow],
    steps: int,
    *,
    learning_rate: float = RELEARNING_RATE,
    batch_size: int = 8,
    seed: int = 0,
    lora_r: int | None = None,
) -> Iterator[None]:
    """Fine-tune the model on the answers of some rows; restore it on leaving.

    AdamW without weight decay, constant learning rate, gradient norm at most 1, no dropout. Half-precision weights get
    float32 copies for the optimizer, since small steps would be lost in rounding. Inside, the model is in eval mode.
    Deterministic.

    Args:
        steps: Optimizer steps >= 0; more steps recover more.
        learning_rate: Learning rate > 0.
        batch_size: Rows per step, at most all rows.
        lora_r: Rank of LoRA adapters to train instead of all weights, which needs far less memory.

    Raises:
        ValueError: `lora_r` on a model that has adapters.
        FloatingPointError: Loss or gradient is not finite; the model is restored.
    """
    import torch
    from torch.utils.data import BatchSampler, RandomSampler

    from atwu.modeling.layers import restored

    bare = [dataclasses.replace(row, token_labels=None) for row in rows]
    size, generator = min(batch_size, len(bare)), torch.Generator().manual_seed(seed)
    # Permutation after permutation, so that every row is seen before any is seen twice.
    drawn = RandomSampler(bare, num_samples=size * max(1, steps), generator=generator)
    order = itertools.islice(BatchSampler(drawn, size, drop_last=True), steps)
    # Adapters are removed; all weights are copied back, which takes their memory once more.
    restoring: AbstractContextManager[object] = restored(model)
    if lora_r is not None:
        restoring = _adapted(model, lora_r, seed)
    with restoring:
        model.eval()
        trained = [weight for weight in model.parameters() if weight.is_floating_point()]
        if lora_r is not None:
            trained = [weight for weight in trained if weight.requires_grad]
        with torch.enable_grad():
            _descend(model, trained, ([bare[index] for index in batch] for batch in order), learning_rate)
        yield


@contextmanager
def _adapted(model: nn.Module, rank: int, seed: int) -> Iterator[None]:
    """Attach new LoRA adapters and remove them on leaving; the model's own weights do not change."""
    from atwu.modeling.adapters import Lora, attach
    from atwu.modeling.layers import restored_modes

    trainable = [(weight, weight.requires_grad) for weight in model.parameters()]
    with restored_modes(model):
        adapted = attach(model, Lora(rank), seed=seed)
        try:
            yield
        finally:
            adapted.unload()
            # PEFT has frozen the weights of the model itself.
            for weight, before in trainable:
                weight.requires_grad_(before)


def _descend(
    model: nn.Module, weights: Sequence[nn.Parameter], batches: Iterator[list[EncodedRow]], learning_rate: float
) -> None:
    import torch
    from torch import nn

    from atwu.data.pairing import collate_rows
    from atwu.methods.component_inputs import token_mean
    from atwu.modeling.forward import forward_tokens

    for weight in weights:
        weight.requires_grad_()
    device = weights[0].device
    trained = [w if w.dtype.itemsize >= 4 else w.detach().float().requires_grad_() for w in weights]
    optimizer = torch.optim.AdamW(trained, lr=learning_rate, weight_decay=0.0)
    for step, rows in enumerate(batches, start=1):
        batch = {name: tensor.to(device) for name, tensor in collate_rows(rows).items()}
        (out,) = forward_tokens(model, [batch])
        loss = token_mean(-out.logps, out.mask)
        loss.backward()
        for weight, copy in zip(weights, trained, strict=True):
            if copy is not weight and weight.grad is not None:
                copy.grad, weight.grad = weight.grad.float(), None
        norm = nn.utils.clip_grad_norm_(trained, CLIP)
        if not torch.isfinite(loss.detach() + norm):
            raise FloatingPointError(
                f"relearning: loss or gradient is not finite at step {step} with learning rate {learning_rate:g}; "
                "lower it."
            )
        optimizer.step()
        optimizer.zero_grad()
        for weight, copy in zip(weights, trained, strict=True):
            if copy is not weight:
                # Through `data`, since autograd refuses changes of weights that need a gradient.
                weight.data.copy_(copy.data)


def check_memory(model: nn.Module) -> None:
    """Check that full fine-tuning fits into memory, counting only gradients and optimizer state."""
    from rich.filesize import decimal

    from atwu.modeling.device import free_memory

    weights = [weight for weight in model.parameters() if weight.is_floating_point()]
    device = weights[0].device
    # A gradient, two moments, and for half precision a float32 copy with a gradient of its own.
    needed = sum(
        weight.nbytes + (2 + 2 * (weight.itemsize < 4)) * weight.numel() * max(4, weight.itemsize) for weight in weights
    )
    needed += sum(weight.nbytes for weight in weights) * (device.type == "cpu")  # the copy to restore from
    free = free_memory(device)
    if needed > free:
        raise ValueError(
            f"the relearning attack trains all weights, which needs at least {decimal(int(needed))} on {device}, but "
            f"only {decimal(int(free))} are free; train adapters with --relearn-lora-r 16 (relearn_lora_r=16)."
        )


def mean_hidden_states(model: Any, encoder: Encoder, askings: Sequence[Asking]) -> Tensor:
    """Return the mean output of the layer `moved_layer` at the end of prompts, where the answer begins, shape (hidden,)."""
    import torch

    from atwu.modeling.layers import tap

    ends: list[Tensor] = []
    outputs: list[Tensor] = []
    with torch.no_grad(), tap(model, moved_layer(model), outputs, stop=True):
        for asking in askings:
            row = Example(asking.prompt.messages, "x")  # the ids of a prompt do not depend on its answer
            ids = encoder.encode_prompt(row, prefill=asking.prompt.prefill)
            model(torch.tensor([ids], device=model.device))
            ends.append(outputs.pop()[-1].float())
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
