"""Losses that move the model to a teacher: the original model in a state in which it does not recall the answer.

A loss declares how the original model reads the forget rows (`original`, `reference_specs`) and how its output is compared
(`from_distributions`). Here the teacher reads the question behind a prompt (DUET), behind two (ELM), or has smoothed attention
(ASU); in `divergence.py` the logit of the answer token is reduced (UNDIAL).
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from atwu.methods.component import Loss, Range, RetainLoss, RowsName, number, setting
from atwu.methods.component_inputs import AnswerRows, LossInputs, LossTerms, row_means
from atwu.methods.losses.divergence import LOWEST_LOGP, WeightedDistance, kl

if TYPE_CHECKING:
    from torch import Tensor

    from atwu.modeling.batches import TokenBatch
    from atwu.modeling.distribution_distance import Comparison
    from atwu.modeling.forward import TokenOutputs
    from atwu.modeling.reference import Reference, ReferenceSpec


class SmoothedAttention(WeightedDistance):
    """ASU (Zare Zade et al. 2026): KL from the original model with the attention scores of every layer divided by τ.

    The published code also has variants that smooth some layers only, or add a refusal. Formula and defaults are those of that
    code for TOFU; the paper is said to be insensitive to τ between 2 and 2.8.
    """

    formula = "w KL(π0 at attention temperature τ ‖ π)"
    reduction = "row_means"
    original = ("distributions",)
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
    original = ("distributions",)
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
    original = ("distributions",)

    def values(self, out: TokenOutputs, reference: Reference) -> Tensor:
        assert out.distance is not None
        return mean_at_start(out.distance, out.mask, first=self.first_tokens)


READINGS = ("forget", "expert", "novice")
"""Rows that the original model reads, in this order: without a prompt, and behind each of the two."""


class NoviceTeacher(WeightedDistance):
    """`mean of w KL(q || p) - phi mean of log p(own answer)`, means over the tokens of an answer (ELM).

    Gandikota et al. 2024 (arXiv 2410.02760): move the model to what a novice would say, in fluent words.
    `log q = log p0 + eta (log p_novice - log p_expert)` on its k likeliest tokens, normalized, each reading at temperature T.
    As in the published code, of which the defaults are too, eta rises linearly from the first to the last token of an answer.
    The own answer is sampled from the same combination with `sample_eta`, at temperature 1. The original model should be in
    float32: errors of its logits are multiplied by eta.
    """

    formula = "w KL(π0 as novice, η ‖ π) - φ log p(own)"
    reduction = "sequences"
    original = ("distributions",)
    reads_alternates = True
    eta: float = number(
        1000.0,
        symbol="η",
        search=Range(10.0, 1000.0),
        help="ELM: exponent of novice over expert at the last token of an answer; larger forgets more",
    )
    eta_start: float = number(1.0, symbol="η1", help="ELM: the same exponent at the first token of an answer")
    target_tokens: int = number(
        50,
        symbol="k",
        search=Range(10, 1000, integer=True),
        positive=True,
        help="ELM: number of likeliest tokens that the target distribution keeps",
    )
    target_temperature: float = number(
        1.2, symbol="T", positive=True, help="ELM: temperature of the original model's distributions in the target"
    )
    fluency_weight: float = number(
        1.0,
        symbol="φ",
        search=Range(0.1, 5.0),
        help="phi: weight of the log-likelihood of the own sampled answer; larger stays more fluent",
    )
    sample_eta: float = setting(
        3.0, least=0, help="exponent of novice over expert in the distribution that ELM samples whole answers from"
    )
    expert_prompt: str = setting(
        "An expert who knows every detail of the subject answers the following question.",
        help="text before the question behind which ELM's teacher is an expert; best one that names the subject",
    )
    novice_prompt: str = setting(
        "A novice who knows nothing about the subject answers the following question.",
        help="text before the question behind which ELM's teacher is a novice; best one that names the subject",
    )

    def __post_init__(self) -> None:
        if not (self.expert_prompt.strip() and self.novice_prompt.strip()):
            raise ValueError("expert_prompt or novice_prompt is empty; give two texts that name the subject.")

    def teacher_prompts(self) -> dict[str, str]:
        return {"expert": self.expert_prompt, "novice": self.novice_prompt}

    def sampled_readings(self) -> dict[str, float]:
        # As in the target: log p0 + eta (log p_novice - log p_expert).
        return dict(zip(READINGS, (1.0, -self.sample_eta, self.sample_eta), strict=True))

    def other_answers(self, rows: AnswerRows) -> None:
        return None

    def reference_specs(self, rows: RowsName, layers: int) -> dict[str, ReferenceSpec]:
        return dict.fromkeys(READINGS, super().reference_specs(rows, layers)[rows])

    def comparison(self, rows: RowsName, batch: TokenBatch, inputs: LossInputs) -> Comparison | None:
        comparison = super().comparison(rows, batch, inputs)
        assert comparison is not None
        return dataclasses.replace(comparison, teacher=inputs.reference.teacher(*READINGS))

    def compared_ids(self, batch: TokenBatch, inputs: LossInputs) -> Tensor:
        """Return the place of each counted token in its answer, and that of the last one, shape (tokens, 2)."""
        import torch

        place = batch.mask.cumsum(1) - 1
        return torch.stack([place, place[:, -1:].expand_as(place)], dim=2)[batch.mask]

    def from_distributions(self, logps: Tensor, ref_logps: Tensor, ids: Tensor) -> Tensor:
        """Compute KL from the target; `ref_logps` has shape (tokens, readings, vocabulary)."""
        readings = ref_logps.detach().clamp(min=LOWEST_LOGP) / self.target_temperature
        plain, expert, novice = readings.log_softmax(-1).unbind(1)
        place, last = ids.to(plain).unbind(1)
        eta = self.eta_start + (self.eta - self.eta_start) * place / last.clamp(min=1)
        target = plain + eta[:, None] * (novice - expert)
        # What the product of readings makes of unlikely tokens is noise: eta multiplies the errors of their logits.
        least = target.topk(min(self.target_tokens, target.shape[-1])).values[:, -1:]
        return kl(logps, target.masked_fill(target < least, -math.inf).log_softmax(-1))

    def values(self, terms: LossTerms, weights: Tensor) -> Tensor:
        assert terms.alternate_logps is not None
        assert terms.alternate_mask is not None
        erased = row_means(super().values(terms, weights), terms.mask)
        return erased - self.fluency_weight * row_means(terms.alternate_logps, terms.alternate_mask)
