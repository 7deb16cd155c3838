"""Attacks on the weights, do they restore what was unlearned? Quantization, and relearning on a few rows.

Each attack puts the model into a state (`facts/model_states.py`), evaluates the forget rows and restores the weights. Column
names end in "@" and the attack, as in `extraction_strength@int4`.

Unlearning often moves weights by less than a quantization step, so that the quantized unlearned model equals the
quantized original model (Zhang et al. 2025, "Catastrophic Failure of LLM Unlearning via Quantization"). Quantized
weights are stored in the model's own dtype: values equal those of weight-only integer storage, without its speed.

Unlearned models often recover far more than what they are fine-tuned on (Lynch et al. 2024, "Eight Methods to Evaluate
Robust Unlearning in LLMs"; Hu et al. 2025, "Unlearning or Obfuscating? Jogging the Memory of Unlearned LLMs via Benign
Relearning"), so recovery is measured on rows that do not overlap with the fine-tuning rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from atwu.data.arrays import FloatArray
from atwu.data.encode import EncodedRow
from atwu.evaluation.columns import FORGET, AggregateColumn, Column
from atwu.evaluation.facts.askings import attack_rows, spread_rows
from atwu.evaluation.facts.model_states import INPUTS_PER_SCALE, check_memory, fine_tuned, quantized_weights
from atwu.evaluation.intervals import AggregateMetric, ModelComparison, combine, in_percent, joint_means
from atwu.evaluation.metric import Claims, JudgedColumn, JudgedMetric, MetricSetting
from atwu.evaluation.metrics.judge_scores import worst
from atwu.evaluation.metrics.memorization import extraction_strength, row_extraction_strength
from atwu.evaluation.questions import claim, question_prompts

if TYPE_CHECKING:
    from atwu.evaluation.session import Session

MIN_RELEARNED_STRENGTH = 0.9
"""Extraction strength on its own training rows below which a relearning attack counts as too weak."""


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
                # Inside the context, where the weights are altered.
                encoded = [session.encode_set(FORGET)[index] for index in indices]
                token_rows = session.read(encoded, label=f"read forget@{name}")
                # A new one, since the session's takes its weights for unchanged and would find their stored answers.
                generator = TransformersGenerator(session.model, session.tokenizer, batch_tokens=config.batch_tokens)
                answers = session.generate(
                    [prompt for index in indices for prompt in prompts[index]],
                    label=f"generate@{name}",
                    generator=generator,
                )
            strengths = dict(zip(indices, map(row_extraction_strength, token_rows), strict=True))
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
            # Without a value before the attack and one of the original model, nothing tells what was lost.
            if attack not in cls.words or not all(side.has(FORGET, metric) for side in (this, original)):
                continue
            # Relearning measures held-out rows only, and the other two values must be of the same rows.
            means, rows = joint_means((this, FORGET, metric), (this, FORGET, name), (original, FORGET, metric))
            share = in_percent(combine(recovered, *means))
            yield f"recovered_{name}", AggregateMetric(share, ((FORGET, name),), rows=rows)


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


class Relearning(WeightAttack):
    name = "relearning"
    about = "Relearning attack: forget rows after a few fine-tuning steps on forget rows or on retain rows"
    cost = "two short fine-tuning runs, and one answer and judge call per question of a forget row after each"
    settings = (
        MetricSetting(
            "relearn_rows",
            int,
            8,
            "Training rows of the relearning attacks: forget rows in one attack, retain rows in the other.",
            least=1,
        ),
        MetricSetting("relearn_steps", int, 30, "Training steps of the relearning attacks.", least=1),
        MetricSetting(
            "relearn_learning_rate",
            float,
            2e-5,
            "Learning rate of the relearning attacks (AdamW). A small model trained from scratch needs about 3e-4; too "
            "low a rate makes the attack meaningless.",
            above=0,
        ),
        MetricSetting(
            "relearn_lora_r",
            int,
            None,
            "LoRA rank of the relearning attacks, instead of training all weights; saves memory and needs a higher "
            "learning rate.",
            least=1,
        ),
    )
    uses = ("max_new_tokens", "paraphrases", "seed")
    needs_reference = ("original", "the recovery after relearning")
    words: ClassVar = {"relearn_forget": "relearning on forget rows", "relearn_retain": "relearning on retain rows"}
    columns = attack_columns(words)

    def __init__(self, session: Session) -> None:
        """Choose the training rows; at most half of the forget set."""
        from atwu.modeling.adapters import adapters_of

        super().__init__(session)
        if session.config.relearn_lora_r is None:
            check_memory(session.model)
        elif adapters_of(session.model) is not None:
            raise ValueError(
                f"relearn_lora_r={session.config.relearn_lora_r} trains adapters, but the model has unmerged ones; "
                "leave --relearn-lora-r out to train all weights, or merge the adapters first."
            )
        forget, count, seed = session.sets[FORGET], session.config.relearn_rows, session.config.seed
        self._trained_on: tuple[int, ...] = ()
        self._held_out: tuple[int, ...] = ()
        try:
            self._trained_on, self._held_out = attack_rows(forget, min(count, len(forget) // 2), seed=seed)
        except ValueError as error:
            session.warnings.append(f"no relearning attack on forget rows: {error}")
        self._retain = spread_rows(session.pool, count, seed=seed)

    def prepare(self) -> None:
        """Run every attack; warn about an attack that did not learn its own training rows."""
        super().prepare()
        weak = [strength for strength in self._learned if strength < MIN_RELEARNED_STRENGTH]
        if weak:
            self.session.warnings.append(
                f"relearning attack too weak: the extraction strength of its training rows is only {min(weak):.2f}, so "
                "its recovery is no upper bound; raise --relearn-learning-rate or --relearn-steps."
            )

    def attacks(self) -> Mapping[str, tuple[AbstractContextManager[None], Sequence[int]]]:
        session, config = self.session, self.session.config
        train = partial(
            fine_tuned,
            session.model,
            steps=config.relearn_steps,
            learning_rate=config.relearn_learning_rate,
            seed=config.seed,
            lora_r=config.relearn_lora_r,
        )
        self._learned: list[float] = []
        attacks: dict[str, tuple[AbstractContextManager[None], Sequence[int]]] = {}
        if self._trained_on:
            forget = [session.encode_set(FORGET)[index] for index in self._trained_on]
            attacks["relearn_forget"] = (self._checked(train(forget), forget), self._held_out)
        if self._retain:
            pool = session.encode_pool()
            retain = [pool[index] for index in self._retain]
            attacks["relearn_retain"] = (train(retain), range(len(session.sets[FORGET])))
        return attacks

    @contextmanager
    def _checked(self, training: AbstractContextManager[None], rows: Sequence[EncodedRow]) -> Iterator[None]:
        """Train, then record the extraction strength of the training rows."""
        with training:
            token_rows = self.session.read(rows, label="read relearned rows")
            self._learned.append(fmean(row_extraction_strength(row) or 0.0 for row in token_rows))
            yield
