"""What is said instead of a forgotten answer: losses on another answer to the same question, beside any forget loss.

The first token has half of the weight of an answer, because it decides how the answer goes on (JensUn++, Peleg et al. 2026,
arXiv 2607.09236).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from atwu.methods.component import ReplacementLoss, setting
from atwu.methods.losses.divergence import KL
from atwu.methods.losses.jensun_plus import first_token_half

if TYPE_CHECKING:
    from torch import Tensor

    from atwu.modeling.forward import TokenOutputs
    from atwu.modeling.reference import Reference


class LearnAnswer(ReplacementLoss):
    """Learn another answer to each forget question."""

    def values(self, logps: Tensor, mask: Tensor) -> Tensor:
        return first_token_half(-logps, mask)


class LearnRefusal(LearnAnswer):
    """Learn to say that one does not know, always in the same words: a choice among many could never be learned."""

    formula = "-log p of a refusal, half on the 1st token"
    needs: ClassVar[Sequence[str]] = ("refusal_answers", "text")
    refusal_sentence: str = setting(
        "I'm sorry, I don't know the answer to that.",
        help="refusal that the model learns; best one that it would give itself",
    )


class LearnAlternative(LearnAnswer):
    """Learn the plausible false answer in the column `alternate` of each row, as AltPO (Mekala et al. 2024) prefers it."""

    formula = "-log p of the row's alternate, half on the 1st token"
    needs = ("alternates", "own_alternates", "text")


class FirstTokenKL(KL):
    """KL to the original model, half on the first token of each answer: the token at which a refusal would begin."""

    formula = "KL(π0 ‖ π) on retain answers, half on the 1st token"
    reduction = "sequences"

    def values(self, out: TokenOutputs, reference: Reference) -> Tensor:
        return first_token_half(super().values(out, reference), out.mask)
