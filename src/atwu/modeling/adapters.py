"""Low-rank adapters (LoRA, Hu et al. 2022): select the weights that get some, attach, disable and merge them.

An adapted model still contains the original model: with adapters disabled, its outputs are bitwise those of the original. Two
kinds of weights can be adapted: linear layers, and the experts of a mixture, which transformers stores as one three-dimensional
parameter. peft adds an adapter to the output of a linear layer (`target_modules`), or to a parameter before it is used
(`target_parameters`). The second works for any weight, but does not support dropout.

peft's own choice (`target_modules="all-linear"`, 0.21) is the same for dense models only: in mixtures it adapts routers and
leaves out the experts of some, it trains shared layers of Zamba once per use, and it rejects Mamba.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from atwu._extras import require
from atwu._names import did_you_mean
from atwu.modeling.layers import adapters_by_weight, block_list, eval_mode, text_lists, unwrap, without_wrappers
from atwu.modeling.named_models import stable_name

if TYPE_CHECKING:
    from peft import PeftModel

OPT_IN = frozenset({"gate", "router", "shared_expert_gate", "indexer", "encoder_attn", "cross_attn", "crossattention"})
"""Modules that are adapted only if named explicitly: routers of experts or attention (adapters would train the routing), and
cross-attention to an encoder, which causal models do not use."""


@dataclass(frozen=True, slots=True)
class Lora:
    """Settings of LoRA: train `W x + (alpha / r) B A dropout(x)` for every selected linear layer or expert `W`."""

    r: int
    """Rank of the update; larger ranks are more expressive and need more memory."""
    alpha: float | None = None
    """Numerator of the scale; default `2 r`."""
    targets: tuple[str, ...] | None = None
    """Suffixes of names of linear layers or experts, such as `q_proj`; None for all of the decoder except routers."""
    dropout: float = 0.0
    layers: tuple[int, ...] | None = None
    """Restrict to these decoder layers, counted from 0."""

    def __post_init__(self) -> None:
        if self.r < 1:
            raise ValueError(f"the LoRA rank r must be a whole number >= 1, got {self.r!r}.")
        if self.alpha is None:
            object.__setattr__(self, "alpha", 2.0 * self.r)  # the dataclass is frozen
        elif not 0 < self.alpha < math.inf:
            raise ValueError(f"the LoRA alpha must be a finite number > 0, got {self.alpha}.")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"the LoRA dropout must be at least 0 and below 1, got {self.dropout}.")
        if self.targets == () or self.layers == ():
            raise ValueError("LoRA targets and layers must be None or not empty.")


def attach(model: nn.Module, lora: Lora, *, seed: int, revision: str | None = None) -> PeftModel:
    """Attach new adapters to a model; its own weights are frozen, and its output and mode do not change.

    Args:
        model: a causal language model, quantized or not; changed in place.
        revision: revision of the model, saved with the adapters.
    """
    peft = require("peft", extra="lora")
    if adapters_of(model) is not None:
        raise ValueError("the model has adapters already; merge them before attaching others.")
    base: Any = unwrap(model)
    was_training = base.training
    weights = select_weights(base, lora.targets, lora.layers)
    modules, parameters = peft_targets(base, weights, dropout=lora.dropout)
    config = peft.LoraConfig(
        r=lora.r,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=modules,
        target_parameters=parameters or None,
        revision=revision,
        task_type="CAUSAL_LM",
    )
    with quiet_peft(), torch.random.fork_rng(devices=[]):
        # New layers are initialized on the CPU for any device of the model.
        torch.default_generator.manual_seed(seed)
        adapted: PeftModel = peft.get_peft_model(base, config)
    check_adapted(adapted, weights)
    # peft records the path as given: relative, or in the cache, it would not be found again.
    recorded = Path(str(config.base_model_name_or_path or ""))
    if recorded != Path() and recorded.is_dir():
        config.base_model_name_or_path = stable_name(recorded.resolve())
    adapted.train(was_training)
    return adapted


def adapters_of(model: nn.Module) -> PeftModel | None:
    """Return the adapted model inside DDP, compile and other wrappers, or None without adapters."""
    peft: Any = sys.modules.get("peft")
    inner = unwrap(model)
    # If peft is not imported, the model cannot be one of its models; importing it takes seconds.
    if peft is None or not isinstance(inner, peft.PeftModel):
        return None
    adapted: PeftModel = inner
    return adapted


@contextlib.contextmanager
def original_model(model: nn.Module) -> Iterator[nn.Module]:
    """Turn an adapted model into its original model within a context: adapters disabled, evaluation mode.

    On exit, gradients, `requires_grad` and the train/eval mode of every module are unchanged.
    """
    adapted = adapters_of(model)
    assert adapted is not None
    # peft's own switch also changes requires_grad of adapters; sharded ones would stay frozen.
    enabled: list[Any] = [module for module in adapted.modules() if getattr(module, "disable_adapters", None) is False]
    try:
        for module in enabled:
            module._disable_adapters = True
        with eval_mode(model):
            yield model
    finally:
        for module in enabled:
            module._disable_adapters = False


def merge_adapters(model: nn.Module) -> Any:
    """Merge the adapters into the weights and return the plain transformers model, fully trainable.

    The given model cannot be used afterwards. Half-precision weights round the update to their own precision.
    """
    adapted = adapters_of(model)
    if adapted is None:
        raise ValueError(f"{type(unwrap(model)).__name__} has no adapters to merge.")
    reason = unmergeable(adapted)
    if reason:
        raise ValueError(f"the adapters cannot be merged: {reason}. Save the adapter and load it with its base model.")
    was_training = adapted.training
    with quiet_peft():
        plain: Any = adapted.merge_and_unload()  # in place: `safe_merge` would need twice the memory
    if not all(bool(torch.isfinite(parameter).all()) for parameter in plain.parameters()):
        raise ValueError("the adapters cannot be merged: merged weights are NaN or infinite.")
    # The weights differ from those of that name; an adapter trained on them must not refer to it.
    plain.name_or_path = plain.config._name_or_path = ""
    # peft leaves the base model frozen, as it was below the adapters.
    return plain.requires_grad_(True).train(was_training)


def unmergeable(adapted: PeftModel) -> str | None:
    """Return why merging the adapters would change the outputs of the model, or None if it would not."""
    base: Any = adapted.get_base_model()
    if getattr(base, "is_quantized", False):
        return "the base model is quantized, so its weights cannot represent the sum"
    ends = [base.get_input_embeddings(), base.get_output_embeddings()]
    weights = [getattr(end, "weight", None) for end in ends]
    adapted_ends = any(hasattr(end, "base_layer") for end in ends)
    if adapted_ends and weights[0] is not None and weights[0] is weights[1]:
        return "the output layer shares its weights with the embeddings, but only one of them is adapted"
    return None


@contextlib.contextmanager
def quiet_peft() -> Iterator[None]:
    """Hide peft's warnings about deprecated transformers names, and about base models named by a GGUF file."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
        warnings.filterwarnings("ignore", "Could not find a config file", UserWarning)
        yield


