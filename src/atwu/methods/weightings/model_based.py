"""Token weights computed from the model's next-token distribution, without gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

from atwu.methods.component import Range, Weighting, number
from atwu.methods.component_inputs import WeightingContext

if TYPE_CHECKING:
    from torch import Tensor


class Uniform(Weighting):
    """Weight 1 for every token."""

    formula = "1"
    reads_head = False
    is_score = False

    def weights(self, context: WeightingContext) -> Tensor:
        return context.logps.new_ones(context.logps.shape)


class Saturation(Weighting):
    """`p^beta`: smaller for tokens that are already forgotten (WGA, Wang et al. 2025)."""

    formula = "p^β"
    beta: float = number(
        1.0, symbol="β", search=Range(0.1, 5.0), help="saturation exponent; larger stops earlier on a forgotten token"
    )

    def weights(self, context: WeightingContext) -> Tensor:
        return _power(context.logps, self.beta)


def _power(logps: Tensor, exponent: float) -> Tensor:
    return (exponent * logps.detach()).exp()


def _power_of_rest(logps: Tensor, exponent: float) -> Tensor:
    # 1 - p as -expm1(log p): exact where p is close to 1. Rounding can lift p above 1, and a power of that is no number.
    return (-logps.detach().expm1()).clamp(min=0).pow(exponent)


def _beta2() -> float:
    exponent: float = number(
        1.0, symbol="β2", search=Range(0.1, 5.0), help="importance exponent; larger concentrates on unlikely tokens"
    )
    return exponent


class Importance(Weighting):
    """`(1 - p)^beta2`: larger for less likely tokens (Yang et al. 2025)."""

    formula = "(1 - p)^β2"
    beta2: float = _beta2()

    def weights(self, context: WeightingContext) -> Tensor:
        return _power_of_rest(context.logps, self.beta2)


class SatImp(Weighting):
    """`p^beta1 (1 - p)^beta2`, largest at p = beta1 / (beta1 + beta2) (SatImp, Yang et al. 2025)."""

    formula = "p^β1 (1 - p)^β2"
    beta1: float = number(5.0, symbol="β1", search=Range(1.0, 10.0, log=False), help="SatImp's saturation exponent")
    beta2: float = _beta2()

    def weights(self, context: WeightingContext) -> Tensor:
        return _power(context.logps, self.beta1) * _power_of_rest(context.logps, self.beta2)


class Entropy(Weighting):
    """`n H_t / sum H`: share of each token in the entropy of its row, 1 for all if that is 0 (ETW, Koh et al. 2026)."""

    formula = "n H / Σ H, at temperature τ"
    temperature: float = number(
        1.0,
        symbol="τ",
        search=Range(0.1, 4.0),
        positive=True,
        help="temperature of the entropy weights; large values approach uniform weights",
    )

    @property
    def entropy_temperature(self) -> float:  # type: ignore[override]
        return self.temperature

    def weights(self, context: WeightingContext) -> Tensor:
        import torch

        mask = context.mask
        entropy = context.entropy.detach() * mask
        total, count = entropy.sum(-1, keepdim=True), mask.sum(-1, keepdim=True)
        # `where` computes both branches, so the one that is not taken must not divide by 0.
        smallest = torch.finfo(entropy.dtype).tiny
        return torch.where(total > 0, count * entropy / total.clamp(min=smallest), 1.0) * mask
