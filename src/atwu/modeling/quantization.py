"""Quantize models in memory to 4 or 8 bits with bitsandbytes, and dequantize them."""

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


def check_quantization(quantize: str, *, loading: bool = False) -> None:
    """Check that this quantization is available, or that weights can be quantized so while they are loaded."""
    if quantize not in BIT_WIDTHS:
        raise ValueError(f"quantize must be one of {', '.join(BIT_WIDTHS)}, got {quantize!r}.")
    if loading and not torch.cuda.is_available():
        raise ValueError(f"quantize={quantize!r} needs a CUDA device, but none is available; load without quantize.")
    require("bitsandbytes", extra="quantize")


def quantization_config(quantize: str, compute: torch.dtype) -> Any:
    """Return the quantization config of transformers; `compute` is the dtype of products with 4-bit weights."""
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(
        load_in_4bit=quantize == "4bit",
        load_in_8bit=quantize == "8bit",
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=compute,
    )


def quantize_model(model: Any, quantize: str) -> Any:
    """Return a copy of a plain model with linear layers quantized to 4 or 8 bits, on the device of the model.

    Embeddings, output layer and norms keep their precision; products with 4-bit weights use the dtype of the model, so the
    saved copy gives the same results on all machines.
    """
    check_quantization(quantize)
    quiet_bitsandbytes()
    return _copy(model, quantization_config=quantization_config(quantize, model.dtype), device_map={"": model.device})


def dequantize_model(model: Any) -> Any:
    """Dequantize a model to its own dtype; the given model cannot be used afterwards."""
    if not getattr(model, "is_quantized", False):
        return model
    dtype, place = model.dtype, model.device
    # A copy, because transformers cannot save a dequantized model.
    return _copy(model.dequantize().to(dtype)).to(place)


def _copy(model: Any, **more: Any) -> Any:
    copy: Any = type(model).from_pretrained(
        None, config=model.config, state_dict=model.state_dict(), dtype=model.dtype, **more
    )
    copy.generation_config = model.generation_config
    return compute_as_stored(copy).train(model.training)


def compute_as_stored(model: Any) -> Any:
    """Make the model compute with 4-bit weights exactly as stored, on every CPU.

    With AVX512-BF16, bitsandbytes otherwise repacks the weights at first use and rounds their scales to bfloat16, which
    changes the model.
    """
    for name, module in model.named_modules():
        if not hasattr(module, "support_avx512bf16_for_cpu"):
            continue
        if module.weight.device.type == "cpu" and module.in_features % _BLOCK:
            raise ValueError(
                f"4bit: {name} has {module.in_features} inputs, no multiple of {_BLOCK}, which bitsandbytes computes "
                "wrongly on some CPUs; use 8bit, or a CUDA device."
            )
        module.support_avx512bf16_for_cpu = False
    return model


def plain_weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield every weight by name in float32, one at a time; quantized weights are dequantized."""
    for name, weight in model.named_parameters():
        if weight.is_floating_point():
            yield name, weight.detach().float()
        else:
            from transformers.integrations.bitsandbytes import dequantize_bnb_weight

            owner = model.get_submodule(name.rpartition(".")[0])
            yield name, dequantize_bnb_weight(weight, getattr(owner, "state", None)).float()


def relative_change(before: nn.Module, after: Iterable[tuple[str, Tensor]]) -> float:
    """Compute the relative change of all matrices of a model, `|after - before| / |before|`.

    Vectors are ignored: no format quantizes them, and the large weights of norms would dominate.
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
        # Squares in float64: in float32 a sum of millions of small ones would stop growing.
        difference += float((weight.detach().to(mine.device) - mine).double().pow(2).sum())
        size += float(mine.double().pow(2).sum())
    if known:
        raise ValueError(f"weights cannot be compared: {next(iter(known))} is not in both models.")
    if size:
        return math.sqrt(difference / size)
    return 0.0


def quiet_bitsandbytes() -> None:
    """Silence the warning of bitsandbytes at every product that 8-bit layers use float16."""
    logging.getLogger("bitsandbytes.autograd._functions").setLevel(logging.ERROR)
