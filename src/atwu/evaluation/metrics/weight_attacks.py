"""Base of attacks on the weights (relearning, quantization): do they restore what was unlearned?

Each attack alters the model in place, evaluates the forget rows and restores the weights. Column names end in "@" and
the attack, as in `extraction_strength@int4`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from atwu.data.arrays import FloatArray
from atwu.evaluation.columns import FORGET, AggregateColumn, Column
from atwu.evaluation.intervals import combine, in_percent
from atwu.evaluation.metric import Metric
from atwu.evaluation.metrics.judge_scores import as_percent, unscored, worst
from atwu.evaluation.metrics.memorization import extraction_strength, strength
from atwu.evaluation.questions.prompts import claim, question_and_paraphrases, question_prompt
from atwu.judge.verdicts import Claim

if TYPE_CHECKING:
    from atwu.evaluation.row_statistics import AggregateMetric, ModelComparison


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


class WeightAttack(Metric):
    """Extraction strength and J_P of forget rows under altered weights."""

    needs = (FORGET,)
    needs_plain_weights = True
    judged = True
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
        prompts = [
            [question_prompt(row, question) for question in question_and_paraphrases(row, config.paraphrases)]
            for row in rows
        ]
        self._strengths: dict[str, list[float | None]] = {}
        self._claims: dict[str, list[list[Claim | None]]] = {}
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
            strengths = dict(zip(indices, map(strength, read), strict=True))
            self._strengths[name] = [strengths.get(index) for index in range(len(rows))]
            self._claims[name] = [
                [claim(row, answers[prompt]) for prompt in prompts[index]] if index in strengths else []
                for index, row in enumerate(rows)
            ]

    def claims(self) -> Iterator[Claim | None]:
        return (answer for rows in self._claims.values() for row in rows for answer in row)

    def record(self) -> None:
        for name, claims in self._claims.items():
            verdicts = self.session.verdicts(claims)
            self.record_column(FORGET, f"extraction_strength@{name}", self._strengths[name])
            self.record_column(FORGET, f"J_P@{name}", as_percent(worst(verdicts)), unscored=unscored(verdicts))

    @classmethod
    def derive(cls, sides: ModelComparison) -> Iterator[tuple[str, AggregateMetric]]:
        """Derive the share of the lost knowledge that an attack recovers, in percent, on the measured rows."""
        from atwu.evaluation.row_statistics import AggregateMetric

        this, original = sides.this, sides.original
        if original is None or FORGET not in this.rows:
            return
        for name in this.rows[FORGET].metrics:
            metric, _, attack = name.partition("@")
            if attack not in cls.words or not all(side.has(FORGET, metric) for side in (this, original)):
                continue
            parts = ((this, metric), (this, name), (original, metric))
            every = np.sum(
                [side.values(FORGET, column) for side, column in parts], axis=0
            )  # NaN unless all three have a value
            share = combine(recovered, *(side.mean(FORGET, column, where=every) for side, column in parts))
            yield (
                f"recovered_{name}",
                AggregateMetric(in_percent(share), ((FORGET, name),), rows=int(np.isfinite(every).sum())),
            )


def attack_columns(words: Mapping[str, str]) -> tuple[Column, ...]:
    """Return the columns of extraction strength and J_P under attacks, and of their recovery."""
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