def equals_base(model: nn.Module) -> bool:
    """Return whether the model equals its base: it has no adapters, or only untrained ones."""
    adapted = adapters_of(model)
    if adapted is None:
        return True
    # B starts at 0 (Hu et al. 2022), so that the product B A is 0 until the first step.
    return not any(bool(weight.detach().any()) for name, weight in adapted.named_parameters() if "lora_B" in name)


# Which weights get adapters


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
        # The name of stacked experts contains that of their parameter (`adaptable_weights`).
        if self.name.endswith(f".{self.parameter}"):
            return self.name
        return f"{self.name}.{self.parameter}"

    @property
    def opt_in(self) -> bool:
        """Whether it is adapted only if named explicitly."""
        return not OPT_IN.isdisjoint(self.name.split("."))

    def is_named(self, target: str) -> bool:
        """Whether its name ends in a target; one of the opt-in modules must be in the target itself."""
        if self.opt_in and OPT_IN.isdisjoint(target.split(".")):
            return False
        return f".{self.name}".endswith(f".{target}")


def adaptable_weights(model: nn.Module) -> list[Weight]:
    """Return all linear layers and stacked experts of a model."""
    weights = []
    for name, module in model.named_modules():
        if _is_linear(module):
            weights.append(Weight(name, module, "weight"))
            continue
        for parameter, weight in module.named_parameters(recurse=False):
            # Experts have no class in common; the name, or that of the class, says what they are.
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
        groups = {target: [weight for weight in every if weight.is_named(target)] for target in targets}
    have = sorted({weight.name.rpartition(".")[2] for weight in every})
    count = len(block_list(model) or ())
    # One target after the other, so that an error names the one that matches nothing.
    for target, weights in groups.items():
        if not weights:
            hint = did_you_mean(target, have, shown=str)
            raise ValueError(f"no linear layer is named {target!r}; this model has {', '.join(have)}.{hint}")
        if layers is not None:
            if max(layers) >= count:
                raise ValueError(f"LoRA layers must be between 0 and {count - 1} for this model, got {layers}.")
            starts = tuple(f"{prefixes[0]}{index}." for index in layers)
            groups[target] = [weight for weight in weights if weight.name.startswith(starts)]
            if not groups[target]:
                raise ValueError(f"{target!r} occurs in none of the LoRA layers {layers}; remove one of them.")
    selected = {weight.name for weights in groups.values() for weight in weights}
    for name in sorted(selected & ineffective.keys()):
        raise ValueError(
            f"an adapter on {name} would have no effect: {ineffective[name]}. Remove it from lora_targets."
        )
    return [weight for weight in every if weight.name in selected]


