"""Likelihood losses: forget losses that lower that of the answer, NLL retain losses, and losses on what is said instead.

`weights` are the token weights; they have a gradient only in a scorer step. `logps` is log p(x_t | x_<t) under the current
model. All tensors have the same shape (batch, tokens); a loss has one value per token, to be minimized, or one per sequence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from atwu.methods.component import ForgetLoss, Loss, PreserveLoss, Range, RetainLoss, number, setting
from atwu.methods.component_inputs import AnswerRows, LossTerms, first_token_half, row_means
from atwu.methods.losses.divergence import LOWEST_LOGP

if TYPE_CHECKING:
    from torch import Tensor

    from atwu.data.alternates import Alternates
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

    w is the weight of a token, p its probability under the current model. The factor `p^beta` is a constant in the gradient.
    With gradient through it, the loss has its minimum at p = exp(-1 / beta), 0.87 for beta 7, where the token is still
    memorized.
    """

    formula = "w p^β log p"
    beta: float = number(
        1.0, symbol="β", search=Range(0.1, 5.0), help="saturation exponent; larger stops earlier on a forgotten token"
    )
    # The paper's formula has the gradient, its code has not. With it and beta 7 the loss pushes p back up to 0.87.
    detach_saturation: bool = setting(
        True, help="treat the saturation factor as a constant in the gradient; if false, a large beta forgets far less"
    )

    def values(self, terms: LossTerms, weights: Tensor) -> Tensor:
        return self._weigh_saturated(terms.logps, weights, log_factor=self.beta * terms.logps)

    def _weigh_saturated(self, logps: Tensor, weights: Tensor, *, log_factor: Tensor) -> Tensor:
        """Return `w f log p`, shape (batch, tokens), where f is the saturation factor, given as its logarithm."""
        if self.detach_saturation:
            log_factor = log_factor.detach()
        return weights * log_factor.exp() * logps


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
        return self._weigh_saturated(terms.logps, weights, log_factor=self.beta * weights * terms.logps)


class _Mixture(ForgetLoss):
    """Gradient ascent on a mixture of the answer and what the model itself would say (Li et al. 2025).

    Ascent on the answer alone moves its probability to what is likely already, often a rewording of the answer; the mixture
    lowers the model's likeliest tokens (BS-T) or its own sampled answers (BS-S) too.
    """

    # No code of the authors could be read; this and `belief_tokens` are of an implementation on open-unlearning.
    belief_weight: float = number(
        0.5,
        symbol="λ",
        search=Range(0.1, 0.9, log=False),
        help="share of what the model itself would say in the target, at most 1; 0 is gradient ascent",
    )

    def __post_init__(self) -> None:
        if self.belief_weight > 1:
            raise ValueError(
                f"belief_weight must be between 0 and 1 (a share of the target), got {self.belief_weight}."
            )

    def mixture(self, answer: Tensor, belief: Tensor) -> Tensor:
        return (1 - self.belief_weight) * answer + self.belief_weight * belief


class TokenBootstrapping(_Mixture):
    """`w ((1 - lambda) log p + lambda sum of q log p)`, (arXiv 2510.19422, eq. 6 and 7).

    q is p restricted to its k likeliest tokens and normalized, without gradient. The mean is over tokens; an implementation on
    open-unlearning takes the mean of the rows' means.
    """

    formula = "w ((1-λ) log p + λ Σ q log p), top k"
    belief_tokens: int = number(
        20,
        symbol="k",
        search=Range(5, 50, integer=True),
        positive=True,
        help="number of likeliest tokens that are lowered with the answer",
    )

    def from_distributions(self, logps: Tensor, ref_logps: Tensor, ids: Tensor) -> Tensor:
        likeliest = logps.topk(min(self.belief_tokens, logps.shape[-1])).values.clamp(min=LOWEST_LOGP)
        # A softmax of log-probabilities normalizes the probabilities themselves.
        return (likeliest.detach().softmax(-1) * likeliest).sum(-1)

    def values(self, terms: LossTerms, weights: Tensor) -> Tensor:
        assert terms.distance is not None
        return gradient_ascent(self.mixture(terms.logps, terms.distance), weights)


