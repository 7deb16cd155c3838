"""Distances between next-token distributions: JensUn, UNDIAL, CE-U, ME, PDU, JensUn++, and the losses KL and JS that retain.

Each function takes natural log-probabilities of shape (tokens, vocabulary) and returns one value per token, shape (tokens,).
`logps` is of the current model, `ref_logps` of the original one; only `logps` receives a gradient. Entries may be -inf: a
vocabulary entry with probability 0 in both distributions adds 0.

In JensUn++ (Peleg et al. 2026, arXiv 2607.09236) the first token has half of the weight of an answer, because it decides how
the answer goes on; its rows are those of `atwu.data.alternates`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from atwu.methods.component import ForgetLoss, PreserveLoss, Range, RetainLoss, number, setting
from atwu.methods.component_inputs import AnswerRows, LossInputs, LossTerms, first_token_half, shares

if TYPE_CHECKING:
    from torch import Tensor

    from atwu.data.alternates import Alternates
    from atwu.modeling.batches import TokenBatch
    from atwu.modeling.forward import TokenOutputs
    from atwu.modeling.reference import Reference

LN2 = math.log(2.0)
LOWEST_LOGP = -1e4
"""Replaces -inf: its exp() is 0 even in float64, and 0 times it is 0 instead of nan."""
_EPSILON = 2.0**-24
"""1 minus this is the largest float32 below 1."""


def kl(logps: Tensor, ref_logps: Tensor) -> Tensor:
    """`KL(reference || current)`: sum of `p0 (log p0 - log p)`; penalizes low p where p0 is high.

    Returns:
        Nats >= 0, shape (tokens,); infinite if p = 0 where p0 > 0.
    """
    ref_logps = ref_logps.detach()
    return _mean_under(ref_logps.exp(), ref_logps - logps)


def jensen_shannon(logps: Tensor, ref_logps: Tensor) -> Tensor:
    """Jensen-Shannon divergence `KL(p || m) / 2 + KL(p0 || m) / 2` with `m = (p + p0) / 2` (JensUn, Singh et al. 2025).

    Returns:
        Nats in [0, ln 2], shape (tokens,).
    """
    import torch.nn.functional as F

    logps, ref_logps = logps.clamp(min=LOWEST_LOGP), ref_logps.detach().clamp(min=LOWEST_LOGP)
    # log p - log m = ln 2 - softplus(log p0 - log p): no overflow, and no cancellation where p is close to p0.
    gap = ref_logps - logps
    terms = logps.exp() * (LN2 - F.softplus(gap)) + ref_logps.exp() * (LN2 - F.softplus(-gap))
    return terms.sum(-1) / 2


def js_to_tokens(logps: Tensor, ids: Tensor) -> Tensor:
    """Jensen-Shannon divergence between the current distribution and a target with mass 1 on each target token.

    With one id per row the target is one-hot, and the value lies in [0, ln 2]:
    `(p log(2p / (1 + p)) + (1 - p) ln 2 + log(2 / (1 + p))) / 2` with p the probability of that token. Several
    ids give a target of total mass above 1, as in the first published code of JensUn (Singh et al. 2025).

    Args:
        logps: log-probabilities under the current model, shape (tokens, vocabulary), each row normalized.
        ids: token ids of each row's target, shape (tokens, k); duplicates within a row count once.

    Returns:
        Nats, shape (tokens,); smallest if the target tokens have all the probability.
    """
    # True for an id that occurs before in its row, as of a refusal that says a token twice.
    earlier = (ids[:, :, None] == ids[:, None, :]).tril(diagonal=-1).any(dim=-1)
    logp = logps.gather(1, ids).clamp(min=LOWEST_LOGP)
    # log((1 + p) / 2) as log1p((p - 1) / 2), and p - 1 as expm1(log p): exact where p is close to 1, where training ends.
    p, p_minus_1 = logp.exp(), logp.expm1()
    terms = p * logp - (1 + p) * (p_minus_1 / 2).log1p() - LN2 * p_minus_1
    mass = (~earlier).sum(-1)
    return (terms.masked_fill(earlier, 0.0).sum(-1) + LN2 * (1 - mass)) / 2


def js_slope(logps: Tensor, ref_logps: Tensor) -> Tensor:
    """Squared norm of the gradient of `jensen_shannon` in the logits of the current model.

    The gradient is `p (g - sum of p g)` with `g = log(p / m) / 2` and m the mean of both distributions.
    """
    import torch.nn.functional as F

    logps, ref_logps = logps.clamp(min=LOWEST_LOGP), ref_logps.clamp(min=LOWEST_LOGP)
    p, g = logps.exp(), (LN2 - F.softplus(ref_logps - logps)) / 2
    return (p * (g - (p * g).sum(-1, keepdim=True))).square().sum(-1)


def self_distillation(logps: Tensor, ref_logps: Tensor, ids: Tensor, *, beta: float) -> Tensor:
    """Cross entropy to the reference with a reduced logit of the answer token (UNDIAL, Dong et al. 2025).

    `-sum of q log p` with `q = softmax(z0 - beta e)`, z0 the reference's logits (or log-probabilities, which differ by
    a constant) and e one-hot at the answer token. The loss is minimized.

    Args:
        beta: amount subtracted from its logit, >= 0; larger forgets more, 0 distills the reference itself.
    """
    down = ref_logps.new_full(ids.shape, -beta)
    target = ref_logps.detach().scatter_add(1, ids, down).softmax(dim=-1)
    return _mean_under(target, -logps)


def _mean_under(probabilities: Tensor, values: Tensor) -> Tensor:
    """Mean of `values` under `probabilities` (no gradient); values of probability 0 are ignored."""
    return (probabilities * values.masked_fill(probabilities == 0, 0.0)).sum(-1)


class WeightedDistance(ForgetLoss):
    """Base class of losses of the form token weight times distance."""

    def values(self, terms: LossTerms, weights: Tensor) -> Tensor:
        assert terms.distance is not None
        if terms.learned:
            # Minimizing a distance would shrink all learned scores; normalized within the row, only their ratios matter.
            weights = shares(weights, terms.mask)
        return weights * terms.distance


class JSToRefusal(WeightedDistance):
    """JensUn: move each position towards one token of a refusal; see `js_to_tokens`."""

    formula = "w JS(π, the refusal's tokens in turn)"
    refusal: str = setting("No idea", help="refusal text that JensUn trains in place of the answer")
    # The first published code, which most likely gave the numbers in the ATWU paper; later the authors corrected it.
    legacy: bool = setting(
        False,
        help="published form of JensUn: both refusal tokens as target at every position, prompt included",
    )

    def needs(self) -> list[str]:
        return [*super().needs(), "a refusal text as target (--refusal) and the tokenizer"]

    @property
    def all_positions(self) -> bool:  # type: ignore[override]
        return self.legacy

    def target_token_ids(self, tokenizer: Any) -> tuple[int, ...]:
        ids = tuple(tokenizer(self.refusal, add_special_tokens=False)["input_ids"])
        if not ids:
            raise ValueError(f"the refusal {self.refusal!r} has no tokens; set refusal to another text.")
        return ids

    def compared_ids(self, batch: TokenBatch, inputs: LossInputs) -> Tensor:
        import torch

        if not inputs.refusal_ids:
            raise ValueError("JensUn needs refusal_ids, the token ids of its refusal.")
        mask = batch.mask
        refusal = torch.tensor(inputs.refusal_ids, device=mask.device)
        place = (mask.cumsum(1) - 1)[mask]
        if self.legacy:
            return refusal.expand(place.shape[0], -1)
        # The target of a position does not depend on the answer: only places within it count.
        # An answer longer than the refusal repeats it.
        return refusal[place % refusal.shape[0]][:, None]

    def from_distributions(self, logps: Tensor, ref_logps: Tensor, ids: Tensor) -> Tensor:
        return js_to_tokens(logps, ids)


class SelfDistillation(WeightedDistance):
    """UNDIAL; see `self_distillation`."""

    formula = "w CE(softmax(z0 - β on the token), π)"
    original = ("distributions",)
    beta: float = number(
        1.0,
        symbol="β",
        search=Range(1.0, 30.0),
        help="amount subtracted from the logit of the answer token; larger forgets more",
    )

    def from_distributions(self, logps: Tensor, ref_logps: Tensor, ids: Tensor) -> Tensor:
        return self_distillation(logps, ref_logps, ids, beta=self.beta)


class MaskedSelfDistillation(SelfDistillation):
    """UNDIAL averaged over the tokens that a 0/1 weighting selects (FUNDIAL)."""

    formula = "w CE(softmax(z0 - β on the token), π), mean over selected tokens"
    reduction = "selected"


class WeightedSelfDistillation(ForgetLoss):
    """Cross entropy to the reference with the logit of each answer token reduced in proportion to its weight.

    `-sum of q log p` with `q = softmax(z0 - beta w e)`: weight 1 gives UNDIAL, weight 0 distills the reference unchanged.
    Equal to `-q_y log p_y + (1 - q_y) rest` with `q_y = sigmoid(logit p0_y - beta w)`, rest being the loss with an infinite
    beta. The weights receive a gradient.
    """

    formula = "CE(softmax(z0 - β w on the token), π)"
    original = ("distributions", "logps")
    beta: float = number(
        20.0,
        symbol="β",
        search=Range(2.0, 60.0),
        help="amount subtracted from the logit of a token of weight 1; larger forgets more",
    )

    def from_distributions(self, logps: Tensor, ref_logps: Tensor, ids: Tensor) -> Tensor:
        return self_distillation(logps, ref_logps, ids, beta=math.inf)

    def values(self, terms: LossTerms, weights: Tensor) -> Tensor:
        assert terms.distance is not None
        certain = terms.reference_logps.detach().clamp(max=-_EPSILON)  # keeps log(1 - p0) finite for p0 = 1
        pushed = certain - (-certain.expm1()).log() - self.beta * weights
        return pushed.sigmoid() * -terms.logps + (-pushed).sigmoid() * terms.distance


class CrossEntropyUnlearning(WeightedDistance):
    """`-sum of q log p` with `q = softmax(z)` where the logit of the answer token is minus infinity; q has no gradient.

    CE-U (Yang 2025, arXiv 2503.01224): UNDIAL with the current model as reference and an infinite beta. The gradient with
    respect to the logits is p - q, whose entry at the answer token is its probability: large while the token is known,
    vanishing when it is forgotten.

    The first tokens of an answer stay, and the mean is over the others, as in a footnote of the paper and in its code.
    """

    formula = "w CE(π without y_t, π) after k tokens"
    kept_start: int = number(
        1,
        symbol="k",
        search=Range(0, 2, log=False, integer=True),
        help="CE-U: tokens at the start of an answer to leave alone",
    )

    def from_distributions(self, logps: Tensor, ref_logps: Tensor, ids: Tensor) -> Tensor:
        return self_distillation(logps, logps, ids, beta=math.inf)

    def averaged(self, mask: Tensor) -> Tensor:
        return mask & (mask.cumsum(1) > self.kept_start)


class MaxEntropy(WeightedDistance):
    """`KL(u || p) = -log V - mean of log p` with u uniform over a vocabulary of size V (ME, Yuan et al. 2024).

    The published code counts the tokens of the question too, and adds 1e-12 to every probability.
    """

    formula = "w KL(uniform ‖ π)"

    def from_distributions(self, logps: Tensor, ref_logps: Tensor, ids: Tensor) -> Tensor:
        # A single -inf would make the mean infinite.
        return -logps.clamp(min=LOWEST_LOGP).mean(-1) - math.log(logps.shape[-1])


class LogitMargin(WeightedDistance):
    """`(max z - mean z)^2` over the vocabulary; 0 at the uniform distribution, hundreds for a trained model (PDU).

    The difference is the same for logits z and log-probabilities. Published code takes the logits that follow each answer
    token, which predict the next one, instead of those before it.
    """

    formula = "w (max z - mean z)²"

    def from_distributions(self, logps: Tensor, ref_logps: Tensor, ids: Tensor) -> Tensor:
        logps = logps.clamp(min=LOWEST_LOGP)
        return (logps.amax(-1) - logps.mean(-1)).square()


class _ToOriginal(RetainLoss):
    """Base class of retain losses that keep the distribution close to the original model."""

    original = ("distributions",)

    def values(self, out: TokenOutputs, reference: Reference) -> Tensor:
        assert out.distance is not None
        return out.distance


class KL(_ToOriginal):
    """See `kl`."""

    formula = "KL(π0 ‖ π) on retain answers"

    def from_distributions(self, logps: Tensor, ref_logps: Tensor, ids: Tensor) -> Tensor:
        return kl(logps, ref_logps)


class RowMeanKL(KL):
    """KL averaged over rows: an answer of one word, such as that of a blank, counts as much as a sentence."""

    formula = "KL(π0 ‖ π) on retain answers, mean over tokens of each row, then mean over rows"
    reduction = "row_means"


class KLAndNLL(KL):
    """Sum of both retain losses of ReLearn (arXiv 2502.11190), whose published code averages KL over prompt and padding too."""

    formula = "KL(π0 ‖ π) - log p on retain answers"

    def values(self, out: TokenOutputs, reference: Reference) -> Tensor:
        return super().values(out, reference) - out.logps


class JS(_ToOriginal):
    """See `jensen_shannon`."""

    formula = "JS(π0, π) on retain answers"

    def from_distributions(self, logps: Tensor, ref_logps: Tensor, ids: Tensor) -> Tensor:
        return jensen_shannon(logps, ref_logps)


class FirstTokenJS(JS):
    """`jensen_shannon` to the original model, half on the first token of each answer."""

    formula = "JS(π0, π) on retain answers, half on the 1st token"
    reduction = "sequences"

    def slope(self, logps: Tensor, ref_logps: Tensor, ids: Tensor) -> Tensor:
        return js_slope(logps, ref_logps)

    def values(self, out: TokenOutputs, reference: Reference) -> Tensor:
        return first_token_half(super().values(out, reference), out.mask)


class FirstTokenKL(KL):
    """KL to the original model, half on the first token of each answer: the token at which a refusal would begin."""

    formula = "KL(π0 ‖ π) on retain answers, half on the 1st token"
    reduction = "sequences"

    def values(self, out: TokenOutputs, reference: Reference) -> Tensor:
        return first_token_half(super().values(out, reference), out.mask)


class JSToRefusalRow(ForgetLoss):
    """Learn the labels of refusal rows; the answer itself is seen only as the beginning of some of them.

    Its term is multiplied by the norm of the retain term's gradient in the logits over that of its own, each over the tokens of
    a micro-batch, as in the published code.
    """

    formula = "s JS(π, refusal), half on the 1st token"
    reduction = "sequences"
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


class PreserveKL(PreserveLoss):
    """Keep the original model's next-token distribution on forget answers; see `kl`."""

    formula = "(1 - w / max w) KL(original model ‖ model) on forget answers"
    original = ("distributions",)

    def from_distributions(self, logps: Tensor, ref_logps: Tensor, ids: Tensor) -> Tensor:
        return kl(logps, ref_logps)

    def values(self, out: TokenOutputs) -> Tensor:
        assert out.distance is not None
        return out.distance
