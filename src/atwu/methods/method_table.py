"""Table of methods: each combines a token weighting, a forget loss and a retain loss, with published values and reference.

Components are named as in `component_registry.py`. The values of a method replace the defaults of its component classes.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from atwu._names import Registry
from atwu.methods.component import Range

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
    """Key of `citations`."""
    defaults: Values = field(default_factory=dict)
    """Default hyperparameters: the published values for TOFU on the 1B model (RMU: 8B), where they exist."""
    search: Ranges = field(default_factory=dict)
    """Published search ranges that differ from those of the components."""
    values_from: str | None = None
    """For a method without published values: the method whose values it uses, `CODE` for its published code, or `OURS`."""
    first_trial: Values = field(default_factory=dict)
    """Hyperparameters of the first trial of the published search, if known."""


def _weights(forget: float, retain: float, **values: float) -> Values:
    return {"forget_weight": forget, "retain_weight": retain, **values}


_PAPER = "ATWU paper"
# Numbers of several methods: one without published values takes over those of another (`values_from`).
_GRAD_DIFF = _weights(0.12, 0.80)
_DPO = _weights(3.80, 0.15, beta=0.21)
_NPO = _weights(0.12, 4.10, beta=0.10)
_SIMNPO = _weights(1.49, 1.28, beta=2.82, delta=0.03)
_WGA = _weights(1.16, 0.79, beta=2.14)
_ATWU = _weights(3.00, 0.50, beta=7.00)
CODE = "code"
"""`values_from` of a method that uses the values of its published code."""
OURS = "ours"
"""`values_from` of a method of which no values could be read."""
_WIDER: Ranges = {"beta": Range(1.0, 10.0, log=False)}

_SHIPPED = {
    "grad_ascent": Method("GradAscent", "uniform", "ga", "none", "Jang et al. 2023"),
    "grad_diff": Method(
        "GradDiff", "uniform", "ga", "nll", "Liu et al. 2022", _GRAD_DIFF, first_trial=_weights(0.5, 1.0)
    ),
    "dpo": Method("DPO", "uniform", "dpo", "nll", "Rafailov et al. 2023", _DPO, first_trial={"beta": 0.4}),
    "npo": Method("NPO", "uniform", "npo", "nll", "Zhang et al. 2024", _NPO, first_trial=_weights(1.0, 1.0, beta=0.1)),
    "simnpo": Method(
        "SimNPO",
        "uniform",
        "simnpo",
        "nll",
        "Fan et al. 2024",
        _SIMNPO,
        first_trial={"forget_weight": 0.125, "beta": 3.5, "delta": 0.0},  # beta lies outside its range
    ),
    "jensun": Method(
        "JensUn",
        "uniform",
        "js_refusal",
        "js",
        "Singh et al. 2025",
        _weights(0.82, 0.79),
        first_trial=_weights(0.5, 0.5),
    ),
    # None were published for the 1B model; these are of 8B.
    "rmu": Method(
        "RMU",
        "uniform",
        "steering",
        "activation",
        "Li et al. 2024",
        _weights(0.66, 1.27, steering_coeff=4.39, layer=4.0),
    ),
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
        _weights(0.157, 0.626, beta=11.6),
        first_trial=_weights(1.0, 1.0, beta=10.0),
    ),
    "wga": Method("WGA", "saturation", "ga", "nll", "Wang et al. 2025", _WGA, first_trial={"beta": 1.0}),
    "satimp": Method(
        "SatImp",
        "satimp",
        "ga",
        "nll",
        "Yang et al. 2025",
        _weights(0.87, 0.49, beta1=1.43, beta2=0.17),
        first_trial=_weights(1.0, 0.1, beta1=5.0, beta2=1.0),
    ),
    "etw": Method("ETW", "entropy", "ga", "nll", "Koh et al. 2026", _weights(0.033, 1.31, temperature=0.16)),
    "seul": Method(
        "SEUL", "logprob_mask", "masked_ga", "nll", "Wang et al. 2025b", _GRAD_DIFF, values_from="grad_diff"
    ),
    "su_llm": Method(
        "SU-LLM", "model_difference", "masked_ga", "nll", "Wan et al. 2025", _GRAD_DIFF, values_from="grad_diff"
    ),
    "su_ngram": Method(
        "SU-Ngram", "ngram_difference", "masked_ga", "nll", "Wan et al. 2025", _GRAD_DIFF, values_from="grad_diff"
    ),
    "satga": Method("SatGA", "uniform", "satga", "nll", "Wang et al. 2025", _WGA, values_from="wga"),
    "gt_ga": Method("GT-GA", "labels", "masked_ga", "nll", _PAPER, _GRAD_DIFF, values_from="grad_diff"),
    "gt_satga": Method(
        "GT-SatGA", "labels", "satga", "nll", _PAPER, _ATWU, {"beta": Range(0.1, 10.0)}, values_from="atwu"
    ),
    "atwu_ga": Method("ATWU-GA", "scorer", "ga", "nll", _PAPER, _weights(3.00, 0.50), values_from="atwu"),
    "atwu_satga": Method("ATWU-SatGA", "scorer", "satga", "nll", _PAPER, _ATWU, _WIDER, values_from="atwu"),
    "atwu": Method("ATWU", "scorer", "satga_plus", "nll", _PAPER, _ATWU, first_trial=_weights(5.0, 0.5, beta=5.0)),
    "atwu_dpo": Method("ATWU-DPO", "scorer", "dpo", "nll", _PAPER, _DPO, values_from="dpo"),
    "atwu_npo": Method("ATWU-NPO", "scorer", "npo", "nll", _PAPER, _NPO, values_from="npo"),
    "atwu_simnpo": Method("ATWU-SimNPO", "scorer", "simnpo", "nll", _PAPER, _SIMNPO, values_from="simnpo"),
    "ceu": Method("CE-U", "uniform", "ceu", "none", "Yang 2025", values_from=CODE),
    "me": Method("ME+GD", "uniform", "max_entropy", "nll", "Yuan et al. 2024", _weights(0.1, 1.0), values_from=CODE),
    "idk_ap": Method(
        "IDK+AP", "uniform", "refusal", "ap", "Yuan et al. 2024", _weights(1.0, 1.0, answer_beta=0.1), values_from=CODE
    ),
    "jensun_plus": Method(
        "JensUn++", "uniform", "js_refusal_row", "js_first", "Peleg et al. 2026", _weights(0.33, 1.0), values_from=CODE
    ),
    "bs_t": Method("BS-T", "uniform", "bootstrapping", "nll", "Li et al. 2025", values_from=CODE),
    "bs_s": Method("BS-S", "uniform", "sequence_bootstrapping", "nll", "Li et al. 2025", values_from=CODE),
    "flat": Method("FLAT", "uniform", "flat", "none", "Wang et al. 2025c", values_from=CODE),
    "altpo": Method(
        "AltPO",
        "uniform",
        "altpo",
        "nll",
        "Mekala et al. 2024",
        _weights(1.0, 1.0, beta=0.1),
        {"beta": Range(0.05, 0.5), "retain_weight": Range(1.0, 5.0)},
        values_from=CODE,
    ),
    "relearn": Method(
        "ReLearn", "uniform", "vague_answer", "kl_nll", "Xu et al. 2025", _weights(1.0, 1.0), values_from=CODE
    ),
    "lunar": Method(
        "LUNAR",
        "uniform",
        "redirection",
        "activation",
        "Shen et al. 2025",
        _weights(1.0, 1.0, redirect_coeff=2.0, layer=22.0),
        {"layer": Range(4, 24, log=False, integer=True)},
        values_from=CODE,
    ),
    # Neither the paper nor its code could be read.
    "duet": Method("DUET", "uniform", "prompted_teacher", "top_logits", "Zhong et al. 2026", values_from=OURS),
    "asu": Method(
        "ASU", "uniform", "smoothed_attention", "nll", "Zare Zade et al. 2026", _weights(0.1, 1.0), values_from=CODE
    ),
    "elm": Method(
        "ELM", "uniform", "novice_teacher", "kl", "Gandikota et al. 2024", _weights(1.0, 1.0), values_from=CODE
    ),
    "pdu": Method(
        "PDU",
        "uniform",
        "logit_margin",
        "limited_nll",
        "Entesari et al. 2025",
        # The multiplier of the constraint on the retain loss begins as retain_weight.
        _weights(1.0, 100.0, retain_bound=0.3, dual_step=5.0, dual_warmup=5.0),
        {"retain_weight": Range(20.0, 200.0)},
        values_from=CODE,
    ),
}
METHODS = Registry[Method]("method", _SHIPPED)


@functools.cache
def citations() -> Mapping[str, str]:
    """Return authors, title, venue and arXiv number by the key of a method's `cite`."""
    from atwu._file_reading import read_yaml  # only listings need it

    entries: dict[str, str] = read_yaml(Path(__file__).with_name("citations.yaml"))
    return entries
