"""ME: move the distribution at each answer position to the uniform one (Yuan et al. 2024, arXiv 2410.08109)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from atwu.methods.component_inputs import LossInputs
from atwu.methods.losses.divergence import LOWEST_LOGP, WeightedDistance

if TYPE_CHECKING:
    from torch import Tensor

    from atwu.modeling.batches import TokenBatch
    from atwu.modeling.distribution_distance import Comparison


def kl_from_uniform(logps: Tensor) -> Tensor:
    """`KL(u || p) = -log V - mean of log p` with u uniform over the vocabulary of size V.

    Args:
        logps: log-probabilities under the current model, shape (tokens, vocabulary).

    Returns:
        Nats >= 0, shape (tokens,).
    """
    return -logps.clamp(min=LOWEST_LOGP).mean(-1) - math.log(logps.shape[-1])


class MaxEntropy(WeightedDistance):
    """See `kl_from_uniform`.

    The published code counts the tokens of the question too, and adds 1e-12 to every probability.
    """

    formula = "w KL(uniform ‖ π)"

    def comparison(self, forget: TokenBatch, inputs: LossInputs) -> Comparison:
        from atwu.modeling.distribution_distance import Comparison

        return Comparison(lambda logps, ref, ids: kl_from_uniform(logps))
