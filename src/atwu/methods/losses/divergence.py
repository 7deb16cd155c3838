"""Distances between next-token distributions, for JensUn, UNDIAL and the retain losses KL and JS.

Each returns one value per token, shape (tokens,), from rows of natural log-probabilities over the vocabulary, shape
(tokens, vocabulary). Gradient flows through `logps` alone. Entries may be as low as -inf: what has no probability in
either distribution adds nothing.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

from atwu.methods.component import ForgetLoss, RetainLoss
from atwu.methods.component_inputs import LossInputs, LossTerms
from atwu.methods.component_options import Range, number, setting
from atwu.methods.losses.reduction import shares

if TYPE_CHECKING:
    from torch import Tensor

    from atwu.modeling.batches import TokenBatch
    from atwu.modeling.distribution_distance import Comparison
    from atwu.modeling.forward import TokenOutputs
    from atwu.modeling.reference import Reference

_LN2 = math.log(2.0)
_LOWEST_LOGP = -1e4
"""exp() of it is 0 in float64 too, and 0 times it is 0, not nan."""
_EPSILON = 2.0**-24
"""1 minus it is the largest probability below 1 in float32."""


def kl(logps: Tensor, ref_logps: Tensor) -> Tensor:
    """`KL(reference || current)`: sum of `p0 (log p0 - log p)`, large where the model drops what the reference says.

    Args:
        logps: log-probabilities under the current model, shape (tokens, vocabulary).
        ref_logps: the same under the starting model, no gradient.

    Returns:
        Nats >= 0, shape (tokens,); infinite where the current model rules out what the reference allows.
    """
    ref_logps = ref_logps.detach()
    return _expected(ref_logps.exp(), ref_logps - logps)


def jensen_shannon(logps: Tensor, ref_logps: Tensor) -> Tensor:
    """Jensen-Shannon divergence `KL(p || m) / 2 + KL(p0 || m) / 2` with `m = (p + p0) / 2` (JensUn, Singh et al. 2025).

    Args:
        logps: log-probabilities under the current model, shape (tokens, vocabulary).
        ref_logps: the same under the starting model, no gradient.

    Returns:
        Nats in [0, ln 2], shape (tokens,).
    """
    import torch.nn.functional as F

    logps, ref_logps = logps.clamp(min=_LOWEST_LOGP), ref_logps.detach().clamp(min=_LOWEST_LOGP)
    # log p - log m = ln 2 - softplus(log p0 - log p): nothing overflows, and nothing is lost where p is close to p0.
    gap = ref_logps - logps
    terms = logps.exp() * (_LN2 - F.softplus(gap)) + ref_logps.exp() * (_LN2 - F.softplus(-gap))
    return terms.sum(-1) / 2


def js_to_tokens(logps: Tensor, ids: Tensor) -> Tensor:
    """Jensen-Shannon divergence between the current distribution and a target with mass 1 on each given token.

    With one id per row the target is one-hot, and the value lies in [0, ln 2]:
    `(p log(2p / (1 + p)) + (1 - p) ln 2 + log(2 / (1 + p))) / 2` with p the probability of that token. More ids give a
    target of larger mass, which is no distribution, as in the first published code of JensUn (Singh et al. 2025).

    Args:
        logps: log-probabilities under the current model, shape (tokens, vocabulary), each row normalised.
        ids: token ids of each row's target, shape (tokens, k); a token named twice in a row counts once.

    Returns:
        Nats, shape (tokens,); smallest where the given tokens have all the probability.
    """
    earlier = (ids[:, :, None] == ids[:, None, :]).tril(diagonal=-1).any(dim=-1)
    logp = logps.gather(1, ids).clamp(min=_LOWEST_LOGP)
    p, p_minus_1 = logp.exp(), logp.expm1()
    terms = p * logp - (1 + p) * (p_minus_1 / 2).log1p() - _LN2 * p_minus_1
    mass = (~earlier).sum(-1)
    return (terms.masked_fill(earlier, 0.0).sum(-1) + _LN2 * (1 - mass)) / 2


def self_distillation(logps: Tensor, ref_logps: Tensor, ids: Tensor, *, beta: float) -> Tensor:
    """Cross entropy to the reference with its answer token pushed down (UNDIAL, Dong et al. 2025).

    `-sum of q log p` with `q = softmax(z0 - beta e)`, z0 the reference's logits (or log-probabilities, which differ by
    a constant) and e one-hot at the answer's token. Minimised, not ascended.

    Args:
        logps: log-probabilities under the current model, shape (tokens, vocabulary).
        ref_logps: the same under the starting model, no gradient.
        ids: the answer's token, shape (tokens, 1).
        beta: what to take off its logit, >= 0; larger forgets more, 0 distils the reference itself.

    Returns:
        Nats, at least the entropy of q, shape (tokens,).
    """
    down = ref_logps.new_full(ids.shape, -beta)
    target = ref_logps.detach().scatter_add(1, ids, down).softmax(dim=-1)
    return _expected(target, -logps)


def weighted_self_distillation(
    logps: Tensor, rest: Tensor, weights: Tensor, ref_logps: Tensor, *, beta: float
) -> Tensor:
    """Cross entropy to the reference with each answer token pushed down as much as it weighs.

    `-sum of q log p` with `q = softmax(z0 - beta w e)`: a token of weight 1 is pushed down as by UNDIAL, one of weight 0 is
    kept as the reference says it. Equal to `-q_y log p_y + (1 - q_y) rest` with `q_y = sigmoid(logit p0_y - beta w)`.

    Args:
        logps: log-probability of the answer's token under the current model, any shape.
        rest: cross entropy to the reference without the answer's token (`self_distillation` with an infinite beta).
        weights: token weights in [0, 1]; gradient flows to them, too.
        ref_logps: log-probability of the answer's token under the starting model, no gradient.
        beta: what to take off the logit of a token of weight 1, >= 0.

    Returns:
        Nats, at least the entropy of q, in the shape of `logps`.
    """
    # What the start is certain of can be pushed down, too: log(1 - p0) must be a number.
    certain = ref_logps.detach().clamp(max=-_EPSILON)
    pushed = certain - (-certain.expm1()).log() - beta * weights
    return pushed.sigmoid() * -logps + (-pushed).sigmoid() * rest


def _expected(probabilities: Tensor, values: Tensor) -> Tensor:
    """Mean of `values` under `probabilities`, which carry no gradient; values of probability 0 do not count."""
    return (probabilities * values.masked_fill(probabilities == 0, 0.0)).sum(-1)


class WeightedDistance(ForgetLoss):
    """A distance, weighted: between distributions, or what a subclass measures."""

    def values(self, terms: LossTerms, weights: Tensor) -> Tensor:
        assert terms.distance is not None
        # A distance is minimised, so learned scores would all shrink; as shares of their row only ratios count.
        return (shares(weights, terms.mask) if terms.learned else weights) * terms.distance


class JSToRefusal(WeightedDistance):
    """Towards the tokens of a refusal, one after another (JensUn); see `js_to_tokens`."""

    formula = "w JS(π, the refusal's tokens in turn)"
    needs = ("refusal",)
    refusal: str = setting("No idea", help="what JensUn wants to hear instead of an answer")
    legacy: bool = setting(
        False,
        help="JensUn as published: both refusal tokens at every position, from the prompt's first to the row's last",
    )

    @property
    def all_positions(self) -> bool:  # type: ignore[override]
        return self.legacy

    def target_token_ids(self, tokenizer: Any) -> tuple[int, ...]:
        """Token ids of the refusal inside a text, without special tokens.

        Raises:
            ValueError: no tokenizer, or nothing left of the text.
        """
        if tokenizer is None:
            raise ValueError("JensUn aims at the tokens of a refusal; give the tokenizer as processing_class.")
        ids = tuple(tokenizer(self.refusal, add_special_tokens=False)["input_ids"])
        if not ids:
            raise ValueError(f"the refusal {self.refusal!r} has no tokens.")
        return ids

    def comparison(self, forget: TokenBatch, given: LossInputs) -> Comparison:
        import torch

        from atwu.modeling.distribution_distance import Comparison

        if not given.refusal_ids:
            raise ValueError("JensUn needs refusal_ids, the tokens of the refusal it aims at.")
        mask = forget.mask
        refusal = torch.tensor(given.refusal_ids, device=mask.device)
        place = (mask.cumsum(1) - 1)[mask]
        ids = refusal.expand(place.shape[0], -1) if self.legacy else refusal[place % refusal.shape[0]][:, None]
        return Comparison(lambda logps, ref, ids: js_to_tokens(logps, ids), None, ids)


class SelfDistillation(WeightedDistance):
    """UNDIAL; see `self_distillation`."""

    formula = "w CE(softmax(z0 - β on the token), π)"
    needs = ("reference_distributions",)
    beta: float = number(
        1.0,
        symbol="β",
        search=Range(1.0, 30.0),
        help="what is taken off the logit of the memorised token; larger forgets more",
    )

    def comparison(self, forget: TokenBatch, given: LossInputs) -> Comparison:
        from atwu.modeling.distribution_distance import Comparison

        ids = forget.labels[:, 1:][forget.mask][:, None]
        return Comparison(functools.partial(self_distillation, beta=self.beta), given.reference.teacher("forget"), ids)


class MaskedSelfDistillation(SelfDistillation):
    """UNDIAL averaged over the tokens that a 0/1 weighting selects (FUNDIAL)."""

    formula = "w CE(softmax(z0 - β on the token), π), mean over selected tokens"
    reduction = "selected"


class WeightedSelfDistillation(ForgetLoss):
    """See `weighted_self_distillation`."""

    formula = "CE(softmax(z0 - β w on the token), π)"
    needs = ("reference_distributions", "reference_logps")
    beta: float = number(
        20.0,
        symbol="β",
        search=Range(2.0, 60.0),
        help="what is taken off the logit of a token of weight 1; larger forgets more",
    )

    def comparison(self, forget: TokenBatch, given: LossInputs) -> Comparison:
        return SelfDistillation(beta=math.inf).comparison(forget, given)

    def values(self, terms: LossTerms, weights: Tensor) -> Tensor:
        assert terms.distance is not None
        return weighted_self_distillation(terms.logps, terms.distance, weights, terms.reference, beta=self.beta)


class _ToStart(RetainLoss):
    """Stay close to the starting model's distribution."""

    needs = ("retain", "reference_distributions")

    def values(self, out: TokenOutputs, reference: Reference) -> Tensor:
        assert out.distance is not None
        return out.distance


class KL(_ToStart):
    """See `kl`."""

    formula = "KL(starting model ‖ model) on retain answers"

    def comparison(self, reference: Reference) -> Comparison:
        from atwu.modeling.distribution_distance import Comparison

        return Comparison(lambda logps, ref, ids: kl(logps, ref), reference.teacher("retain"))


class JS(_ToStart):
    """See `jensen_shannon`."""

    formula = "JS(starting model, model) on retain answers"

    def comparison(self, reference: Reference) -> Comparison:
        from atwu.modeling.distribution_distance import Comparison

        return Comparison(lambda logps, ref, ids: jensen_shannon(logps, ref), reference.teacher("retain"))
