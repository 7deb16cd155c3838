"""Which weights low-rank adapters are put on, and whether they are there.

Two kinds of weight can have one: linear layers, and the experts of a mixture, which transformers keep as one parameter of three
dimensions. peft puts an adapter beside a linear layer, or into a parameter (`target_parameters`) just before it is used; the
second is right for any weight, but takes no dropout.
"""

from __future__ import annotations

import contextlib
import inspect
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from atwu._names import did_you_mean
from atwu.modeling.layers import adapters_by_weight, block_list, text_lists, without_wrappers

OPT_IN = frozenset({"gate", "router", "shared_expert_gate", "indexer", "encoder_attn", "cross_attn", "crossattention"})
"""Parts that have adapters only where they are named: those that choose experts for a token, or tokens to look at (adapters
would train the choice, if anything), and those that look at an encoder, which a causal model does not have."""


@dataclass(frozen=True, slots=True)
class Weight:
    """A weight that could have an adapter."""

    name: str
    """Of the linear layer, or of the parameter that holds the experts."""
    owner: nn.Module
    parameter: str
    """Its name in the owner."""

    @property
    def stacked(self) -> bool:
        """Whether it holds the experts of a mixture."""
        return not _is_linear(self.owner)

    @property
    def parameter_name(self) -> str:
        """Name of the parameter in the model."""
        return self.name if self.name.endswith(f".{self.parameter}") else f"{self.name}.{self.parameter}"

    @property
    def opt_in(self) -> bool:
        """Whether it is adapted only where it is named."""
        return not OPT_IN.isdisjoint(self.name.split("."))


def adaptable_weights(model: nn.Module) -> list[Weight]:
    """All linear layers and stacks of experts of a model."""
    found = []
    for name, module in model.named_modules():
        if _is_linear(module):
            found.append(Weight(name, module, "weight"))
            continue
        for parameter, weight in module.named_parameters(recurse=False):
            if weight.ndim >= 2 and _holds_experts(f"{name}.{parameter}", module):
                found.append(Weight(name if parameter == "weight" else f"{name}.{parameter}", module, parameter))
    return found


def select_weights(model: nn.Module, targets: Sequence[str] | None, layers: Sequence[int] | None) -> list[Weight]:
    """The weights to adapt.

    Args:
        model: without adapters.
        targets: ends of names; None for every linear layer and all experts of the decoder, routers aside.
        layers: only these decoder layers.

    Raises:
        ValueError: a target or layer that the model does not have, or a weight on which an adapter would not count.
    """
    every = adaptable_weights(model)
    trouble = _trouble(model, every)
    blocks = block_list(model)
    prefixes = _starts(model)
    if targets is None:
        inside = [each for each in every if each.name.startswith(prefixes)]
        groups = {"any linear layer": [each for each in inside if not each.opt_in and each.name not in trouble]}
        if not groups["any linear layer"]:
            raise ValueError(f"no linear layers of a decoder found in {type(model).__name__}; name targets.")
    else:
        groups = {f"{target!r}": _called(target, every) for target in targets}
    for target, weights in groups.items():
        if not weights:
            have = sorted({each.name.rpartition(".")[2] for each in every})
            hint = did_you_mean(target.strip("'"), have, shown=str)
            raise ValueError(f"no linear layer is called {target}; this model has {', '.join(have)}.{hint}")
    if layers is not None:
        count = 0 if blocks is None else len(blocks)
        if max(layers) >= count:
            raise ValueError(f"LoRA layers {layers} go past the model's decoder layers 0 to {count - 1}.")
        kept = tuple(f"{prefixes[0]}{index}." for index in layers)
        for target, weights in groups.items():
            groups[target] = [each for each in weights if each.name.startswith(kept)]
            if not groups[target]:
                raise ValueError(f"{target} is in none of the LoRA layers {layers}; leave it or layers out.")
    wanted = {each.name for weights in groups.values() for each in weights}
    for name in sorted(wanted & trouble.keys()):
        raise ValueError(f"an adapter on {name} would not count: {trouble[name]}. Leave it out of lora_targets.")
    return [each for each in every if each.name in wanted]


def peft_targets(model: nn.Module, weights: Sequence[Weight], *, dropout: float) -> tuple[list[str], list[str]]:
    """The `target_modules` and `target_parameters` that make peft adapt exactly these weights.

    Raises:
        ValueError: weights that peft cannot adapt.
    """
    rewritten = {leaf for leaf in {each.name.rpartition(".")[2] for each in weights} if _peft_rewrites(model, leaf)}
    modules: list[Weight] = []
    parameters: list[Weight] = []
    for each in weights:
        plain = not each.stacked and each.name.rpartition(".")[2] not in rewritten and _multiplies_only(each.owner)
        (modules if plain else parameters).append(each)
    flat = [each for each in parameters if not each.owner.get_parameter(each.parameter).is_floating_point()]
    if flat:
        raise ValueError(
            f"peft cannot adapt {weight_kinds(flat)} when they are quantized; name other layers with lora_targets."
        )
    if odd := [each for each in parameters if each.stacked and each.owner.get_parameter(each.parameter).ndim != 3]:
        raise ValueError(
            f"peft cannot adapt the experts {weight_kinds(odd)} of {type(model).__name__}: they are not one matrix each. "
            "Name other layers with lora_targets."
        )
    if parameters and dropout:
        raise ValueError(
            f"lora_dropout cannot be had on {weight_kinds(parameters)}, which peft adapts as parameters; set it to 0, or name "
            "other layers with lora_targets."
        )
    return [each.name for each in modules], [each.parameter_name for each in parameters]


