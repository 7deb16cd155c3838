"""Attacks on the weights, do they restore what was unlearned? The base of all, and quantization.

Each attack alters the model in place, evaluates the forget rows and restores the weights. Column names end in "@" and
the attack, as in `extraction_strength@int4`.

Unlearning often moves weights by less than a quantization step, so that the quantized unlearned model equals the
quantized original model (Zhang et al. 2025, "Catastrophic Failure of LLM Unlearning via Quantization"). Quantized
weights are stored in the model's own dtype: values equal those of weight-only integer storage, without its speed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from atwu.data.arrays import FloatArray
from atwu.evaluation.columns import FORGET, AggregateColumn, Column
from atwu.evaluation.intervals import AggregateMetric, in_percent
from atwu.evaluation.metric import JudgedMetric
from atwu.evaluation.metrics.judge_scores import worst
from atwu.evaluation.metrics.memorization import extraction_strength, row_extraction_strength
from atwu.evaluation.questions import claim, question_prompts

if TYPE_CHECKING:
    from torch import Tensor, nn

    from atwu.evaluation.intervals import ModelComparison
    from atwu.evaluation.metric import Claims, JudgedColumn


INPUTS_PER_SCALE: dict[int, int | None] = {8: None, 4: 128}
"""Bits -> number of inputs that share a scale; None: all inputs of an output channel."""


def recovered(
    before: float | FloatArray, after: float | FloatArray, original: float | FloatArray
) -> float | FloatArray:
    """Share of the lost knowledge that an attack recovers: `(after - before) / (original - before)`.

    Applies to a metric that is high for remembered rows, of the unlearned, the attacked and the original model.

    Returns:
        0 for nothing, 1 for everything; may lie outside [0, 1]. NaN if nothing had been lost.
    """
    before, after, original = (np.asarray(value, dtype=np.float64) for value in (before, after, original))
    lost = original - before
    return (after - before) / np.where(lost > 0, lost, np.nan)


class WeightAttack(JudgedMetric):
    """Extraction strength and J_P of forget rows under altered weights."""

    needs = (FORGET,)
    needs_weights = True
    needs_plain_weights = True
    attack = True
    runs_on_references = False
    reference_metrics = ("memorization", "judge")
    words: ClassVar[Mapping[str, str]]
    """Attack -> name of the attack in texts."""

    def attacks(self) -> Mapping[str, tuple[AbstractContextManager[None], Sequence[int]]]:
        """Return attack -> context manager that alters the weights, and indices of the forget rows to measure."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Run every attack; warn about those that fail."""
        from atwu.evaluation.backends import TransformersGenerator

        session, config = self.session, self.session.config
        rows = session.sets[FORGET]
        prompts = [question_prompts(row, config.paraphrases) for row in rows]
        self._strengths: dict[str, list[float | None]] = {}
        self._claims: dict[str, list[Claims]] = {}
        for name, (altered, indices) in self.attacks().items():
            with ExitStack() as stack:
                try:
                    stack.enter_context(altered)
                except (FloatingPointError, ValueError) as error:
                    session.warnings.append(f"no values after {self.words[name]}: {error}")
                    continue
                read = session.read([session.encoded(FORGET)[index] for index in indices], label=f"read forget@{name}")
                answers = session.generate(
                    [prompt for index in indices for prompt in prompts[index]],
                    label=f"generate@{name}",
                    generator=TransformersGenerator(session.model, session.tokenizer, batch_tokens=config.batch_tokens),
                )
            strengths = dict(zip(indices, map(row_extraction_strength, read), strict=True))
            self._strengths[name] = [strengths.get(index) for index in range(len(rows))]
            self._claims[name] = [
                [claim(row, answers[prompt]) for prompt in prompts[index]] if index in strengths else []
                for index, row in enumerate(rows)
            ]

    def judged_columns(self) -> Iterator[JudgedColumn]:
        return ((FORGET, f"J_P@{name}", worst, claims) for name, claims in self._claims.items())

    def record(self) -> None:
        for (name, strengths), judged in zip(self._strengths.items(), self.judged_columns(), strict=True):
            self.record_column(FORGET, f"extraction_strength@{name}", strengths)
            self.record_judged(judged)

    @classmethod
    def derive(cls, sides: ModelComparison) -> Iterator[tuple[str, AggregateMetric]]:
        """Derive the share of the lost knowledge that an attack recovers, in percent, on the measured rows."""
        this, original = sides.this, sides.original
        if original is None or FORGET not in this.rows:
            return
        for name in this.rows[FORGET].metrics:
            metric, _, attack = name.partition("@")
            if attack not in cls.words or not all(side.has(FORGET, metric) for side in (this, original)):
                continue
            share, rows = sides.joint(
                recovered, (this, FORGET, metric), (this, FORGET, name), (original, FORGET, metric)
            )
            yield f"recovered_{name}", AggregateMetric(in_percent(share), ((FORGET, name),), rows=rows)


