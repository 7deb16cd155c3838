"""Preserve losses: keep the predictions for tokens of a forget answer that the token weighting spares.

A token-weighted forget loss spares a token of weight 0, but nothing holds that token in place: ascent on its neighbours
moves it as well. A preserve loss gives each forget token the complement of its weight,

    δ · Σ_t (1 - w_t / max_s w_s) · ℓ_t / T,

the maximum taken within the answer, so that the scale of the weights does not matter and the token with the largest weight
is free to change, with `ℓ_t` the divergence from the original model (`kl`) or the negative log-likelihood (`nll`) at token t
and T the number of answer tokens. In the terms of the ATWU paper: structural tokens are not only spared but kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from atwu.methods.component import PreserveLoss
from atwu.methods.losses.divergence import kl
from atwu.methods.losses.likelihood import nll

if TYPE_CHECKING:
    from torch import Tensor

    from atwu.modeling.forward import TokenOutputs


class PreserveKL(PreserveLoss):
    """Keep the original model's next-token distribution; see `kl`."""

    formula = "(1 - w / max w) KL(original model ‖ model) on forget answers"
    needs = ("reference_distributions",)

    def from_distributions(self, logps: Tensor, ref_logps: Tensor, ids: Tensor) -> Tensor:
        return kl(logps, ref_logps)

    def values(self, out: TokenOutputs) -> Tensor:
        assert out.distance is not None
        return out.distance


class PreserveNLL(PreserveLoss):
    """Keep the answer's own words; see `nll`."""

    formula = "-(1 - w / max w) log p of forget answers"

    def values(self, out: TokenOutputs) -> Tensor:
        return nll(out.logps)
