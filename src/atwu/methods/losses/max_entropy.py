"""ME: move the distribution at each answer position to the uniform one (Yuan et al. 2024, arXiv 2410.08109)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from atwu.methods.losses.divergence import LOWEST_LOGP, WeightedDistance

if TYPE_CHECKING:
    from torch import Tensor


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

    def from_distributions(self, logps: Tensor, ref_logps: Tensor, ids: Tensor) -> Tensor:
        return kl_from_uniform(logps)
