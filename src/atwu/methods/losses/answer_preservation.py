"""AP: keep a retain answer likelier than a refusal of its question (Yuan et al. 2024, arXiv 2410.08109).

Learning to refuse forget questions makes a model refuse retain questions as well; the loss compares the two there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from atwu.methods.component import Range, RetainLoss, number

if TYPE_CHECKING:
    from torch import Tensor

    from atwu.modeling.forward import TokenOutputs


def answer_preservation(answer: Tensor, alternate: Tensor, *, beta: float) -> Tensor:
    """`-(1 / beta) log sigmoid(beta (log p(answer) - log p(alternate)))`.

    Args:
        answer: log-probability of each whole answer, shape (batch,).
        alternate: log-probability of the refusal of the same question, shape (batch,).
        beta: inverse temperature > 0; larger stops at a smaller gap between the two.

    Returns:
        Shape (batch,), positive.
    """
    import torch.nn.functional as F

    return -F.logsigmoid(beta * (answer - alternate)) / beta


class AnswerPreservation(RetainLoss):
    """See `answer_preservation`."""

    formula = "-(1/b) log σ(b log π(y)/π(refusal)) on retain answers"
    needs = ("retain", "retain_alternates")
    reduction = "sequences"
    answer_beta: float = number(
        0.1,
        symbol="b",
        search=Range(0.05, 0.5),
        positive=True,
        help="AP: inverse temperature; larger stops at a smaller gap between answer and refusal",
    )

    def values_against(self, out: TokenOutputs, alternate: TokenOutputs) -> Tensor:
        return answer_preservation(out.logps.sum(1), alternate.logps.sum(1), beta=self.answer_beta)
