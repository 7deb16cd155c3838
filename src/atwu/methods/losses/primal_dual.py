"""PDU: flatten the logits of forget answers while the retain loss stays below a limit (Entesari et al. 2025, arXiv 2506.05314).

The weight of the retain loss is the multiplier of that constraint, updated in every optimizer step.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from atwu.methods.component import Range, number
from atwu.methods.losses.divergence import LOWEST_LOGP, WeightedDistance
from atwu.methods.losses.likelihood import NLL

if TYPE_CHECKING:
    from torch import Tensor


class LogitMargin(WeightedDistance):
    """`(max z - mean z)^2` over the vocabulary; 0 at the uniform distribution, hundreds for a trained model.

    The difference is the same for logits z and log-probabilities. Published code takes the logits that follow each answer
    token, which predict the next one, instead of those before it.
    """

    formula = "w (max z - mean z)²"

    def from_distributions(self, logps: Tensor, ref_logps: Tensor, ids: Tensor) -> Tensor:
        logps = logps.clamp(min=LOWEST_LOGP)
        return (logps.amax(-1) - logps.mean(-1)).square()


class LimitedNLL(NLL):
    """NLL with a limit: its weight is a multiplier that starts as `retain_weight`, see `DualAscent`.

    The multiplier follows the loss of each optimizer step; published code updates it in every micro-batch.
    """

    formula = "-log p of retain answers, at most ε"
    retain_bound: float = number(
        0.3,
        symbol="ε",
        search=Range(0.05, 1.0),
        help="PDU: limit of the retain loss in nats; set it above that of the original model",
    )
    dual_step: float = number(
        5.0,
        symbol="η",
        search=Range(0.5, 20.0),
        help="PDU: step size of the retain weight; larger enforces the limit sooner",
    )
    dual_warmup: float = number(5.0, symbol="E", help="PDU: epochs before the retain weight changes")

    def weight_updates(self, start: float) -> DualAscent:
        return DualAscent(self, start)


class DualAscent:
    """The retain weight of a run with a `LimitedNLL`; in checkpoints as `retain_multiplier.json`."""

    _NAME = "retain_multiplier.json"

    def __init__(self, limited: LimitedNLL, start: float) -> None:
        self._limited, self.multiplier = limited, start

    def update(self, retain: float, epoch: float) -> None:
        """`max(0, lambda + eta (L_r - epsilon))` after an optimizer step: rises while the retain loss is above its limit."""
        limited = self._limited
        if epoch >= limited.dual_warmup:
            self.multiplier = max(0.0, self.multiplier + limited.dual_step * (retain - limited.retain_bound))

    def save(self, folder: str) -> None:
        Path(folder, self._NAME).write_text(json.dumps(self.multiplier) + "\n", encoding="utf-8")

    def load(self, folder: str) -> None:
        self.multiplier = json.loads(Path(folder, self._NAME).read_text(encoding="utf-8"))
