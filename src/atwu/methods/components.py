"""Tables of components by name; `atwu.methods.method_registry` adds to them. Importing this module does not import torch."""

from __future__ import annotations

from atwu.methods.component import ForgetLoss, PreserveLoss, RetainLoss, TermWeights, Weighting
from atwu.methods.component_options import ComponentOption, options_of_component
from atwu.methods.losses import divergence, likelihood, preference, preserve, representation
from atwu.methods.weightings import learned
from atwu.methods.weightings import model_based as live
from atwu.methods.weightings import precomputed as fixed

WEIGHTINGS: dict[str, type[Weighting]] = {
    "uniform": live.Uniform,
    "saturation": live.Saturation,
    "importance": live.Importance,
    "satimp": live.SatImp,
    "entropy": live.Entropy,
    "logprob_mask": fixed.LogprobMask,
    "model_difference": fixed.ModelDifference,
    "ngram_difference": fixed.NgramDifference,
    "nouns": fixed.Nouns,
    "rarity": fixed.Rarity,
    "word_rarity": fixed.WordRarity,
    "rare_nouns": fixed.RareNouns,
    "key_words": fixed.KeyWords,
    "labels": fixed.Labels,
    "scorer": learned.LearnedScores,
}

FORGET_LOSSES: dict[str, type[ForgetLoss]] = {
    "ga": likelihood.GradientAscent,
    "masked_ga": likelihood.MaskedGradientAscent,
    "satga": likelihood.SatGA,
    "satga_plus": likelihood.SatGAPlus,
    "refusal": likelihood.LearnAlternate,
    "npo": preference.NPO,
    "dpo": preference.DPO,
    "simnpo": preference.SimNPO,
    "js_refusal": divergence.JSToRefusal,
    "self_distillation": divergence.SelfDistillation,
    "masked_self_distillation": divergence.MaskedSelfDistillation,
    "weighted_self_distillation": divergence.WeightedSelfDistillation,
    "steering": representation.Steering,
}

RETAIN_LOSSES: dict[str, type[RetainLoss] | None] = {
    "nll": likelihood.NLL,
    "kl": divergence.KL,
    "js": divergence.JS,
    "activation": representation.Activation,
    "none": None,
}

PRESERVE_LOSSES: dict[str, type[PreserveLoss] | None] = {
    "kl": preserve.PreserveKL,
    "nll": preserve.PreserveNLL,
    "none": None,
}


def component_options() -> dict[str, ComponentOption]:
    """Return all options of all components by name; if several components share a name, the first one defines it."""
    others = filter(None, (*RETAIN_LOSSES.values(), *PRESERVE_LOSSES.values()))
    components = (TermWeights, *WEIGHTINGS.values(), *FORGET_LOSSES.values(), *others)
    options: dict[str, ComponentOption] = {}
    for component in components:
        for option in options_of_component(component):
            options.setdefault(option.name, option)
    return options
