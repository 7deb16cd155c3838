"""BS-T and BS-S: gradient ascent on a mixture of the answer and what the model itself would say (Li et al. 2025).

Ascent on the answer alone moves its probability to what is likely already, often a rewording of the answer; the mixture lowers
the model's likeliest tokens (BS-T) or its own sampled answers (BS-S) too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from atwu.methods.component import ForgetLoss, Range, number
from atwu.methods.component_inputs import AnswerRows, LossTerms
from atwu.methods.losses.divergence import LOWEST_LOGP
from atwu.methods.losses.likelihood import gradient_ascent
from atwu.methods.losses.reduction import row_means

if TYPE_CHECKING:
    from torch import Tensor


class _Mixture(ForgetLoss):
    """The option that both losses share."""

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
