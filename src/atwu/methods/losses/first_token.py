"""Losses in which the first token has half of the weight of an answer, because it decides how the answer goes on.

JensUn++ is a Jensen-Shannon divergence to a refusal, balanced with the retain loss (Peleg et al. 2026, arXiv 2607.09236); its
rows are those of `atwu.data.alternates`. Replacement losses learn what is said instead, beside any forget loss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from atwu.methods.component import ForgetLoss, Loss, Range, number, setting
from atwu.methods.component_inputs import AnswerRows, LossTerms
from atwu.methods.losses.divergence import JS, KL, LN2, LOWEST_LOGP, js_to_tokens

if TYPE_CHECKING:
    from torch import Tensor

    from atwu.data.alternates import Alternates
    from atwu.modeling.forward import TokenOutputs
    from atwu.modeling.reference import Reference


def first_token_half(values: Tensor, mask: Tensor) -> Tensor:
    """Weighted mean of a row's values, half for the first counted token and half for all others together.

    Args:
        mask: True on counted tokens, same shape; a row with a single one has its value, a row without any 0.
    """
    first = mask & (mask.cumsum(-1) == 1)
    others = mask & ~first
    rest = (values * others).sum(-1) / others.sum(-1).clamp(min=1)
    head = (values * first).sum(-1)
    # head / 2 + rest / 2; an answer of one token has no rest, and its token all of the weight.
    return head + (rest - head) * others.any(-1) / 2


def js_slope(logps: Tensor, ref_logps: Tensor) -> Tensor:
    """Squared norm of the gradient of `jensen_shannon` in the logits of the current model.

    The gradient is `p (g - sum of p g)` with `g = log(p / m) / 2` and m the mean of both distributions.
    """
    import torch.nn.functional as F

    logps, ref_logps = logps.clamp(min=LOWEST_LOGP), ref_logps.clamp(min=LOWEST_LOGP)
    p, g = logps.exp(), (LN2 - F.softplus(ref_logps - logps)) / 2
    return (p * (g - (p * g).sum(-1, keepdim=True))).square().sum(-1)


class JSToRefusalRow(ForgetLoss):
    """Learn the labels of refusal rows; the answer itself is seen only as the beginning of some of them.

    Its term is multiplied by the norm of the retain term's gradient in the logits over that of its own, each over the tokens of
    a micro-batch, as in the published code.
    """

    formula = "s JS(π, refusal), half on the 1st token"
    reduction = "sequences"
    reads_text = ("forget",)
    reads_alternates = True
    trained_answer = "alternate"
    balanced = True
    refusal_sentence: str = setting(
        "I am unable to verify this information.",
        help="refusal that the model learns; best one that it would give itself",
    )

    def needs(self) -> list[str]:
        return [*super().needs(), "refusals (--refusal-sentence), half of them after the first words of the answer"]

    def other_answers(self, rows: AnswerRows) -> Alternates:
        return rows.refusal_rows(self.refusal_sentence)

    def from_distributions(self, logps: Tensor, ref_logps: Tensor, ids: Tensor) -> Tensor:
        return js_to_tokens(logps, ids)

    def slope(self, logps: Tensor, ref_logps: Tensor, ids: Tensor) -> Tensor:
        return js_slope(logps, logps.new_full(logps.shape, LOWEST_LOGP).scatter(1, ids, 0.0))

    def values(self, terms: LossTerms, weights: Tensor) -> Tensor:
        assert terms.distance is not None
        return first_token_half(weights * terms.distance, terms.mask)


class FirstTokenJS(JS):
    """`jensen_shannon` to the original model, half on the first token of each answer."""

    formula = "JS(π0, π) on retain answers, half on the 1st token"
    reduction = "sequences"

    def slope(self, logps: Tensor, ref_logps: Tensor, ids: Tensor) -> Tensor:
        return js_slope(logps, ref_logps)

    def values(self, out: TokenOutputs, reference: Reference) -> Tensor:
        return first_token_half(super().values(out, reference), out.mask)


class ReplacementLoss(Loss):
    """Base class of losses on what is said instead: the model learns another answer to each forget question."""

    reads_text = ("forget",)
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


class FirstTokenKL(KL):
    """KL to the original model, half on the first token of each answer: the token at which a refusal would begin."""

    formula = "KL(π0 ‖ π) on retain answers, half on the 1st token"
    reduction = "sequences"

    def values(self, out: TokenOutputs, reference: Reference) -> Tensor:
        return first_token_half(super().values(out, reference), out.mask)
