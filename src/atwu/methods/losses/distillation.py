"""Losses that move the model to a teacher: the original model in a state in which it does not recall the answer.

A loss declares how the original model reads the forget rows (`needs`, `reference_specs`) and how its output is compared
(`from_distributions`). Here the teacher reads the question behind a prompt (DUET) or has smoothed attention (ASU); in
`divergence.py` the logit of the answer token is reduced (UNDIAL).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from atwu.methods.component import Loss, Range, RetainLoss, RowsName, number, setting
from atwu.methods.component_inputs import LossTerms
from atwu.methods.losses.divergence import WeightedDistance, kl

if TYPE_CHECKING:
    from torch import Tensor

    from atwu.modeling.forward import TokenOutputs
    from atwu.modeling.reference import Reference, ReferenceSpec


class SmoothedAttention(WeightedDistance):
    """ASU (Zare Zade et al. 2026): KL from the original model with the attention scores of every layer divided by τ.

    The published code also has variants that smooth some layers only, or add a refusal. Formula and defaults are those of that
    code for TOFU; the paper is said to be insensitive to τ between 2 and 2.8.
    """

    formula = "w KL(π0 at attention temperature τ ‖ π)"
    reduction = "row_means"
    needs = ("reference_distributions",)
    attention_temperature: float = number(
        2.3,
        symbol="τ",
        search=Range(2.0, 2.8, log=False),
        positive=True,
        help="ASU: divisor of the teacher's attention scores; larger recalls less, 1 is the original model",
    )

    def reference_specs(self, rows: RowsName, layers: int) -> dict[str, ReferenceSpec]:
        return {
            name: dataclasses.replace(spec, attention_temperature=self.attention_temperature)
            for name, spec in super().reference_specs(rows, layers).items()
        }

    def from_distributions(self, logps: Tensor, ref_logps: Tensor, ids: Tensor) -> Tensor:
        return kl(logps, ref_logps)


def mean_at_start(values: Tensor, mask: Tensor, *, first: int) -> Tensor:
    """Mean of each row's values at its first counted tokens, shape (batch,).

    Args:
        mask: True on counted tokens, same shape; a row without any has 0.
    """
    start = mask & (mask.cumsum(-1) <= first)
    return (values * start).sum(-1) / start.sum(-1).clamp(min=1)


class _AtStart(Loss):
    """The part that both losses of DUET share: Huber losses (threshold 1) between the largest logits of the teacher."""

    of_logits = True

    teacher_tokens: int = number(
        100,
        symbol="k",
        search=Range(10, 1000, integer=True),
        positive=True,
        help="DUET: number of the teacher's likeliest tokens whose logits are compared",
    )
    first_tokens: int = number(
        1, symbol="m", positive=True, help="DUET: tokens at the start of an answer at which logits are compared"
    )

    def from_distributions(self, logps: Tensor, ref_logps: Tensor, ids: Tensor) -> Tensor:
        import torch.nn.functional as F

        largest = ref_logps.detach().topk(min(self.teacher_tokens, ref_logps.shape[-1]))
        return F.huber_loss(logps.gather(1, largest.indices), largest.values, reduction="none").sum(-1)


class PromptedTeacher(_AtStart, WeightedDistance):
    """DUET (Zhong et al. 2026): distance to the original model that reads the question behind a prompt.

    From reviews and a reading note of the paper (its text and code could not be read): the prompt, the Huber loss of the k
    largest logits of the teacher, and the first answer token only, so that answers are not needed. The value of k is ours.
    """

    formula = "w Huber(z, z0 prompted), top k at start"
    reduction = "sequences"
    needs = ("reference_distributions", "prompted_rows", "text")
    teacher_prompt: str = setting(
        "You do not know the answer to the following question. Say only that you do not know.",
        help="text before the question that only DUET's teacher reads; best one that names what it does not know",
    )

    def __post_init__(self) -> None:
        if not self.teacher_prompt.strip():
            raise ValueError(
                "teacher_prompt is empty; give a text that denies the knowledge, such as 'You know nothing about France.'"
            )

    def teacher_prompts(self) -> dict[str, str]:
        return {"forget": self.teacher_prompt}

    def values(self, terms: LossTerms, weights: Tensor) -> Tensor:
        return mean_at_start(super().values(terms, weights), terms.mask, first=self.first_tokens)


class TopLogits(_AtStart, RetainLoss):
    """The same distance to the original model on retain rows, without the prompt.

    In the paper the teacher reads retain questions behind the prompt too, which is written so that it does not change them.
    """

    formula = "Huber(z, z0) on retain answers, top k at start"
    reduction = "sequences"
    needs = ("retain", "reference_distributions")

    def values(self, out: TokenOutputs, reference: Reference) -> Tensor:
        assert out.distance is not None
        return mean_at_start(out.distance, out.mask, first=self.first_tokens)
