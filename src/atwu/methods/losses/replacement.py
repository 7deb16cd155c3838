"""What is said instead of a forgotten answer: losses on another answer to the same question, beside any forget loss.

The first token has half of the weight of an answer, because it decides how the answer goes on (JensUn++, Peleg et al. 2026,
arXiv 2607.09236).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from atwu.methods.component import ReplacementLoss
from atwu.methods.losses.jensun_plus import first_token_half

if TYPE_CHECKING:
    from torch import Tensor


class LearnRefusal(ReplacementLoss):
    """Learn to say that one does not know, in one of a hundred ways that are drawn anew in every epoch."""

    formula = "-log p of a refusal, half on the 1st token"
    needs: ClassVar[Sequence[str]] = ("refusals", "text")

    def values(self, logps: Tensor, mask: Tensor) -> Tensor:
        return first_token_half(-logps, mask)


class LearnAlternative(LearnRefusal):
    """Learn the plausible false answer in the column `alternate` of each row, as AltPO (Mekala et al. 2024) prefers it."""

    formula = "-log p of the row's alternate, half on the 1st token"
    needs = ("alternates", "own_alternates", "text")
