"""The plain retain loss: keep predicting the retain answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from atwu.methods.part import RetainLoss

if TYPE_CHECKING:
    from torch import Tensor

    from atwu.modeling.forward import TokenOutputs
    from atwu.modeling.reference import Reference


def nll(logps: Tensor) -> Tensor:
    """Negative log-likelihood per token of the retain answers, in nats.

    Args:
        logps: log p(x_t | x_<t) under the current model, any shape.
    """
    return -logps


class NLL(RetainLoss):
    """See `nll`."""

    formula = "-log p of retain answers"

    def values(self, out: TokenOutputs, reference: Reference) -> Tensor:
        return nll(out.logps)
