"""Hyperparameters that were published for the methods, as data: where, which values, which learning rates.

`tofu`: forget10; weights and method parameters tuned on Llama-3.2-1B-Instruct and kept for Llama-3.1-8B-Instruct, whose
learning rate was searched again. `rwku`: batch of ten subjects, Phi-3-mini-4k-instruct. All from the ATWU paper, but
FUNDIAL's, which are in its published code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Tuned:
    """Published values of one method in one setting."""

    values: Mapping[str, float]
    learning_rates: Mapping[str, float] = field(default_factory=dict)
    """By model."""


def _tuned(
    forget_weight: float, retain_weight: float, rates: dict[str, float], **values: float
) -> Tuned:  # fmt: skip
    return Tuned({"forget_weight": forget_weight, "retain_weight": retain_weight, **values}, rates)


def _tofu(small: float | None, large: float | None) -> dict[str, float]:
    rates = {"Llama-3.2-1B": small, "Llama-3.1-8B": large}
    return {name: rate for name, rate in rates.items() if rate is not None}


def _phi(rate: float) -> dict[str, float]:
    return {"Phi-3-mini": rate}


TUNED: Mapping[str, Mapping[str, Tuned]] = {
    "grad_diff": {
        "tofu": _tuned(0.12, 0.80, _tofu(1.90e-5, 1.90e-5)),
        "rwku": _tuned(0.12, 0.80, _phi(1.18e-6)),
    },
    "dpo": {
        "tofu": _tuned(3.80, 0.15, _tofu(2.27e-5, 3.12e-5), beta=0.21),
        "rwku": _tuned(0.13, 2.96, _phi(1.18e-5), beta=0.35),
    },
    "npo": {
        "tofu": _tuned(0.12, 4.10, _tofu(2.60e-5, 2.60e-5), beta=0.10),
        "rwku": _tuned(4.76, 0.63, _phi(2.60e-5), beta=0.07),
    },
    "simnpo": {
        "tofu": _tuned(1.49, 1.28, _tofu(2.08e-5, 2.86e-5), beta=2.82, delta=0.03),
        "rwku": _tuned(2.43, 0.46, _phi(2.08e-5), beta=2.59, delta=1.50),
    },
    "jensun": {
        "tofu": _tuned(0.82, 0.79, _tofu(3.98e-5, 2.66e-5)),
        "rwku": _tuned(0.39, 1.52, _phi(1.54e-6)),
    },
    "rmu": {"tofu": _tuned(0.66, 1.27, _tofu(None, 2.21e-4), steering_coeff=4.39, layer=4)},
    "fundial": {"tofu": _tuned(0.157, 0.626, _tofu(2.61e-5, None), beta=11.6)},
    "etw": {"tofu": _tuned(0.033, 1.31, _tofu(2.58e-5, None), temperature=0.16)},
    "wga": {
        "tofu": _tuned(1.16, 0.79, _tofu(1.57e-5, 1.57e-5), beta=2.14),
        "rwku": _tuned(2.79, 0.22, _phi(1.54e-6), beta=0.40),
    },
    "satimp": {
        "tofu": _tuned(0.87, 0.49, _tofu(1.98e-5, 1.98e-5), beta1=1.43, beta2=0.17),
        "rwku": _tuned(2.60, 0.23, _phi(4.48e-6), beta1=2.64, beta2=0.20),
    },
    "atwu": {
        "tofu": _tuned(3.00, 0.50, _tofu(2.00e-5, 1.50e-5), beta=7.00),
        "rwku": _tuned(2.68, 0.54, _phi(1.83e-6), beta=2.25),
    },
}
