"""Tables of components by name, and the functions that add to them. Importing this module does not import torch.

Instead of a class, a plain function can be a weighting or a forget loss, as in `UnlearnConfig(weighting=my_function)`. Its
arguments are passed by name: `logps`, `mask` (both shapes (batch, tokens)) for a weighting; `logps`, `mask`, `weights` and
`ref_logps` for a forget loss. Keyword-only arguments whose default is a number become hyperparameters.

An installed package adds its own by an entry point in the group `atwu.methods`: a function without arguments that calls the
`register_` functions.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from atwu._extras import load_entry_points
from atwu._names import Registry
from atwu.methods.component import (
    Component,
    ComponentOption,
    ForgetLoss,
    PreserveLoss,
    RetainLoss,
    TermWeights,
    Weighting,
    number,
    options_of_component,
)
from atwu.methods.losses import distillation, divergence, first_token, likelihood, preference, representation
from atwu.methods.weightings import model_based, precomputed

ComponentKind = Literal["weighting", "forget loss"]
"""Kinds of component that may be plain functions."""

WEIGHTINGS = Registry[type[Weighting]](
    "weighting",
    {
        "uniform": model_based.Uniform,
        "saturation": model_based.Saturation,
        "importance": model_based.Importance,
        "satimp": model_based.SatImp,
        "entropy": model_based.Entropy,
        "logprob_mask": precomputed.LogprobMask,
        "model_difference": precomputed.ModelDifference,
        "ngram_difference": precomputed.NgramDifference,
        "nouns": precomputed.Nouns,
        "contrast": precomputed.Contrast,
        "rarity": precomputed.Rarity,
        "word_rarity": precomputed.WordRarity,
        "rare_nouns": precomputed.RareNouns,
        "key_tokens": precomputed.KeyTokenWeights,
        "labels": precomputed.Labels,
        "scorer": model_based.LearnedScores,
    },
)

FORGET_LOSSES = Registry[type[ForgetLoss]](
    "forget loss",
    {
        "ga": likelihood.GradientAscent,
        "masked_ga": likelihood.MaskedGradientAscent,
        "satga": likelihood.SatGA,
        "satga_plus": likelihood.SatGAPlus,
        "refusal": likelihood.LearnAlternate,
        "vague_answer": likelihood.LearnVagueAnswer,
        "npo": preference.NPO,
        "dpo": preference.DPO,
        "altpo": preference.AltPO,
        "simnpo": preference.SimNPO,
        "js_refusal": divergence.JSToRefusal,
        "self_distillation": divergence.SelfDistillation,
        "masked_self_distillation": divergence.MaskedSelfDistillation,
        "weighted_self_distillation": divergence.WeightedSelfDistillation,
        "steering": representation.Steering,
        "redirection": representation.Redirection,
        "ceu": divergence.CrossEntropyUnlearning,
        "max_entropy": divergence.MaxEntropy,
        "bootstrapping": likelihood.TokenBootstrapping,
        "sequence_bootstrapping": likelihood.SequenceBootstrapping,
        "js_refusal_row": first_token.JSToRefusalRow,
        "flat": preference.FLAT,
        "prompted_teacher": distillation.PromptedTeacher,
        "smoothed_attention": distillation.SmoothedAttention,
        "novice_teacher": distillation.NoviceTeacher,
        "logit_margin": divergence.LogitMargin,
    },
)

RETAIN_LOSSES = Registry[type[RetainLoss] | None](
    "retain loss",
    {
        "nll": likelihood.NLL,
        "kl": divergence.KL,
        "kl_rows": divergence.RowMeanKL,
        "kl_first": first_token.FirstTokenKL,
        "kl_nll": divergence.KLAndNLL,
        "js": divergence.JS,
        "activation": representation.Activation,
        "js_first": first_token.FirstTokenJS,
        "ap": preference.AnswerPreservation,
        "limited_nll": likelihood.LimitedNLL,
        "top_logits": distillation.TopLogits,
        "none": None,
    },
)

PRESERVE_LOSSES = Registry[type[PreserveLoss] | None](
    "preserve loss",
    {
        "kl": divergence.PreserveKL,
        "nll": likelihood.PreserveNLL,
        "none": None,
    },
)

REPLACEMENT_LOSSES = Registry[type[first_token.ReplacementLoss] | None](
    "replacement loss",
    {
        "refusal": first_token.LearnRefusal,
        "alternative": first_token.LearnAlternative,
        "none": None,
    },
)

_PLAIN: dict[ComponentKind, tuple[Registry[Any], type[Component], str, tuple[str, ...]]] = {
    "weighting": (WEIGHTINGS, Weighting, "weights", ("logps", "mask")),
    "forget loss": (FORGET_LOSSES, ForgetLoss, "values", ("logps", "mask", "weights", "ref_logps")),
}
"""Kind -> its table, base class, method that a plain function replaces, and arguments that the function may take."""


def component_options() -> dict[str, ComponentOption]:
    """Return all options of all components by name.

    If several components share a name, the first one defines it, without a default or a help in which they differ.
    """
    others = filter(None, (*RETAIN_LOSSES.values(), *PRESERVE_LOSSES.values(), *REPLACEMENT_LOSSES.values()))
    components = (TermWeights, *WEIGHTINGS.values(), *FORGET_LOSSES.values(), *others)
    options: dict[str, ComponentOption] = {}
    # A name is one flag and one key of YAML, whichever component has it, so that it has one help and one default.
    for component in components:
        for option in options_of_component(component):
            known = options.setdefault(option.name, option)
            if option.default != known.default:
                known = replace(known, default=None)
            if option.help != known.help:
                known = replace(known, help="value in the formula of the component, see `atwu methods NAME`")
            options[option.name] = known
    return options


# Registration


def register_weighting(name: str, weighting: type[Weighting] | Callable[..., Any]) -> None:
    """Add a token weighting: a subclass of `Weighting`, or a plain function.

    Raises:
        ValueError: the name is taken or invalid, or an option has another type in another component.
    """
    _add(WEIGHTINGS, name, weighting, Weighting)


def register_forget_loss(name: str, loss: type[ForgetLoss] | Callable[..., Any]) -> None:
    """Add a forget loss: a subclass of `ForgetLoss`, or a plain function."""
    _add(FORGET_LOSSES, name, loss, ForgetLoss)


def register_retain_loss(name: str, loss: type[RetainLoss]) -> None:
    """Add a retain loss."""
    _add(RETAIN_LOSSES, name, loss, RetainLoss)


def _add(table: Registry[Any], name: str, component: Any, base: type[Component]) -> None:
    kind: Any = table.kind
    if kind in _PLAIN and inspect.isroutine(component):
        component = _from_function(kind, component)
    if not (isinstance(component, type) and issubclass(component, base)):
        raise ValueError(f"a {kind} must be a subclass of atwu.{base.__name__}, got {component!r}.")
    # Flags, YAML keys and search spaces are by name alone, so that a name must mean one type of value.
    known = component_options()
    for option in options_of_component(component):
        other = known.get(option.name)
        if other is not None and (other.kind, other.number) != (option.kind, option.number):
            raise ValueError(
                f"{kind} {name!r}: option {option.name!r} is a {other.kind.__name__} in another component; rename it."
            )
    table.add(name, component)


_plugins_loaded = False


def load_plugins() -> None:
    """Call the entry points of installed packages, once; log a warning for each that fails."""
    global _plugins_loaded
    if _plugins_loaded:
        return
    _plugins_loaded = True  # set before the calls: registering a method calls load_plugins again
    load_entry_points("atwu.methods", lambda register: register())


# Plain functions


def named_component(kind: ComponentKind, component: str | Callable[..., Any]) -> str:
    """Return the name of a component; a plain function is added to its table first."""
    if isinstance(component, str):
        return component
    name = _function_name(component)
    _PLAIN[kind][0][name] = _from_function(kind, component)
    return name


def _function_name(function: Callable[..., Any]) -> str:
    """Return the qualified name and a hash of source and defaults, by which run records identify a function.

    Raises:
        ValueError: source and defaults do not determine the function, or its source cannot be read.
    """
    if not inspect.isfunction(function) or function.__closure__ or function.__name__ == "<lambda>":
        raise ValueError(
            f"{function!r} is not a plain function; define it with def at the top level of a file and pass its numbers "
            "as keyword-only arguments."
        )
    try:
        source = inspect.getsource(function)
    except OSError as error:
        raise ValueError(
            f"the source of {function!r} cannot be read ({error}); define it with def in a file."
        ) from None
    # The source alone would not tell apart functions of one name whose defaults are computed.
    digest = hashlib.sha256(f"{source}{function.__kwdefaults__}".encode()).hexdigest()[:12]
    return f"{function.__module__}.{function.__qualname__}#{digest}"


def _from_function(kind: ComponentKind, function: Callable[..., Any]) -> Any:
    """Return a component class that calls a function; a forget loss is averaged over tokens."""
    _, base, method, allowed = _PLAIN[kind]
    inputs, numbers = _arguments(function, allowed)

    def compute(self: Any, context: Any, weights: Any = None) -> Any:
        arguments = {name: getattr(context, name) for name in inputs if name != "weights"}
        if "weights" in inputs:
            arguments["weights"] = weights
        values = function(**arguments, **{name: getattr(self, name) for name in numbers})
        shape = getattr(values, "shape", None)
        if shape != context.logps.shape:
            what = type(values).__name__
            if shape is not None:
                what = f"a tensor of shape {tuple(shape)}"
            raise ValueError(
                f"{kind} {function.__name__} returned {what}; expected one value per token, a tensor of the shape of logps, "
                f"{tuple(context.logps.shape)}."
            )
        return values

    # A class is made by hand, since `Component` turns annotations into the fields of a dataclass.
    body = {
        name: number(default, help=f"hyperparameter of {function.__name__}") for name, default in numbers.items()
    } | {
        "__annotations__": dict.fromkeys(numbers, "float"),
        "__module__": function.__module__,
        "formula": (inspect.getdoc(function) or function.__name__).splitlines()[0],
        "original": ("logps",) if "ref_logps" in inputs else (),
        method: compute,
    }
    return type(function.__name__, (base,), body)


def _arguments(function: Callable[..., Any], allowed: tuple[str, ...]) -> tuple[list[str], dict[str, float]]:
    inputs, numbers = [], {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY and isinstance(parameter.default, int | float):
            numbers[name] = float(parameter.default)
        elif name in allowed:
            inputs.append(name)
        else:
            raise ValueError(
                f"{function.__name__} takes {name!r}; allowed arguments are {', '.join(allowed)}, and keyword-only numbers "
                "with a default, which become hyperparameters."
            )
    return inputs, numbers