class SequenceBootstrapping(_Mixture):
    """`(1 - lambda) mean of w log p + lambda mean of log p(own answer)`, means over tokens (arXiv 2510.19422, eq. 8).

    The own answer of each question is sampled at temperature 1, anew in every epoch. An implementation on open-unlearning takes
    means over the tokens of a batch, and samples answers for one batch in two epochs, which all other batches then use too.
    """

    formula = "(1-λ) mean w log p + λ mean log p(own)"
    reduction = "sequences"
    reads_alternates = True

    def sampled_readings(self) -> dict[str, float]:
        return {"forget": 1.0}

    def other_answers(self, rows: AnswerRows) -> None:
        return None

    def values(self, terms: LossTerms, weights: Tensor) -> Tensor:
        assert terms.alternate_logps is not None
        assert terms.alternate_mask is not None
        answer = row_means(gradient_ascent(terms.logps, weights), terms.mask)
        return self.mixture(answer, row_means(terms.alternate_logps, terms.alternate_mask))


class LearnAlternate(ForgetLoss):
    """Train on the alternate answer; the forget answer is not used."""

    formula = "-w log p of the alternate answer"
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


class LimitedNLL(NLL):
    """NLL with a limit (PDU, Entesari et al. 2025, arXiv 2506.05314): its weight is the multiplier of that constraint.

    The multiplier starts as `retain_weight` and follows the loss of each optimizer step; published code updates
    it in every micro-batch.
    """

    formula = "-log p of retain answers, at most ε"
    changes_weight = True
    retain_bound: float = number(
        0.3,
        symbol="ε",
        search=Range(0.05, 1.0),
        help="PDU: limit of the retain loss in nats; set it above that of the original model",
    )
    dual_step: float = number(
        5.0,
        symbol="η",
        search=Range(0.5, 20.0),
        help="PDU: step size of the retain weight; larger enforces the limit sooner",
    )
    dual_warmup: float = number(5.0, symbol="E", help="PDU: epochs before the retain weight changes")

    def next_weight(self, weight: float, *, retain: float, epoch: float) -> float:
        """`max(0, lambda + eta (L_r - epsilon))`: rises while the retain loss is above its limit."""
        if epoch < self.dual_warmup:
            return weight
        return max(0.0, weight + self.dual_step * (retain - self.retain_bound))


class PreserveNLL(PreserveLoss):
    """Keep the words of forget answers by their negative log-likelihood."""

    formula = "-(1 - w / max w) log p of forget answers"

    def values(self, out: TokenOutputs) -> Tensor:
        return -out.logps


class ReplacementLoss(Loss):
    """Base class of losses on what is said instead: the model learns another answer to each forget question."""

    reads_alternates = True
    replacement_weight: float = number(
        1.0,
        symbol="ρ",
        search=Range(0.1, 5.0),
        help="rho: factor on the replacement loss; larger learns the other answer faster",
    )

    def values(self, logps: Tensor, mask: Tensor) -> Tensor:
        """Compute the loss per row, shape (batch,), from log-probabilities of the other answers, (batch, tokens)."""
        return first_token_half(-logps, mask)


class LearnRefusal(ReplacementLoss):
    """Learn to say that one does not know, always in the same words: a choice among many could never be learned."""

    formula = "-log p of a refusal, half on the 1st token"
    refusal_sentence: str = setting(
        "I'm sorry, I don't know the answer to that.",
        help="refusal that the model learns; best one that it would give itself",
    )

    def needs(self) -> list[str]:
        return [*super().needs(), "a refusal of the forget questions (--refusal-sentence)"]

    def other_answers(self, rows: AnswerRows) -> Alternates:
        return rows.alternates(refusal=self.refusal_sentence)


class LearnAlternative(ReplacementLoss):
    """Learn the plausible false answer in the column `alternate` of each row, as AltPO (Mekala et al. 2024) prefers it."""

    formula = "-log p of the row's alternate, half on the 1st token"
    from_column = own_alternates = True
