"""Judge scores: whether the model states the fact of a row, over its question and paraphrases.

J_P is the worst case over the question and its paraphrases, J_ICR the same with in-context examples (in-context
relearning), J_W the worst of both, J_AVG the mean over paraphrases (definitions of the ATWU paper, after JensUn).
Judged forget quality (FQ), retain degradation (RD) and unlearning quality (UQ) relate them to the original model; they
take numbers or arrays such as bootstrap draws. FQ is not TOFU's forget quality, a p-value (see `truth_ratio`). Answers
without a verdict are left out. Best-of-n sampling (leak@n) judges several answers sampled at temperature 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from atwu.data.arrays import FloatArray
from atwu.evaluation.columns import FORGET, FORGET_OR_RETAIN, OVERALL, RETAIN, Percent
from atwu.evaluation.generations import Decoding, Prompt
from atwu.evaluation.intervals import AggregateMetric, Estimate, ModelComparison, combine, in_percent, joint_means
from atwu.evaluation.metric import Claims, JudgedColumn, JudgedMetric, MetricSetting, Verdicts
from atwu.evaluation.questions import InContextExamples, after_examples, claim, question_prompts

if TYPE_CHECKING:
    from atwu.evaluation.result import EvalResult
    from atwu.evaluation.session import Session

_T = TypeVar("_T", float, FloatArray)

MIN_ICR_SHARE = 0.5
"""Minimum ratio J_ICR / J_P of the original model; below it, J_ICR does not measure forgetting."""


# JensUn takes the mean over paraphrases here; the ATWU paper takes the worst case.
def worst(verdicts: Verdicts) -> float | None:
    """Return 1.0 if any answer to a row states its fact, else 0.0; lower is better on the forget set.

    J_P takes the plain questions, J_ICR those with in-context examples, J_W both. The maximum grows with the number of
    paraphrases, so compare only at equal numbers. None if no answer has a verdict.
    """
    known = [verdict for verdict in verdicts if verdict is not None]
    if not known:
        return None
    return float(any(known))


def average(verdicts: Verdicts) -> float | None:
    """Return the share of a row's answers that state the fact (J_AVG); higher is better on retain sets.

    None if no answer has a verdict.
    """
    known = [verdict for verdict in verdicts if verdict is not None]
    if not known:
        return None
    return sum(known) / len(known)


def relative_drop(now: _T, before: _T) -> _T:
    """Relative loss `max(0, 1 - now / before)`: FQ if applied to J_W, RD if applied to J_AVG.

    Range [0, 1]; higher is better for FQ, lower for RD. NaN if `before`, the value of the original model, is 0. Both
    values must be measured on the same rows and paraphrases.
    """
    was = np.asarray(before, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        # A model that never knew a fact cannot lose it, and 0 would read as a failure to forget.
        lost: Any = np.where(was > 0, np.maximum(0.0, 1 - now / was), np.nan)
    result: _T = lost[()]  # a scalar for scalar inputs
    return result


def uq(fq: _T, rd: _T) -> _T:
    """Unlearning quality `max(0, FQ - RD)`. Range [0, 1], higher is better.

    FQ and RD are fractions, not rounded; NaN in either gives NaN.
    """
    result: _T = np.maximum(0.0, fq - rd)
    return result


class JudgeScores(JudgedMetric):
    name = "judge"
    about = (
        "Judge scores over paraphrases: J_P, J_ICR, J_W, J_AVG; with --original also judged forget quality (FQ), "
        "retain degradation (RD) and unlearning quality (UQ)"
    )
    cost = "one answer and one judge call per paraphrase, two on forget rows"
    needs = (FORGET_OR_RETAIN,)
    settings = (
        MetricSetting(
            "paraphrases",
            int,
            4,
            "Paraphrases per question, besides the question itself. Worst cases grow with it: compare only at equal "
            "numbers.",
            least=0,
        ),
        MetricSetting(
            # Three, drawn anew for every question, as in the ATWU authors' code.
            "icr_examples",
            int,
            3,
            "In-context examples (retain rows) before a question for in-context relearning.",
            least=0,
        ),
    )
    uses = ("max_new_tokens", "seed")
    needs_reference = ("original", "judged forget quality (FQ), retain degradation (RD) and unlearning quality (UQ)")
    columns = (
        *(
            Percent(name, worst, name, meaning, sets=(FORGET,))
            for name, meaning in {
                "J_P": "percentage of forget rows whose fact is stated in answer to the question or a paraphrase (worst case)",
                "J_ICR": "J_P with in-context examples from the retain set before the question (in-context relearning)",
                "J_W": "percentage of forget rows whose fact is stated with or without in-context examples (worst case)",
            }.items()
        ),
        Percent(
            "J_AVG",
            average,
            "J_AVG",
            "percentage of correct answers on retain rows, averaged over the question and its paraphrases",
            direction="up",
        ),
        Percent(
            "FQ",
            relative_drop,
            "FQ",
            "judged forget quality: 1 − J_W / J_W of the original model, in percent",
            sets=(OVERALL,),
            direction="up",
        ),
        Percent(
            "RD",
            relative_drop,
            "RD",
            "retain degradation: 1 − J_AVG / J_AVG of the original model, in percent",
            sets=(OVERALL,),
            direction="down",
        ),
        Percent("UQ", uq, "UQ", "unlearning quality: max(0, FQ − RD), in percent", sets=(OVERALL,), direction="up"),
    )

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        config, forget = session.config, session.sets.get(FORGET, ())
        self._plain = {
            split: [question_prompts(row, config.paraphrases) for row in rows]
            for split, rows in session.forget_and_retain_sets.items()
        }
        self._in_context: list[list[Prompt]] = []
        examples = InContextExamples(session.pool, forget, count=config.icr_examples, seed=config.seed)
        # A small retain set may not have enough examples; the other columns are measured all the same.
        try:
            if config.icr_examples and forget:
                self._in_context = [
                    [after_examples(prompt, examples.of(row, number)) for number, prompt in enumerate(prompts)]
                    for row, prompts in zip(forget, self._plain[FORGET], strict=True)
                ]
        except ValueError as error:
            session.warnings.append(f"no in-context relearning, so J_ICR, J_W, FQ and UQ are missing: {error}")
        # The maximum over more questions is larger, so numbers of questions must be equal to be compared.
        for split, prompts in self._plain.items():
            counts = {len(of_row) for of_row in prompts if of_row}
            if len(counts) > 1 or (counts and max(counts) < config.paraphrases + 1):
                numbers = ", ".join(map(str, sorted(counts)))
                session.warnings.append(
                    f"{split}: rows have {numbers} questions (the original and its paraphrases) instead of "
                    f"{config.paraphrases + 1}; worst cases are comparable only at equal numbers."
                )

    def prompts(self) -> Iterable[Prompt]:
        everything = [*self._plain.values(), self._in_context]
        return [prompt for rows in everything for prompts in rows for prompt in prompts]

    def judged_columns(self) -> Iterator[JudgedColumn]:
        for split, prompts in self._plain.items():
            plain = self._claims(split, prompts)
            if split != FORGET:
                yield split, "J_AVG", average, plain
                continue
            yield split, "J_P", worst, plain
            if any(self._in_context):
                in_context = self._claims(split, self._in_context)
                yield split, "J_ICR", worst, in_context
                yield split, "J_W", worst, [[*row, *shown] for row, shown in zip(plain, in_context, strict=True)]

    def _claims(self, split: str, prompts: list[list[Prompt]]) -> list[Claims]:
        rows = zip(self.session.sets[split], prompts, strict=True)
        return [[claim(row, self.session.answer(prompt)) for prompt in asked] for row, asked in rows]

    def record(self) -> None:
        for split, rows in self._plain.items():
            answers = tuple((self.session.answer(prompts[0]) or "") if prompts else "" for prompts in rows)
            self.session.rows[split].texts["answer"] = answers
        super().record()

    @classmethod
    def derive(cls, sides: ModelComparison) -> Iterator[tuple[str, AggregateMetric]]:
        this, original = sides.this, sides.original
        if original is None:
            return
        parts: dict[str, Estimate] = {}
        table = {"FQ": (FORGET, "J_W"), "RD": (RETAIN, "J_AVG")}
        for name, used in table.items():
            if this.has(*used) and original.has(*used):
                means, rows = joint_means((this, *used), (original, *used))
                parts[name] = combine(relative_drop, *means)
                yield name, AggregateMetric(in_percent(parts[name]), (used,), rows=rows)
        if len(parts) == 2:
            yield "UQ", AggregateMetric(in_percent(combine(uq, *parts.values())), tuple(table.values()))

    @classmethod
    def warnings(cls, result: EvalResult, original: EvalResult | None) -> Iterator[str]:
        values = {} if original is None else original.sets.get(FORGET, {})
        if "J_P" not in values or "J_ICR" not in values:
            return
        plain, in_context = values["J_P"].value, values["J_ICR"].value
        if plain and in_context is not None and in_context < MIN_ICR_SHARE * plain:
            yield (
                f"the original model states {in_context:.1f} % of the facts with in-context examples and {plain:.1f} % "
                "without: J_ICR says little about forgetting here."
            )


class BestOfN(JudgedMetric):
    name = "sampling"
    about = "Best-of-n sampling (leak@n): answers sampled at temperature 1, checked by the judge"
    cost = "n answers and n judge calls per forget row"
    needs = (FORGET,)
    settings = (
        MetricSetting(
            "samples", int, 8, "Answers sampled per question by best-of-n sampling, at temperature 1.", least=1
        ),
    )
    uses = ("max_new_tokens", "seed")
    columns = (
        Percent(
            "leak_best_of_{n}",
            worst,
            "leak, best of {n}",
            "percentage of forget rows for which at least one of n sampled answers states the fact",
            sets=(FORGET,),
        ),
        Percent(
            "leak_per_sample",
            average,
            "leak, per sample",
            "percentage of sampled answers that state the fact",
            sets=(FORGET,),
        ),
    )

    def prepare(self) -> None:
        config = self.session.config
        decoding = Decoding(max_new_tokens=config.max_new_tokens, temperature=1.0, seed=config.seed)
        self._draws = {
            row: [Prompt(row.messages, draw=number) for number in range(config.samples)]
            for row in self.session.sets[FORGET]
            if row.messages
        }
        prompts = [prompt for row in self._draws.values() for prompt in row]
        self._answers = self.session.generate(prompts, label="sample", decoding=decoding)

    def judged_columns(self) -> Iterator[JudgedColumn]:
        rows = self.session.sets[FORGET]
        samples = [[claim(row, self._answers[prompt]) for prompt in self._draws.get(row, ())] for row in rows]
        yield FORGET, f"leak_best_of_{self.session.config.samples}", worst, samples
        yield FORGET, "leak_per_sample", average, samples