def check_adapted(adapted: Any, weights: Sequence[Weight]) -> None:
    """Compare what was to be adapted with what was.

    Raises:
        ValueError: naming the difference.
    """
    wanted, have = {each.parameter_name for each in weights}, set(adapters_by_weight(adapted.get_base_model()))
    differences = (
        ("does not adapt", wanted - have),
        ("also adapts", have - wanted),
        ("would not find again, once saved, the adapters", _lost(adapted)),
    )
    for what, names in differences:
        if names:
            raise ValueError(
                f"peft {what} {_short(names)} of {type(adapted.get_base_model()).__name__}; name other layers with "
                "lora_targets."
            )


def not_adapted(adapted: Any) -> str:
    """Kinds of linear layers and experts of the decoder without an adapter, for people; empty where all have one."""
    base = adapted.get_base_model()
    have, inside = set(adapters_by_weight(base)), _starts(base)
    left = [each for each in adaptable_weights(base) if each.name.startswith(inside) and ".lora_" not in each.name]
    return weight_kinds([each for each in left if without_wrappers(each.parameter_name) not in have])


def weight_kinds(weights: Sequence[Weight]) -> str:
    """Names without the number of the layer."""
    return _short(without_wrappers(each.name) for each in weights)


def _short(names: Any) -> str:
    return ", ".join(sorted({re.sub(r"^.*?\.\d+\.", "", name).removesuffix(".weight") for name in names}))


def _called(target: str, every: Sequence[Weight]) -> list[Weight]:
    found = [each for each in every if f".{each.name}".endswith(f".{target}")]
    return found if not OPT_IN.isdisjoint(target.split(".")) else [each for each in found if not each.opt_in]


def _starts(model: nn.Module) -> tuple[str, ...]:
    """How the names of what is in the decoder layers begin; where no list is that of the layers, in any list."""
    blocks, getter = block_list(model), getattr(model, "get_decoder", None)
    decoder: nn.Module = getter() if getter is not None else model
    wanted = set(decoder.modules()) if blocks is None else {blocks}
    return tuple(f"{name}." for name, part in text_lists(model).items() if part in wanted)


def _is_linear(module: nn.Module) -> bool:
    from transformers.pytorch_utils import Conv1D

    return isinstance(module, (nn.Linear, Conv1D))


def _holds_experts(name: str, owner: nn.Module) -> bool:
    parts = f"{name} {type(owner).__name__}".lower()
    return "expert" in parts and "router" not in parts and "bias" not in name


def _trouble(model: nn.Module, every: Sequence[Weight]) -> dict[str, str]:
    """Weights on which an adapter would not count, and why."""
    peft_targets = Counter(
        id(weight)
        for module in model.modules()
        if not isinstance(module, nn.Embedding)
        for weight in module.parameters(recurse=False)
    )
    uses = Counter(id(part) for _, part in model.named_modules(remove_duplicate=False))
    found = {}
    for each in every:
        if peft_targets[id(getattr(each.owner, each.parameter))] > 1 or uses[id(each.owner)] > 1:
            found[each.name] = "other layers share its weight"
        elif _read_past(model, each):
            found[each.name] = "the model reads its weight past the layer"
    return found


def _read_past(model: nn.Module, weight: Weight) -> bool:
    """Whether a state space layer hands the weight itself to its kernel (Mamba, and its kin), so that no adapter is seen."""
    above, _, leaf = weight.name.rpartition(".")
    parent = model.get_submodule(above)
    if weight.stacked or not hasattr(parent, "A_log"):
        return False
    return re.search(rf"self\.{leaf}\.weight\b(?!\.(dtype|device|shape))", inspect.getsource(type(parent))) is not None


def _multiplies_only(module: nn.Module) -> bool:
    """Whether a linear layer gives its matrix product and nothing else, to which peft can add an adapter's."""
    if type(module).forward is nn.Linear.forward or not isinstance(module, nn.Linear):
        return True
    if type(module).__module__.startswith("bitsandbytes"):
        return True
    weights = {name: weight.to("meta") for name, weight in module.named_parameters(recurse=False)}
    with contextlib.suppress(Exception):
        given = torch.empty(2, module.in_features, device="meta", dtype=module.weight.dtype)
        out = torch.func.functional_call(module, weights, given)
        return isinstance(out, torch.Tensor) and out.shape == (2, module.out_features)
    return False


def _lost(adapted: Any) -> set[str]:
    """Adapters whose names peft takes for those of another version of the model when it loads them."""
    import peft

    try:
        from peft.utils.transformers_weight_conversion import convert_peft_adapter_state_dict_for_transformers
    except ImportError:
        return set()
    saved = peft.get_peft_model_state_dict(adapted, save_embedding_layers=False)
    loaded = convert_peft_adapter_state_dict_for_transformers(adapted, adapted.peft_config["default"], dict(saved))
    lost = (without_wrappers(name.partition(".lora_")[0]) for name in saved.keys() - loaded.keys())
    return {name.removeprefix("base_model.model.") for name in lost}


def _peft_rewrites(model: nn.Module, leaf: str) -> bool:
    """Whether peft takes layers of that name for experts of transformers 4, and would drop them as `target_modules`."""
    import peft

    try:
        from peft.utils.transformers_weight_conversion import convert_peft_config_for_transformers
    except ImportError:
        return False
    config = peft.LoraConfig(target_modules=[leaf])
    try:
        convert_peft_config_for_transformers(config, model, None)
    except ValueError:
        return True
    return leaf not in (config.target_modules or ())
