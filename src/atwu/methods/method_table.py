"""Table of methods: each combines a token weighting, a forget loss and a retain loss with published values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from atwu.methods.component_options import Range
from atwu.methods.presets import find_preset

Values = Mapping[str, float]
Ranges = Mapping[str, Range]


@dataclass(frozen=True, slots=True)
class Method:
    """A method: its components, source and default hyperparameters."""

    title: str
    weighting: str
    forget_loss: str
    retain_loss: str
    cite: str
    """Key into `atwu.methods.citations.CITATIONS`."""
    defaults: Values = field(default_factory=dict)
    """Default hyperparameters: those of the preset `tofu-1b` (RMU: `tofu-8b`) if there is one."""
    search: Ranges = field(default_factory=dict)
    """Published search ranges that differ from those of the components."""
    values_from: str | None = None
    """For a method without published values: the method whose values it uses, or `CODE` for its own published code."""
    first_trial: Values = field(default_factory=dict)
    """Hyperparameters of the first trial of the published search, if known."""


def _tuned(name: str, setting: str = "tofu-1b") -> Values:
    preset = find_preset(setting, name)
    assert preset is not None
    return preset.values


def _weights(forget: float, retain: float, **values: float) -> Values:
    return {"forget_weight": forget, "retain_weight": retain, **values}


_ATWU = "ATWU paper"
CODE = "code"
"""`values_from` of a method that uses the values of its published code."""
_WIDER: Ranges = {"beta": Range(1.0, 10.0, log=False)}

METHODS: dict[str, Method] = {
    "grad_ascent": Method("GradAscent", "uniform", "ga", "none", "Jang et al. 2023"),
    "grad_diff": Method(
        "GradDiff", "uniform", "ga", "nll", "Liu et al. 2022", _tuned("grad_diff"), first_trial=_weights(0.5, 1.0)
    ),
    "dpo": Method("DPO", "uniform", "dpo", "nll", "Rafailov et al. 2023", _tuned("dpo"), first_trial={"beta": 0.4}),
    "npo": Method(
        "NPO", "uniform", "npo", "nll", "Zhang et al. 2024", _tuned("npo"), first_trial=_weights(1.0, 1.0, beta=0.1)
    ),
    "simnpo": Method(
        "SimNPO",
        "uniform",
        "simnpo",
        "nll",
        "Fan et al. 2024",
        _tuned("simnpo"),
        first_trial={"forget_weight": 0.125, "beta": 3.5, "delta": 0.0},  # beta lies outside its range
    ),
    "jensun": Method(
        "JensUn", "uniform", "js_refusal", "js", "Singh et al. 2025", _tuned("jensun"), first_trial=_weights(0.5, 0.5)
    ),
    "rmu": Method("RMU", "uniform", "steering", "activation", "Li et al. 2024", _tuned("rmu", "tofu-8b")),
    "undial": Method(
        "UNDIAL",
        "uniform",
        "self_distillation",
        "nll",
        "Dong et al. 2025",
        _weights(1.0, 1.0, beta=10.0),
        values_from=CODE,
        first_trial=_weights(1.0, 1.0, beta=10.0),
    ),
    "fundial": Method(
        "FUNDIAL",
        "nouns",
        "masked_self_distillation",
        "nll",
        "Dong et al. 2025",
        _tuned("fundial"),
        first_trial=_weights(1.0, 1.0, beta=10.0),
    ),
    "wga": Method("WGA", "saturation", "ga", "nll", "Wang et al. 2025", _tuned("wga"), first_trial={"beta": 1.0}),
    "satimp": Method(
        "SatImp",
        "satimp",
        "ga",
        "nll",
        "Yang et al. 2025",
        _tuned("satimp"),
        first_trial=_weights(1.0, 0.1, beta1=5.0, beta2=1.0),
    ),
    "etw": Method("ETW", "entropy", "ga", "nll", "Koh et al. 2026", _tuned("etw")),
    "seul": Method(
        "SEUL", "logprob_mask", "masked_ga", "nll", "Wang et al. 2025b", _tuned("grad_diff"), values_from="grad_diff"
    ),
    "su_llm": Method(
        "SU-LLM",
        "model_difference",
        "masked_ga",
        "nll",
        "Wan et al. 2025",
        _tuned("grad_diff"),
        values_from="grad_diff",
    ),
    "su_ngram": Method(
        "SU-Ngram",
        "ngram_difference",
        "masked_ga",
        "nll",
        "Wan et al. 2025",
        _tuned("grad_diff"),
        values_from="grad_diff",
    ),
    "satga": Method("SatGA", "uniform", "satga", "nll", "Wang et al. 2025", _tuned("wga"), values_from="wga"),
    "gt_ga": Method("GT-GA", "labels", "masked_ga", "nll", _ATWU, _tuned("grad_diff"), values_from="grad_diff"),
    "gt_satga": Method(
        "GT-SatGA",
        "labels",
        "satga",
        "nll",
        _ATWU,
        _tuned("atwu"),
        {"beta": Range(0.1, 10.0)},
        values_from="atwu",
    ),
    "atwu_ga": Method(
        "ATWU-GA",
        "scorer",
        "ga",
        "nll",
        _ATWU,
        {name: value for name, value in _tuned("atwu").items() if name != "beta"},
        values_from="atwu",
    ),
    "atwu_satga": Method("ATWU-SatGA", "scorer", "satga", "nll", _ATWU, _tuned("atwu"), _WIDER, values_from="atwu"),
    "atwu": Method(
        "ATWU",
        "scorer",
        "satga_plus",
        "nll",
        _ATWU,
        _tuned("atwu"),
        first_trial=_weights(5.0, 0.5, beta=5.0),
    ),
    "atwu_dpo": Method("ATWU-DPO", "scorer", "dpo", "nll", _ATWU, _tuned("dpo"), values_from="dpo"),
    "atwu_npo": Method("ATWU-NPO", "scorer", "npo", "nll", _ATWU, _tuned("npo"), values_from="npo"),
    "atwu_simnpo": Method("ATWU-SimNPO", "scorer", "simnpo", "nll", _ATWU, _tuned("simnpo"), values_from="simnpo"),
}
