"""Tables of components by name, and the functions that add to them. Importing this module does not import torch.

An installed package adds its own by an entry point in the group `atwu.methods`: a function without arguments that calls the
`register_` functions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

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
    options_of_component,
)
from atwu.methods.losses import distillation, divergence, likelihood, preference, representation
from atwu.methods.weightings import model_based, precomputed

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
        "js_refusal_row": divergence.JSToRefusalRow,
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
        "kl_first": divergence.FirstTokenKL,
        "kl_nll": divergence.KLAndNLL,
        "js": divergence.JS,
        "activation": representation.Activation,
        "js_first": divergence.FirstTokenJS,
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

REPLACEMENT_LOSSES = Registry[type[likelihood.ReplacementLoss] | None](
    "replacement loss",
    {
        "refusal": likelihood.LearnRefusal,
        "alternative": likelihood.LearnAlternative,
        "none": None,
    },
)


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


def register_weighting(name: str, weighting: type[Weighting]) -> None:
    """Add a token weighting.

    Raises:
        ValueError: the name is taken or invalid, or an option has another type in another component.
    """
    _add(WEIGHTINGS, name, weighting, Weighting)


def register_forget_loss(name: str, loss: type[ForgetLoss]) -> None:
    """Add a forget loss."""
    _add(FORGET_LOSSES, name, loss, ForgetLoss)


def register_retain_loss(name: str, loss: type[RetainLoss]) -> None:
    """Add a retain loss."""
    _add(RETAIN_LOSSES, name, loss, RetainLoss)


def _add(table: Registry[Any], name: str, component: Any, base: type[Component]) -> None:
    kind = table.kind
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
