"""CE-U: move each answer position to the model's own distribution without the answer token (Yang 2025, arXiv 2503.01224)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from atwu.methods.component import Range, number
from atwu.methods.component_inputs import LossTerms
from atwu.methods.losses.divergence import WeightedDistance, self_distillation

if TYPE_CHECKING:
    from torch import Tensor


def cross_entropy_unlearning(logps: Tensor, ids: Tensor) -> Tensor:
    """`-sum of q log p` with `q = softmax(z)` where the logit of the answer token is minus infinity; q has no gradient.

    UNDIAL with the current model as reference and an infinite beta. The gradient with respect to the logits is p - q, whose
    entry at the answer token is its probability: large while the token is known, vanishing when it is forgotten.

    Args:
        logps: log-probabilities under the current model, shape (tokens, vocabulary).
        ids: the answer token, shape (tokens, 1).

    Returns:
        Nats, at least -log(1 - p of the answer token), shape (tokens,).
    """
    return self_distillation(logps, logps, ids, beta=math.inf)


class CrossEntropyUnlearning(WeightedDistance):
    """See `cross_entropy_unlearning`.

    The first tokens of an answer stay, as in a footnote of the paper and in its code. The code divides by the number of the
    other tokens, this loss by that of all.
    """

    formula = "w CE(π without y_t, π) after k tokens"
    kept_start: int = number(
        1,
        symbol="k",
        search=Range(0, 2, log=False, integer=True),
        help="CE-U: tokens at the start of an answer to leave alone",
    )

    def from_distributions(self, logps: Tensor, ref_logps: Tensor, ids: Tensor) -> Tensor:
        return cross_entropy_unlearning(logps, ids)

    def values(self, terms: LossTerms, weights: Tensor) -> Tensor:
        return super().values(terms, weights) * (terms.mask.cumsum(1) > self.kept_start)
