"""Training adapters instead of weights (LoRA, Hu et al. 2022): which ones a configuration asks for, and putting them on.

What cannot work is found on a model without weights, so before anything is read.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import torch
from torch import nn

from atwu._extras import require
from atwu.methods.recipe import Recipe
from atwu.modeling.adapters import Lora, adapters_of, attach, unmergeable
from atwu.modeling.layers import decoder_layers
from atwu.modeling.load import check_quantize
from atwu.modeling.single_pass import unwrap
from atwu.training.config import TokenTrainingConfig, UnlearnConfig


def lora_of(config: TokenTrainingConfig, model: nn.Module) -> Lora | None:
    """The adapters of a run on a model, or None for a run on all weights.

    A forget loss that trains some layers only (RMU: Li et al. 2024) gets them on `down_proj` of these.
    """
    lora = config.lora()
    if lora is None or not isinstance(config, UnlearnConfig):
        return lora
    layers = trained_layers(config.recipe(), model)
    return lora if layers is None else dataclasses.replace(lora, targets=lora.targets or ("down_proj",), layers=layers)


def trained_layers(recipe: Recipe, model: nn.Module) -> tuple[int, ...] | None:
    """Decoder layers whose MLP output matrices alone are trained; None for a method that trains all weights.

    Raises:
        ValueError: the layer was set by the user and the model has none of that index.
    """
    if recipe.forgetter.trained_layers(1) is None:
        return None
    layers = len(decoder_layers(unwrap(model)))
    recipe.layer(layers)
    return recipe.forgetter.trained_layers(layers)


def with_adapters(model: nn.Module, config: TokenTrainingConfig) -> nn.Module:
    """The model with the adapters of a run on it; a model that has some already, or needs none, is returned as it is.

    Args:
        model: in its starting state; changed in place.
        config: of the run; its seed decides the adapters' first values.

    Raises:
        ValueError: a target or layer that the model does not have.
    """
    lora = lora_of(config, model)
    return model if lora is None or adapters_of(model) is not None else attach(model, lora, seed=config.seed)


def check_lora(config: TokenTrainingConfig, architecture: Any, *, named: bool, trust_remote_code: bool = False) -> int:
    """Check a run with adapters before any weights are read.

    Args:
        config: of the run.
        architecture: configuration of the model, as transformers has it.
        named: the model is one that an adapter can name as its base.
        trust_remote_code: run model code that comes with the checkpoint.

    Returns:
        Bytes that a saved adapter takes; 0 for a run on all weights.

    Raises:
        ValueError: adapters that do not fit the model or the kind of result, or a place that cannot quantise.
        ImportError: an optional package is missing.
    """
    if config.lora_r == 0:
        if isinstance(config, UnlearnConfig) and config.reference == "adapters":
            raise ValueError("reference='adapters' needs a run with LoRA; set lora_r (say 16), or use cache or model.")
        return 0
    require("peft", extra="lora")
    if config.quantize is not None:
        if not named:
            raise ValueError("quantize loads a model in fewer bits; a new model and an adapter folder cannot be.")
        if config.use_cpu:
            raise ValueError(f"quantize={config.quantize!r} needs a CUDA device; leave out use_cpu or quantize.")
        check_quantize(config.quantize)
    if config.save_adapter and not named:
        raise ValueError(
            "save_adapter needs a base model that the adapter can name; a new model and an adapter folder are none. "
            "Leave --save-adapter out: the result is then a whole model."
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adapted: Any = with_adapters(_without_weights(architecture, trust_remote_code=trust_remote_code), config)
    adapted.get_base_model().is_quantized = _quantized(config, architecture)
    if not config.save_adapter:
        check_mergeable(adapted)
    return sum(4 * int(parameter.numel()) for parameter in adapted.parameters() if parameter.requires_grad)


def check_mergeable(adapted: Any) -> None:
    """Refuse adapters that cannot be added to the weights.

    Raises:
        ValueError: naming the reason, and the option to save the adapter.
    """
    if reason := unmergeable(adapted):
        raise ValueError(f"these adapters cannot be merged: {reason}. Pass --save-adapter (save_adapter=True).")


def _quantized(config: TokenTrainingConfig, architecture: Any) -> bool:
    return config.quantize is not None or getattr(architecture, "quantization_config", None) is not None


def _without_weights(architecture: Any, *, trust_remote_code: bool) -> nn.Module:
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model: nn.Module = AutoModelForCausalLM.from_config(architecture, trust_remote_code=trust_remote_code)
    return model
