"""Scores of membership attacks on the rows of the forget set (members) and of the holdout (never trained on).

Higher means less likely a member. What an attack can tell from them, the area under its curve and privleak, comes from
both sets together (see `derive.py`).
"""

from __future__ import annotations

from atwu.evaluation.gradient_norm import gradient_norms
from atwu.evaluation.membership import loss_score, min_k, min_k_plus_plus, zlib_score
from atwu.evaluation.panel.group import Group
from atwu.evaluation.panel.session import FORGET, HOLDOUT
from atwu.evaluation.teacher_forced import TokenRow

ATTACKS = ("loss", "zlib", "min_k", "min_k_plus_plus", "gradient_norm")


class Membership(Group):
    """Loss, zlib, min-k and min-k++."""

    def read(self) -> None:
        """Read both sets."""
        for split in (FORGET, HOLDOUT):
            self.session.tokens(split)

    def record(self) -> None:
        """Record the scores of every row."""
        for split in (FORGET, HOLDOUT):
            rows = self.session.tokens(split)
            k = self.session.config.min_k
            losses = [loss_score(row.logps) for row in rows]
            texts = [row.answer for row in self.session.sets[split]]
            scores: dict[str, list[float | None]] = {
                "loss": losses,
                "zlib": [zlib_score(loss, text) for loss, text in zip(losses, texts, strict=True)],
                "min_k": [min_k(row.logps[row.content], k=k) for row in rows],
                "min_k_plus_plus": [_min_k_plus_plus(row, k) for row in rows],
            }
            for name, values in scores.items():
                self.session.record(split, f"mia_{name}", values, direction="none", shown=False)


def _min_k_plus_plus(row: TokenRow, k: float) -> float | None:
    assert row.variance is not None
    kept = row.content
    return min_k_plus_plus(row.logps[kept], -row.entropy[kept], row.variance[kept], k=k)


class GradientNorm(Group):
    """The norm of the loss gradient: one backward pass per row, the slow attack."""

    def prepare(self) -> None:
        """Take the gradients."""
        assert self.session.model is not None
        self._norms = {
            split: gradient_norms(
                self.session.model,
                self.session.encoded(split),
                progress=f"gradients of {split}" if self.session.progress else None,
            )
            for split in (FORGET, HOLDOUT)
        }

    def record(self) -> None:
        """Record them."""
        for split, norms in self._norms.items():
            self.session.record(split, "mia_gradient_norm", norms, direction="none", shown=False)
