"""Token-wise likelihood losses: forget losses that lower the likelihood of the answer, and the NLL retain loss.

Each returns one value per token, to be minimized. `weights` are the token weights; they have a gradient only in a scorer
step. `logps` is log p(x_t | x_<t) under the current model; all tensors have the same, arbitrary shape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from atwu.methods.component import ForgetLoss, PreserveLoss, Range, RetainLoss, number, setting
from atwu.methods.component_inputs import LossTerms

if TYPE_CHECKING:
    from torch import Tensor

    from atwu.modeling.forward import TokenOutputs
    from atwu.modeling.reference import Reference


def gradient_ascent(logps: Tensor, weights: Tensor) -> Tensor:
    """Weighted gradient ascent: `w log p` (Jang et al. 2023 with weights 1). Unbounded below."""
    return weights * logps


class GradientAscent(ForgetLoss):
    """See `gradient_ascent`."""

    formula = "w log p"

    def values(self, terms: LossTerms, weights: Tensor) -> Tensor:
        return gradient_ascent(terms.logps, weights)


class MaskedGradientAscent(GradientAscent):
    """Gradient ascent averaged over the tokens that a 0/1 weighting selects (SEUL, SU, GT-GA)."""

    formula = "w log p, mean over selected tokens"
    reduction = "selected"


class SatGA(ForgetLoss):
    """SatGA: `w p^beta log p`, whose gradient vanishes as the token is forgotten; WGA (Wang et al. 2025, eq. 9) with w = 1.

    The factor `p^beta` is a constant in the gradient. With gradient through it, the loss has its minimum at
    p = exp(-1 / beta), 0.87 for beta 7, where the token is still memorized.
    """

    formula = "w p^β log p"
    beta: float = number(
        1.0, symbol="β", search=Range(0.1, 5.0), help="saturation exponent; larger stops earlier on a forgotten token"
    )
    detach_saturation: bool = setting(
        True, help="treat the saturation factor as a constant in the gradient; if false, a large beta forgets far less"
    )

    def values(self, terms: LossTerms, weights: Tensor) -> Tensor:
        return self._saturated(terms.logps, weights, self.beta * terms.logps)

    def _saturated(self, logps: Tensor, weights: Tensor, exponent: Tensor) -> Tensor:
        return weights * (exponent.detach() if self.detach_saturation else exponent).exp() * logps


class SatGAPlus(SatGA):
    """SatGA+: `w p^(beta w) log p`: tokens of small weight also saturate later (main loss of the ATWU paper)."""

    formula = "w p^(β w) log p"
    beta: float = number(
        1.0,
        symbol="β",
        search=Range(1.0, 10.0, log=False),
        help="saturation exponent of a token of weight 1; larger stops earlier on a forgotten token",
    )

    def values(self, terms: LossTerms, weights: Tensor) -> Tensor:
        return self._saturated(terms.logps, weights, self.beta * weights * terms.logps)


class LearnAlternate(ForgetLoss):
    """Train on the alternate answer; the forget answer is not used."""

    formula = "-w log p of the alternate answer"
    reads_text = ("forget",)
    reads_alternates = from_column = True
    trained_answer = "alternate"

    def values(self, terms: LossTerms, weights: Tensor) -> Tensor:
        return -weights * terms.logps


class LearnVagueAnswer(LearnAlternate):
    """ReLearn (Xu et al. 2025, arXiv 2502.11190): train on vague answers to the questions and their paraphrases.

    `atwu rows alternates --kind vague` writes them. The published code also trains on the true answer, on the ends of answers
    cut after a quarter, and on rows of WikiQA.
    """

    own_alternates = True


class NLL(RetainLoss):
    """Negative log-likelihood per token of the retain answers, in nats."""

    formula = "-log p of retain answers"

    def values(self, out: TokenOutputs, reference: Reference) -> Tensor:
        return -out.logps


class PreserveNLL(PreserveLoss):
    """Keep the words of forget answers by their negative log-likelihood."""

    formula = "-(1 - w / max w) log p of forget answers"

    def values(self, out: TokenOutputs) -> Tensor:
        return -out.logps
