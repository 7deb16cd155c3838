"""The table of methods: each is a token weighting x a forget loss x a retain loss, with published values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from atwu.published import TUNED

Values = Mapping[str, float]
Ranges = Mapping[str, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Method:
    """One row of the table."""

    title: str
    weighting: str
    forget_loss: str
    retain_loss: str
    cite: str
    """Key into `atwu.citations.CITATIONS`."""
    defaults: Values = field(default_factory=dict)
    """Values used unless others are given: the published tuned ones (TOFU forget10, Llama-3.2-1B) where there are any."""
    search: Ranges = field(default_factory=dict)
    """Published search ranges that differ from the hyperparameter's own."""
    borrowed: bool = False
    """No values were published for this method; `defaults` are those of its closest relative or of its first code."""


def _tofu(name: str) -> Values:
    return TUNED[name]["tofu"].values


_WEIGHTS = {name: _tofu("atwu")[name] for name in ("forget_weight", "retain_weight")}
_ATWU = "ATWU paper"
_SATURATION: Ranges = {"beta": (0.1, 5.0)}
_ATWU_RANGE: Ranges = {"beta": (1.0, 10.0)}
_DPO: Ranges = {"beta": (0.2, 0.5)}
_NPO: Ranges = {"beta": (0.05, 0.2)}
_SIMNPO: Ranges = {"beta": (2.0, 3.0), "delta": (0.0, 2.0)}
_DISTIL: Ranges = {"beta": (1.0, 30.0)}

METHODS: dict[str, Method] = {
    "grad_ascent": Method("GradAscent", "uniform", "ga", "none", "Jang et al. 2023"),
    "grad_diff": Method("GradDiff", "uniform", "ga", "nll", "Liu et al. 2022", _tofu("grad_diff")),
    "dpo": Method("DPO", "uniform", "dpo", "nll", "Rafailov et al. 2023", _tofu("dpo"), _DPO),
    "npo": Method("NPO", "uniform", "npo", "nll", "Zhang et al. 2024", _tofu("npo"), _NPO),
    "simnpo": Method("SimNPO", "uniform", "simnpo", "nll", "Fan et al. 2024", _tofu("simnpo"), _SIMNPO),
    "jensun": Method("JensUn", "uniform", "js_refusal", "js", "Singh et al. 2025", _tofu("jensun")),
    "rmu": Method("RMU", "uniform", "steering", "activation", "Li et al. 2024", _tofu("rmu")),
    "undial": Method(
        "UNDIAL",
        "uniform",
        "self_distillation",
        "nll",
        "Dong et al. 2025",
        {"forget_weight": 1.0, "retain_weight": 1.0, "beta": 10.0},
        _DISTIL,
        borrowed=True,
    ),
    "fundial": Method(
        "FUNDIAL", "nouns", "masked_self_distillation", "nll", "Dong et al. 2025", _tofu("fundial"), _DISTIL
    ),
    "wga": Method("WGA", "saturation", "ga", "nll", "Wang et al. 2025", _tofu("wga"), _SATURATION),
    "satimp": Method("SatImp", "satimp", "ga", "nll", "Yang et al. 2025", _tofu("satimp")),
    "etw": Method("ETW", "entropy", "ga", "nll", "Koh et al. 2026", _tofu("etw")),
    "seul": Method("SEUL", "logprob_mask", "masked_ga", "nll", "Wang et al. 2025b", _tofu("grad_diff"), borrowed=True),
    "su_llm": Method(
        "SU-LLM", "model_difference", "masked_ga", "nll", "Wan et al. 2025", _tofu("grad_diff"), borrowed=True
    ),
    "su_ngram": Method(
        "SU-Ngram", "ngram_difference", "masked_ga", "nll", "Wan et al. 2025", _tofu("grad_diff"), borrowed=True
    ),
    "satga": Method("SatGA", "uniform", "satga", "nll", "Wang et al. 2025", _tofu("wga"), _SATURATION, borrowed=True),
    "gt_ga": Method("GT-GA", "labels", "masked_ga", "nll", _ATWU, _tofu("grad_diff"), borrowed=True),
    "gt_satga": Method("GT-SatGA", "labels", "satga", "nll", _ATWU, _tofu("atwu"), borrowed=True),
    "atwu_ga": Method("ATWU-GA", "scorer", "ga", "nll", _ATWU, _WEIGHTS, borrowed=True),
    "atwu_satga": Method("ATWU-SatGA", "scorer", "satga", "nll", _ATWU, _tofu("atwu"), _ATWU_RANGE, borrowed=True),
    "atwu": Method("ATWU", "scorer", "satga_plus", "nll", _ATWU, _tofu("atwu"), _ATWU_RANGE),
    "atwu_dpo": Method("ATWU-DPO", "scorer", "dpo", "nll", _ATWU, _tofu("dpo"), _DPO, borrowed=True),
    "atwu_npo": Method("ATWU-NPO", "scorer", "npo", "nll", _ATWU, _tofu("npo"), _NPO, borrowed=True),
    "atwu_simnpo": Method("ATWU-SimNPO", "scorer", "simnpo", "nll", _ATWU, _tofu("simnpo"), _SIMNPO, borrowed=True),
}
