"""Select the weights that get low-rank adapters, and check the result.

Two kinds of weights can be adapted: linear layers, and the experts of a mixture, which transformers stores as one
three-dimensional parameter. peft adds an adapter to the output of a linear layer (`target_modules`), or to a parameter before
it is used (`target_parameters`). The second works for any weight, but does not support dropout.

peft's own choice (`target_modules="all-linear"`, 0.21) is the same for dense models only: in mixtures it adapts routers and
leaves out the experts of some, it trains shared layers of Zamba once per use, and it rejects Mamba.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from atwu._names import did_you_mean
from atwu.modeling.layers import adapters_by_weight, block_list, text_lists, without_wrappers

OPT_IN = frozenset({"gate", "router", "shared_expert_gate", "indexer", "encoder_attn", "cross_attn", "crossattention"})
"""Modules that are adapted only if named explicitly: routers of experts or attention (adapters would train the routing), and
cross-attention to an encoder, which causal models do not use."""


@dataclass(frozen=True, slots=True)
class Weight:
    name: str
    """Name of the linear layer, or of the parameter with the experts."""
    owner: nn.Module
    parameter: str

    @property
    def stacked(self) -> bool:
        """Whether it contains the experts of a mixture."""
        return not _is_linear(self.owner)

    @property
    def tensor(self) -> Tensor:
        return self.owner.get_parameter(self.parameter)

    @property
    def parameter_name(self) -> str:
        if self.name.endswith(f".{self.parameter}"):
            return self.name
        return f"{self.name}.{self.parameter}"

    @property
    def opt_in(self) -> bool:
        """Whether it is adapted only if named explicitly."""
        return not OPT_IN.isdisjoint(self.name.split("."))


def adaptable_weights(model: nn.Module) -> list[Weight]:
    """Return all linear layers and stacked experts of a model."""
    weights = []
    for name, module in model.named_modules():
        if _is_linear(module):
            weights.append(Weight(name, module, "weight"))
            continue
        for parameter, weight in module.named_parameters(recurse=False):
            called = f"{name}.{parameter} {type(module).__name__}".lower()
            if weight.ndim >= 2 and "expert" in called and "router" not in called and "bias" not in parameter:
                weights.append(Weight(name if parameter == "weight" else f"{name}.{parameter}", module, parameter))
    return weights


def select_weights(model: nn.Module, targets: Sequence[str] | None, layers: Sequence[int] | None) -> list[Weight]:
    """Select the weights to adapt.

    Args:
        targets: suffixes of names; None for all linear layers and experts of the decoder except routers.
    """
    every = adaptable_weights(model)
    ineffective = _ineffective(model, every)
    prefixes = _starts(model)
    if targets is None:
        usual = [weight for weight in every if not weight.opt_in and weight.name not in ineffective]
        groups = {"any linear layer": [weight for weight in usual if weight.name.startswith(prefixes)]}
    else:
        groups = {target: [weight for weight in every if _is_named(weight, target)] for target in targets}
    have = sorted({weight.name.rpartition(".")[2] for weight in every})
    for target, weights in groups.items():
        if not weights:
            hint = did_you_mean(target, have, shown=str)
            raise ValueError(f"no linear layer is named {target!r}; this model has {', '.join(have)}.{hint}")
        if layers is not None:
            starts = _starts_of_layers(model, prefixes[0], layers)
            groups[target] = [weight for weight in weights if weight.name.startswith(starts)]
            if not groups[target]:
                raise ValueError(f"{target!r} occurs in none of the LoRA layers {layers}; remove one of them.")
    selected = {weight.name for weights in groups.values() for weight in weights}
    for name in sorted(selected & ineffective.keys()):
        raise ValueError(
            f"an adapter on {name} would have no effect: {ineffective[name]}. Remove it from lora_targets."
        )
    return [weight for weight in every if weight.name in selected]


def _is_named(weight: Weight, target: str) -> bool:
    if not f".{weight.name}".endswith(f".{target}"):
        return False
    return not weight.opt_in or not OPT_IN.isdisjoint(target.split("."))


def _starts_of_layers(model: nn.Module, prefix: str, layers: Sequence[int]) -> tuple[str, ...]:
    count = len(block_list(model) or ())
    if max(layers) >= count:
        raise ValueError(f"LoRA layers must be between 0 and {count - 1} for this model, got {layers}.")
    return tuple(f"{prefix}{index}." for index in layers)


def peft_targets(model: nn.Module, weights: Sequence[Weight], *, dropout: float) -> tuple[list[str], list[str]]:
    """Return the `target_modules` and `target_parameters` with which peft adapts exactly these weights."""
    modules: list[str] = []
    parameters: list[Weight] = []
    for weight in weights:
        leaf = weight.name.rpartition(".")[2]
        if _multiplies_only(weight.owner) and not _peft_rewrites(model, leaf):
            modules.append(weight.name)
        else:
            parameters.append(weight)
    reasons = (
        ("they are quantized", lambda weight: not weight.tensor.is_floating_point()),
        ("experts must be three-dimensional", lambda weight: weight.stacked and weight.tensor.ndim != 3),
        ("lora_dropout must be 0 for what it adapts as a parameter", lambda _: dropout > 0),
    )
    for reason, applies in reasons:
        refused = [weight for weight in parameters if applies(weight)]
        if refused:
            raise ValueError(
                f"peft cannot adapt {weight_kinds(refused)} of {type(model).__name__}: {reason}. Change that, or choose "
                "other layers with lora_targets."
            )
    return modules, [weight.parameter_name for weight in parameters]


def check_adapted(adapted: Any, weights: Sequence[Weight]) -> None:
    """Check that peft adapted exactly the selected weights."""
    expected, actual = {weight.parameter_name for weight in weights}, set(adapters_by_weight(adapted.get_base_model()))
    differences = (
        ("does not adapt", expected - actual),
        ("also adapts", actual - expected),
        ("cannot load again, once saved, the adapters", _lost(adapted)),
    )
    for what, names in differences:
        if names:
            raise ValueError(
                f"peft {what} {_short(names)} of {type(adapted.get_base_model()).__name__}; choose other layers with "
                "lora_targets."
            )


def not_adapted(adapted: Any) -> str:
    """List the kinds of linear layers and experts of the decoder without adapter, for display; empty if all have one."""
    base = adapted.get_base_model()
    have, inside = set(adapters_by_weight(base)), _starts(base)
    left = [
        weight for weight in adaptable_weights(base) if weight.name.startswith(inside) and ".lora_" not in weight.name
    ]
    return weight_kinds([weight for weight in left if without_wrappers(weight.parameter_name) not in have])


def weight_kinds(weights: Sequence[Weight]) -> str:
    """Return the names without layer numbers."""
    return _short(without_wrappers(weight.name) for weight in weights)


def _short(names: Any) -> str:
    return ", ".join(sorted({re.sub(r"^.*?\.\d+\.", "", name).removesuffix(".weight") for name in names}))


def _starts(model: nn.Module) -> tuple[str, ...]:
    """Return the name prefixes of the decoder layers; of all lists of layers if the decoder list is not identified."""
    blocks, getter = block_list(model), getattr(model, "get_decoder", None)
    decoder: nn.Module = getter() if getter is not None else model
    lists = set(decoder.modules()) if blocks is None else {blocks}
    return tuple(f"{name}." for name, module in text_lists(model).items() if module in lists)


def _is_linear(module: nn.Module) -> bool:
    from transformers.pytorch_utils import Conv1D

    return isinstance(module, (nn.Linear, Conv1D))


def _ineffective(model: nn.Module, every: Sequence[Weight]) -> dict[str, str]:
    holders = Counter(
        id(weight)
        for module in model.modules()
        if not isinstance(module, nn.Embedding)
        for weight in module.parameters(recurse=False)
    )
    uses = Counter(id(module) for _, module in model.named_modules(remove_duplicate=False))
    ineffective = {}
    for weight in every:
        if holders[id(weight.tensor)] > 1 or uses[id(weight.owner)] > 1:
            ineffective[weight.name] = "other layers share its weight"
        elif _read_past(model, weight):
            ineffective[weight.name] = "the model uses its weight without calling the layer"
    return ineffective


def _read_past(model: nn.Module, weight: Weight) -> bool:
    """Return whether a state space layer (Mamba etc.) passes the weight itself to its kernel, bypassing any adapter."""
    above, _, leaf = weight.name.rpartition(".")
    parent = model.get_submodule(above)
    if weight.stacked or not hasattr(parent, "A_log"):
        return False
    return re.search(rf"self\.{leaf}\.weight\b(?!\.(dtype|device|shape))", inspect.getsource(type(parent))) is not None


def _multiplies_only(module: nn.Module) -> bool:
    """Return whether a linear layer is known to compute its matrix product only, so that peft can add the adapter's output."""
    if isinstance(module, nn.Linear):
        return type(module).forward is nn.Linear.forward or type(module).__module__.startswith("bitsandbytes")
    return _is_linear(module)


def _lost(adapted: Any) -> set[str]:
    """Return the adapters that peft, on loading, would mistake for those of another version of the model."""
    import peft
    from peft.utils.transformers_weight_conversion import convert_peft_adapter_state_dict_for_transformers

    saved = peft.get_peft_model_state_dict(adapted, save_embedding_layers=False)
    loaded = convert_peft_adapter_state_dict_for_transformers(adapted, adapted.peft_config["default"], dict(saved))
    lost = (without_wrappers(name.partition(".lora_")[0]) for name in saved.keys() - loaded.keys())
    return {name.removeprefix("base_model.model.") for name in lost}


def _peft_rewrites(model: nn.Module, leaf: str) -> bool:
    """Return whether peft mistakes layers of this name for experts of transformers 4, dropping them from `target_modules`."""
    import peft
    from peft.utils.transformers_weight_conversion import convert_peft_config_for_transformers

    config = peft.LoraConfig(target_modules=[leaf])
    try:
        convert_peft_config_for_transformers(config, model, None)
    except ValueError:
        return True
    return leaf not in (config.target_modules or ())
