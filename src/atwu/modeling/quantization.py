"""Weights in 4 or 8 bits, as bitsandbytes stores them: rounding a model that is in memory, and plain numbers again."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from atwu._extras import require

BIT_WIDTHS = ("4bit", "8bit")
"""NF4 with doubly quantized scales (Dettmers et al. 2023), and LLM.int8 (Dettmers et al. 2022)."""
_BLOCK = 64
"""Weights that share a scale in NF4."""


def check_quantization(quantize: str) -> None:
    """Check that this kind of rounding can be done here.

    Raises:
        ValueError: an unknown kind.
        ImportError: bitsandbytes is missing; the text names the pip command.
    """
    if quantize not in BIT_WIDTHS:
        raise ValueError(f"quantize must be one of {', '.join(BIT_WIDTHS)}, got {quantize!r}.")
    require("bitsandbytes", extra="quantize")


def quantization_config(quantize: str, compute: torch.dtype) -> Any:
    """What transformers is told about the rounding; `compute` is the dtype that 4-bit weights are multiplied in."""
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(
        load_in_4bit=quantize == "4bit",
        load_in_8bit=quantize == "8bit",
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=compute,
    )


def quantize_model(model: Any, quantize: str) -> Any:
    """A copy of a plain model with the weights of its linear layers in 4 or 8 bits, on the model's device.

    Embeddings, the output head and norms keep their precision, and 4-bit weights are multiplied in the model's dtype, so the
    saved copy computes everywhere what it computes here.

    Raises:
        ValueError, ImportError: as `check_quantization` and `compute_as_stored`.
    """
    check_quantization(quantize)
    quiet_bitsandbytes()
    return _copy(model, quantization_config=quantization_config(quantize, model.dtype), device_map={"": model.device})


def dequantize_model(model: Any) -> Any:
    """The model with its rounded weights as plain numbers, in its own dtype; the given model is used up."""
    if not getattr(model, "is_quantized", False):
        return model
    dtype, place = model.dtype, model.device
    # A copy, because transformers cannot save what it has read in another form.
    return _copy(model.dequantize().to(dtype)).to(place)


def _copy(model: Any, **more: Any) -> Any:
    copy: Any = type(model).from_pretrained(
        None, config=model.config, state_dict=model.state_dict(), dtype=model.dtype, **more
    )
    copy.generation_config = model.generation_config
    return compute_as_stored(copy).train(model.training)


def compute_as_stored(model: Any) -> Any:
    """The model, computing with 4-bit weights as they are stored, on every processor.

    On processors with AVX512-BF16 bitsandbytes otherwise packs them anew at their first use and rounds their scales to
    bfloat16: another model than the one that was written.

    Raises:
        ValueError: on a CPU, a layer whose rows are no multiple of a block: with AVX512 bitsandbytes 0.50 reads it wrongly.
    """
    for name, module in model.named_modules():
        if not hasattr(module, "support_avx512bf16_for_cpu"):
            continue
        if module.weight.device.type == "cpu" and module.in_features % _BLOCK:
            raise ValueError(
                f"4bit: {name} has {module.in_features} inputs, no multiple of {_BLOCK}, which bitsandbytes computes "
                "wrongly on some CPUs; take 8bit, or a CUDA device."
            )
        module.support_avx512bf16_for_cpu = False
    return model


def plain_weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Every weight by name as plain float32 numbers, one at a time; rounded ones are what they stand for."""
    for name, weight in model.named_parameters():
        if weight.is_floating_point():
            yield name, weight.detach().float()
        else:
            from transformers.integrations.bitsandbytes import dequantize_bnb_weight

            owner = model.get_submodule(name.rpartition(".")[0])
            yield name, dequantize_bnb_weight(weight, getattr(owner, "state", None)).float()


def relative_change(before: nn.Module, after: Iterable[tuple[str, Tensor]]) -> float:
    """How far matrices are from those of a model, relative to their size: `|after - before| / |before|` over all of them.

    Vectors do not count: no format rounds them, and those of norms are so large that they would hide everything else.

    Args:
        before: a plain model.
        after: weights by the same names, of the same shapes, all of them.

    Raises:
        ValueError: another set of weights.
    """
    known = dict(before.named_parameters())
    difference = size = 0.0
    for name, weight in after:
        if name not in known or known[name].shape != weight.shape:
            raise ValueError(
                f"weights cannot be compared: {name} of shape {tuple(weight.shape)} is not in both models."
            )
        mine = known.pop(name).detach().float()
        if mine.ndim < 2:
            continue
        difference += float((weight.detach().to(mine.device) - mine).double().pow(2).sum())
        size += float(mine.double().pow(2).sum())
    if known:
        raise ValueError(f"weights cannot be compared: {next(iter(known))} is not in both models.")
    return math.sqrt(difference / size) if size else 0.0


def quiet_bitsandbytes() -> None:
    """Keep it from saying at every multiplication that 8-bit layers take float16."""
    logging.getLogger("bitsandbytes.autograd._functions").setLevel(logging.ERROR)