def attack_columns(words: Mapping[str, str]) -> tuple[Column, ...]:
    recorded = [
        Column(
            f"{name}@{attack}",
            formula,
            f"{title} after {what}",
            f"{title} on the forget set after {what}",
            sets=(FORGET,),
            range=(0.0, top),
            digits=digits,
        )
        for attack, what in words.items()
        for name, formula, title, top, digits in (
            ("extraction_strength", extraction_strength, "ES", 1.0, 3),
            ("J_P", worst, "J_P", 100.0, 1),
        )
    ]
    back = [
        AggregateColumn(
            f"recovered_{column.name}",
            recovered,
            f"recovered {column.title}",
            f"percentage of the lost {column.title.replace(' after ', ' recovered by ')}; 100 is complete recovery",
            direction="down",
            range=(None, None),
            digits=1,
        )
        for column in recorded
    ]
    return (*recorded, *back)


def rounded_weight(weight: Tensor, bits: int, group: int | None = None) -> Tensor:
    """Quantize to symmetric integers: `s * round(w / s)` with `s = max |w| / (2^(bits - 1) - 1)`, ties to even.

    Args:
        weight: Floating-point matrix, shape (outputs, inputs).
        bits: Bits per integer, >= 2; levels are -127 to 127 for 8 bits and -7 to 7 for 4.
        group: Number of adjacent inputs that share a scale (the last group may be smaller); None: all inputs.

    Returns:
        Same shape and dtype. Each weight moves by at most half a step, up to the precision of the dtype. Idempotent.
    """
    import torch
    from torch import nn

    levels = 2 ** (bits - 1) - 1
    outputs, inputs = weight.shape
    group = min(group or inputs, inputs)
    values = weight.detach().to(torch.promote_types(weight.dtype, torch.float32))
    values = nn.functional.pad(values, (0, -inputs % group)).view(outputs, -1, group)
    largest = values.abs().amax(dim=-1, keepdim=True)
    integers = (values / largest.masked_fill(largest == 0, 1) * levels).round()
    # Dividing by the levels first reproduces the largest weight exactly.
    result: Tensor = integers / levels * largest
    return result.view(outputs, -1)[:, :inputs].to(weight.dtype)


@contextmanager
def quantized_weights(model: nn.Module, bits: int) -> Iterator[None]:
    """Quantize the weight matrix of every linear layer in place; restore the model on leaving.

    As with bitsandbytes and GPTQ, embeddings, output head, biases, norms and unmerged LoRA matrices keep their
    precision. int8 has one scale per output channel, int4 one per 128 inputs.
    """
    from atwu.modeling.layers import restored

    weights = list(_matrices(model))
    if not weights:
        raise ValueError(
            f"{type(model).__name__} has no floating-point linear layer to quantize; load it without quantization."
        )
    with restored(model):
        for weight in weights:
            weight.copy_(rounded_weight(weight, bits, INPUTS_PER_SCALE[bits]))
        yield


class QuantizationAttack(WeightAttack):
    name = "quantization"
    about = "Quantization attack: forget rows after 8-bit and 4-bit weight quantization"
    cost = "one forward pass, and one answer and judge call per question of a forget row, for each bit width"
    uses = ("max_new_tokens", "paraphrases")
    needs_reference = ("original", "the recovery after quantization")
    words: ClassVar = {f"int{bits}": f"{bits}-bit quantization" for bits in INPUTS_PER_SCALE}
    columns = attack_columns(words)

    def attacks(self) -> Mapping[str, tuple[AbstractContextManager[None], Sequence[int]]]:
        model, everything = self.session.model, range(len(self.session.sets[FORGET]))
        return {f"int{bits}": (quantized_weights(model, bits), everything) for bits in INPUTS_PER_SCALE}


def _matrices(model: nn.Module) -> Iterator[Tensor]:
    """Yield views of the weights to quantize, shape (outputs, inputs), without gradient."""
    from torch import Tensor, nn
    from transformers.pytorch_utils import Conv1D

    ends = [getattr(model, name, lambda: None)() for name in ("get_input_embeddings", "get_output_embeddings")]
    excluded = {id(weight) for end in ends if end is not None for weight in end.parameters()}
    for name, module in model.named_modules():
        if not isinstance(module, (nn.Linear, Conv1D)) or "lora_" in name:
            continue
        weight = module.weight
        if isinstance(weight, Tensor) and weight.is_floating_point() and id(weight) not in excluded:
            yield weight.data.T if isinstance(module, Conv1D) else weight.data