def peft_targets(model: nn.Module, weights: Sequence[Weight], *, dropout: float) -> tuple[list[str], list[str]]:
    """Return the `target_modules` and `target_parameters` with which peft adapts exactly these weights."""
    modules: list[str] = []
    parameters: list[Weight] = []
    for weight in weights:
        leaf = weight.name.rpartition(".")[2]
        # As a module, which allows dropout, where the layer is known to compute its matrix product only: peft adds the
        # adapter's output to that of the layer.
        owner: Any = type(weight.owner)
        multiplies_only = _is_linear(weight.owner)
        if isinstance(weight.owner, nn.Linear):
            multiplies_only = owner.forward is nn.Linear.forward or owner.__module__.startswith("bitsandbytes")
        if multiplies_only and not _peft_rewrites(model, leaf):
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
    """Check that peft adapted exactly the selected weights, and will read their adapters from a file."""
    import peft
    from peft.utils.transformers_weight_conversion import convert_peft_adapter_state_dict_for_transformers

    expected, actual = {weight.parameter_name for weight in weights}, set(adapters_by_weight(adapted.get_base_model()))
    # On loading, peft mistakes some adapters for those of another version of the model, and drops them.
    saved = peft.get_peft_model_state_dict(adapted, save_embedding_layers=False)
    loaded = convert_peft_adapter_state_dict_for_transformers(adapted, adapted.peft_config["default"], dict(saved))
    lost = {without_wrappers(name.partition(".lora_")[0]) for name in saved.keys() - loaded.keys()}
    differences = (
        ("does not adapt", expected - actual),
        ("also adapts", actual - expected),
        ("cannot load again, once saved, the adapters", {name.removeprefix("base_model.model.") for name in lost}),
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
    blocks, decoder = block_list(model), model
    if blocks is not None:
        lists: set[nn.Module] = {blocks}
    else:
        getter = getattr(model, "get_decoder", None)
        if getter is not None:
            decoder = getter()
        lists = set(decoder.modules())
    return tuple(f"{name}." for name, module in text_lists(model).items() if module in lists)


def _is_linear(module: nn.Module) -> bool:
    # The linear layers of GPT-2, which keep their weights transposed.
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
            continue
        above, _, leaf = weight.name.rpartition(".")
        parent = model.get_submodule(above)
        if weight.stacked or not hasattr(parent, "A_log"):
            continue
        # A state space layer (Mamba etc.) passes the weights of some layers to its kernel, bypassing any adapter. Only its
        # source says which.
        reads = rf"self\.{leaf}\.weight\b(?!\.(dtype|device|shape))"
        if re.search(reads, inspect.getsource(type(parent))):
            ineffective[weight.name] = "the model uses its weight without calling the layer"
    return ineffective


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
