"""Losses on whole answers: DPO, NPO, SimNPO and FLAT with token weights, and the retain loss AP.

Each returns one loss per sequence, shape (batch,), to be minimized; the caller averages. Inputs have shape (batch, tokens):
`logps` and `ref_logps` (no gradient) are log p(x_t | x_<t) of the answer under the current and the original model, `mask` is
True on counted tokens, all others are ignored, and `weights` are token weights in [0, 1], with a gradient only in a scorer
step; with all weights 1 the losses are the published ones.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from atwu.methods.component import ForgetLoss, Range, RetainLoss, number, setting
from atwu.methods.component_inputs import LossTerms, row_means

if TYPE_CHECKING:
    from torch import Tensor

    from atwu.modeling.forward import TokenOutputs

_SMALLEST_TOTAL = 1e-8
"""Keeps the division finite for an answer whose weights are all 0."""
DIVERGENCES = ("total_variation", "kl", "jensen_shannon", "pearson")


def log_ratio(logps: Tensor, ref_logps: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
    """`r`: reweighted log-probability under the current model minus the unweighted one under the reference.

    `r = n / (sum of w) * sum of w log p - sum of log p0` (the ATWU paper): only ratios of weights matter, equal
    weights give the plain sum, and the gradient of the weights includes the normalization.

    Returns:
        Shape (batch,); negative where the answer has become less likely.
    """
    # Differences first: close to the original model they are far smaller than either sum.
    return (_reweigh(logps, weights, mask) - _zero_uncounted(ref_logps.detach(), mask)).sum(-1)


def _preference(margin: Tensor, beta: float) -> Tensor:
    """`-(2 / beta) log sigmoid(beta margin)`, shape (batch,): small once the preferred side leads by several 1 / beta.

    Args:
        margin: by how many nats the preferred side leads, shape (batch,).
        beta: inverse temperature, above 0.
    """
    import torch.nn.functional as F

    return -2.0 / beta * F.logsigmoid(beta * margin)


def _reweigh(logps: Tensor, weights: Tensor, mask: Tensor) -> Tensor:
    """`n / (sum of w) * w log p` at counted tokens, 0 elsewhere, shape (batch, tokens)."""
    weights = _zero_uncounted(weights, mask)
    # Divide by the largest weight (it cancels): equal weights become exactly 1 and sum to exactly n, so that learned scores of
    # 1/2 give the same bits as no scores.
    unit = weights.detach().amax(-1, keepdim=True).clamp(min=_SMALLEST_TOTAL)
    relative = weights / unit
    total = relative.sum(-1, keepdim=True).clamp(min=_SMALLEST_TOTAL / unit)
    return mask.sum(-1, keepdim=True) / total * relative * _zero_uncounted(logps, mask)


def _zero_uncounted(values: Tensor, mask: Tensor) -> Tensor:
    return values.masked_fill(~mask, 0.0)


class NPO(ForgetLoss):
    """Negative preference loss: `-(2 / beta) log sigmoid(-beta r)` (Zhang et al. 2024).

    With token weights w, `r = n / (sum of w) * sum of w log p - sum of log p0` (`log_ratio`); with all w = 1 it is
    log π(y)/π0(y). The gradient with respect to the answer's log-probability is then `2 sigmoid(beta r)`: gradient ascent on
    the sum at the original model, vanishing as the answer is forgotten.
    """

    formula = "-(2/β) log σ(-β r), r = log π(y)/π0(y)"
    reduction = "sequences"
    original = ("logps",)
    beta: float = number(
        1.0,
        symbol="β",
        search=Range(0.05, 0.2),
        positive=True,
        help="inverse temperature; smaller is closer to gradient ascent, larger stops earlier",
    )

    def values(self, terms: LossTerms, weights: Tensor) -> Tensor:
        return _preference(-log_ratio(terms.logps, terms.reference_logps, terms.mask, weights), self.beta)


class DPO(ForgetLoss):
    """Preference for an alternate answer: `-(2 / beta) log sigmoid(beta (preferred - r))` (Rafailov et al. 2023).

    `preferred` is the log ratio of the alternate answer, without token weights; r is that of the forget answer, with them
    (`log_ratio`). The factor 2 / beta, in place of the published 1, is that of NPO, which is this loss with `preferred` 0.
    """

    formula = "-(2/β) log σ(β (r(alternate) - r))"
    reduction = "sequences"
    original = ("logps",)
    reads_alternates = from_column = True
    beta: float = number(
        1.0,
        symbol="β",
        search=Range(0.2, 0.5),
        positive=True,
        help="inverse temperature; larger stops at a smaller gap between the two answers",
    )

    def values(self, terms: LossTerms, weights: Tensor) -> Tensor:
        assert terms.preferred is not None
        return _preference(
            terms.preferred - log_ratio(terms.logps, terms.reference_logps, terms.mask, weights), self.beta
        )


class AltPO(DPO):
    """DPO whose preferred answers are plausible and false, written by the model itself (Mekala et al. 2024)."""

    own_alternates = True


class SimNPO(ForgetLoss):
    """NPO without a reference, on mean token losses (Fan et al. 2024).

    `-(2 / beta) log sigmoid(beta (m - delta))` with `m = (1 / n) sum of s w (-log p)`, s the `score_scale`. Weights are not
    normalized: smaller ones delay saturation. Fan et al. subtract their margin after multiplying by beta; theirs is
    `beta delta`.
    """

    formula = "-(2/β) log σ(β (mean of -w log p - δ))"
    reduction = "sequences"
    beta: float = number(
        1.0,
        symbol="β",
        search=Range(2.0, 3.0, log=False),
        positive=True,
        help="inverse temperature; larger stops earlier",
    )
    delta: float = number(
        0.0,
        symbol="δ",
        search=Range(0.0, 2.0, log=False),
        help="margin in nats: forget until the mean token loss of an answer exceeds it",
    )
    # Not searched: it can be absorbed into forget_weight, beta and delta.
    score_scale: float = number(
        1.0,
        symbol="s",
        positive=True,
        learned=True,
        help="factor on learned scores; with 2 the initial scores of 1/2 give plain SimNPO",
    )

    def values(self, terms: LossTerms, weights: Tensor) -> Tensor:
        mask = terms.mask
        losses = self.score_scale * _zero_uncounted(weights, mask) * -_zero_uncounted(terms.logps, mask)
        return _preference(losses.sum(-1) / mask.sum(-1).clamp(min=1) - self.delta, self.beta)


class FLAT(ForgetLoss):
    """`-g(template) + f*(g(forget))`, with the g and the conjugate f* of a divergence (Wang et al. 2025c, arXiv 2410.11143).

    The variational form of an f-divergence between a template answer and the forget answer, which is widened. It rises with
    the mean token probability of the forget answer, each scaled by its weight, and falls with that of the template.

    The published code averages probabilities over the whole batch, prompt and padding included (as 0), before it applies g
    and f*; here each answer has its own mean, over its own tokens.
    """

    formula = "f*(g(mean w p)) - g(mean p of alternate)"
    reduction = "sequences"
    reads_alternates = from_column = True
    f_divergence: str = setting("total_variation", choices=DIVERGENCES, help="divergence that FLAT widens")

    def values(self, terms: LossTerms, weights: Tensor) -> Tensor:
        import torch.nn.functional as F

        assert terms.alternate_logps is not None
        assert terms.alternate_mask is not None
        forget = row_means(weights * terms.logps.exp(), terms.mask)
        template = row_means(terms.alternate_logps.exp(), terms.alternate_mask)
        # g(v) and f*(t) of each, in the order of `DIVERGENCES`: tanh(v) / 2 and t; v and exp(t - 1);
        # log 2 - log(1 + exp(-v)) and -log(2 - exp(t)); v and t² / 4 + t.
        if self.f_divergence == "total_variation":
            return (forget.tanh() - template.tanh()) / 2
        if self.f_divergence == "kl":
            return (forget - 1).exp() - template
        if self.f_divergence == "pearson":
            return forget.square() / 4 + forget - template
        return F.softplus(forget) + F.softplus(-template) - 2 * math.log(2)


class AnswerPreservation(RetainLoss):
    """`-(1 / beta) log sigmoid(beta (log p(answer) - log p(refusal)))` (AP: Yuan et al. 2024, arXiv 2410.08109).

    Learning to refuse forget questions makes a model refuse retain questions as well; the loss compares the two there.
    """

    formula = "-(1/b) log σ(b log π(y)/π(refusal)) on retain answers"
    reads_alternates = from_column = True
    reduction = "sequences"
    answer_beta: float = number(
        0.1,
        symbol="b",
        search=Range(0.05, 0.5),
        positive=True,
        help="AP: inverse temperature; larger stops at a smaller gap between answer and refusal",
    )

    def values_against(self, out: TokenOutputs, alternate: TokenOutputs) -> Tensor:
        import torch.nn.functional as F

        return -F.logsigmoid(self.answer_beta * (out.logps.sum(1) - alternate.logps.sum(1))) / self.answer_beta
