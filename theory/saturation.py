"""Undetached saturated losses as functions of u = log p, with slopes, and the constants of the theorem.

SatGA: f(u) = u exp(beta u) = p^beta log p, with minimum -1/(e beta) at p = exp(-1/beta). SatGA+ has beta g in the
exponent. Both are multiplied by the token weight g.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from theory.problem import Array


@dataclass(frozen=True, slots=True)
class Objective:
    """Weights of alpha L_r + gamma sum_t g_t f_t.

    Attributes:
        retain_weight: alpha > 0.
        forget_weight: gamma > 0.
        beta: saturation exponent > 0; a token is forgotten at p <= exp(-1/beta), so smaller values forget more.
    """

    retain_weight: float = 1.0
    forget_weight: float = 10.0
    beta: float = 0.5

    def __post_init__(self) -> None:
        for name in ("retain_weight", "forget_weight", "beta"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}.")

    @property
    def log_level(self) -> float:
        """Log of the probability at the minimum of f, -1/beta."""
        return -1.0 / self.beta

    @property
    def depth(self) -> float:
        """-min f = 1/(e beta)."""
        return 1.0 / (math.e * self.beta)

    @property
    def gain(self) -> float:
        """C = gamma/(e beta), the largest decrease of the objective by forgetting one token."""
        return self.forget_weight * self.depth


def saturated(logps: Array, scores: Array, *, beta: float) -> tuple[Array, Array]:
    """Compute g p^beta log p (SatGA) and its derivative in log p, elementwise."""
    power = np.exp(beta * logps)
    return scores * logps * power, scores * power * (1.0 + beta * logps)


def modulated(logps: Array, scores: Array, *, beta: float) -> tuple[Array, Array]:
    """Compute g p^(beta g) log p (SatGA+) and its derivative in log p, elementwise."""
    exponent = beta * scores
    power = np.exp(exponent * logps)
    return scores * logps * power, scores * power * (1.0 + exponent * logps)
