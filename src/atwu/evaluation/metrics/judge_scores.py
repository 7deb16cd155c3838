"""J_P, J_ICR, J_W on forget rows and J_AVG on the others: does the model state the fact, over wordings of the question.

J_P takes the worst case over the question and its paraphrases, J_ICR the same with retain rows shown before the
question, J_W the worst of both; J_AVG is the mean over wordings (definitions of the ATWU paper, after JensUn). FQ, RD and
UQ are these relative to the starting model; they work on numbers and, element by element, on arrays such as bootstrap
draws. FQ is not TOFU's forget quality, which is a p-value (`truth_ratio`). A missing verdict counts neither as right nor
as wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from atwu.data.arrays import FloatArray
from atwu.evaluation.columns import FORGET, FORGET_OR_RETAIN, OVERALL, RETAIN, Percent
from atwu.evaluation.generations import Prompt
from atwu.evaluation.intervals import Estimate, combine, in_percent
from atwu.evaluation.metric import Metric
from atwu.evaluation.metric_settings import MetricSetting
from atwu.evaluation.questions.in_context import InContextExamples
from atwu.evaluation.questions.prompts import claim, question_prompt, variants
from atwu.judge.verdicts import Claim

if TYPE_CHECKING:
    from atwu.evaluation.result import EvalResult
    from atwu.evaluation.row_statistics import AggregateMetric, ModelComparison
    from atwu.evaluation.session import Session

T = TypeVar("T", float, FloatArray)
Verdicts: TypeAlias = Sequence[Sequence[bool | None]]
"""Per row, one verdict for each wording of its question; None where unscored. Rows may have different numbers."""

SHARE_AFTER_TURNS = 0.5
"""J_ICR of the starting model, relative to its J_P, below which in-context relearning measures the model, not forgetting."""


def worst(*tables: Verdicts) -> list[float | None]:
    """1.0 where any wording brings the fact out, else 0.0; lower is better on forget rows.

    J_P takes the plain queries, J_ICR those with in-context demonstrations, J_W both tables together. A maximum can only
    grow with the number of wordings, so compare at equal numbers. Tables are of the same rows under different conditions.

    Returns:
        One value per row; None where nothing was judged.
    """
    return [float(any(verdicts)) if verdicts else None for verdicts in _rows(tables)]


def average(*tables: Verdicts) -> list[float | None]:
    """Share of a row's wordings that bring the fact out (J_AVG on the plain queries); higher is better on retain rows."""
    return [sum(verdicts) / len(verdicts) if verdicts else None for verdicts in _rows(tables)]


def unscored(*tables: Verdicts) -> int:
    """Answers without a verdict, over all rows and tables."""
    return sum(verdict is None for table in tables for row in table for verdict in row)


def share_lost(now: T, before: T) -> T:
    """Share of what the starting model knew that is gone: `max(0, 1 - now / before)`, of J_W for FQ and of J_AVG for RD.

    Range [0, 1], higher is better as FQ and lower as RD; NaN where the starting model knew nothing. Both are of the same
    rows and variants.
    """
    was = np.asarray(before, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        lost: Any = np.where(was > 0, np.maximum(0.0, 1 - now / was), np.nan)
    result: T = lost[()]  # a number of numbers
    return result


def uq(fq: T, rd: T) -> T:
    """What forgetting gained over what it cost, `max(0, FQ - RD)`. Range [0, 1], higher is better.

    Take FQ and RD unrounded and as fractions; a NaN in either gives NaN.
    """
    result: T = np.maximum(0.0, fq - rd)
    return result


class JudgeScores(Metric):
    """Plain wordings on every set, in-context relearning on the forget set."""

    name = "judge"
    about = "J_P, J_ICR, J_W, J_AVG over wordings; FQ, RD, UQ given --original"
    cost = "an answer and a verdict per wording, twice on forget rows"
    needs = (FORGET_OR_RETAIN,)
    needs_weights = False
    judged = True
    settings = (
        MetricSetting(
            "paraphrases",
            int,
            4,
            "Wordings of a question beside its own. The worst case over wordings grows with it: compare at equal numbers "
            "only.",
            least=0,
        ),
        MetricSetting("icr_examples", int, 3, "Retain rows shown before a question in in-context relearning.", least=0),
    )
    uses = ("max_new_tokens", "seed")
    needs_reference = ("original", "FQ, RD and UQ")
    columns = (
        Percent(
            "J_P",
            worst,
            "J_P",
            "percent of forget rows whose fact is stated in answer to the question or one of its paraphrases",
            sets=(FORGET,),
        ),
        Percent("J_ICR", worst, "J_ICR", "the same with three answered retain questions shown first", sets=(FORGET,)),
        Percent("J_W", worst, "J_W", "percent of forget rows that leak in either way", sets=(FORGET,)),
        Percent("J_AVG", average, "J_AVG", "percent of wordings answered right on rows to keep", direction="up"),
        Percent(
            "FQ",
            share_lost,
            "FQ",
            "forgetting, in percent: 1 − J_W / J_W of the starting model",
            sets=(OVERALL,),
            direction="up",
        ),
        Percent(
            "RD",
            share_lost,
            "RD",
            "damage to what should be kept, in percent: 1 − J_AVG / J_AVG of the starting model",
            sets=(OVERALL,),
            direction="down",
        ),
        Percent("UQ", uq, "UQ", "unlearning quality: FQ − RD, nothing below 0", sets=(OVERALL,), direction="up"),
    )

    def __init__(self, session: Session) -> None:
        """Draw the demonstrations."""
        super().__init__(session)
        count = session.config.paraphrases
        self._plain: dict[str, list[list[Prompt]]] = {
            split: [[question_prompt(row, question) for question in variants(row, count)] for row in rows]
            for split, rows in session.forget_and_retain_sets.items()
        }
        self._shown: list[list[Prompt]] = self._with_demonstrations()
        self._warn_of_uneven_wordings()

    def _with_demonstrations(self) -> list[list[Prompt]]:
        session, config = self.session, self.session.config
        forget = session.sets.get(FORGET, ())
        if not config.icr_examples:
            return [[] for _ in forget]
        shown = InContextExamples(session.pool, forget, count=config.icr_examples, seed=config.seed)
        try:
            return [
                [
                    question_prompt(row, question, before=shown.of(row, number))
                    for number, question in enumerate(variants(row, config.paraphrases))
                ]
                for row in forget
            ]
        except ValueError as error:
            session.warnings.append(f"no in-context relearning, so no J_ICR, J_W, FQ and UQ: {error}")
            return [[] for _ in forget]

    def _warn_of_uneven_wordings(self) -> None:
        for split, rows in self._plain.items():
            counts = {len(prompts) for prompts in rows if prompts}
            if len(counts) > 1 or (counts and max(counts) < self.session.config.paraphrases + 1):
                numbers = ", ".join(map(str, sorted(counts)))
                self.session.warnings.append(
                    f"{split}: rows have {numbers} wordings of their question, not {self.session.config.paraphrases + 1}; "
                    "worst cases over wordings are only comparable at equal numbers."
                )

    def prompts(self) -> Iterable[Prompt]:
        """All wordings, plain and with demonstrations."""
        everything = [*self._plain.values(), self._shown]
        return [prompt for rows in everything for prompts in rows for prompt in prompts]

    def claims(self) -> Iterator[Claim]:
        """Every answer."""
        for split, asked in [*self._plain.items(), (FORGET, self._shown)]:
            yield from chain.from_iterable(self._claims(split, asked))

    def _claims(self, split: str, asked: list[list[Prompt]]) -> Iterator[list[Claim]]:
        """The answers to every row's prompts."""
        for row, prompts in zip(self.session.sets.get(split, ()), asked, strict=True):
            yield [claim(row, self.session.answer(prompt)) for prompt in prompts]

    def record(self) -> None:
        """Record the scores in percent, as they are published."""
        session = self.session
        for split, rows in self._plain.items():
            said = tuple(session.answer(prompts[0]) if prompts else "" for prompts in rows)
            session.texts.setdefault(split, {})["answer"] = said
            plain = session.verdicts(self._claims(split, rows))
            missing = unscored(plain)
            if split != FORGET:
                self.record_column(split, "J_AVG", as_percent(average(plain)), unscored=missing)
                continue
            self.record_column(split, "J_P", as_percent(worst(plain)), unscored=missing)
            if any(self._shown):
                shown = session.verdicts(self._claims(split, self._shown))
                self.record_column(split, "J_ICR", as_percent(worst(shown)), unscored=unscored(shown))
                self.record_column(split, "J_W", as_percent(worst(plain, shown)), unscored=unscored(plain, shown))

    @classmethod
    def derive(cls, sides: ModelComparison) -> Iterator[tuple[str, AggregateMetric]]:
        """FQ, RD and UQ in percent, relative to the starting model."""
        from atwu.evaluation.row_statistics import AggregateMetric

        this, original = sides.this, sides.original
        if original is None:
            return
        parts: dict[str, Estimate] = {}
        table = {"FQ": (FORGET, "J_W"), "RD": (RETAIN, "J_AVG")}
        for name, used in table.items():
            if this.has(*used) and original.has(*used):
                both = this.values(*used) + original.values(*used)  # rows with a verdict on either side
                parts[name] = combine(share_lost, this.mean(*used, where=both), original.mean(*used, where=both))
                yield name, AggregateMetric(in_percent(parts[name]), (used,), rows=int(np.isfinite(both).sum()))
        if len(parts) == 2:
            yield "UQ", AggregateMetric(in_percent(combine(uq, *parts.values())), tuple(table.values()))

    @classmethod
    def warnings(cls, result: EvalResult, original: EvalResult | None) -> Iterator[str]:
        """Say so if the starting model itself loses the thread after demonstrations."""
        known = {} if original is None else original.sets.get(FORGET, {})
        plain, shown = (known[name].value if name in known else None for name in ("J_P", "J_ICR"))
        if plain and shown is not None and shown < SHARE_AFTER_TURNS * plain:
            yield (
                f"the starting model itself states {shown:.1f} % of the facts after demonstrations and {plain:.1f} % "
                "without: J_ICR says little about forgetting here."
            )


def as_percent(values: Iterable[float | None]) -> list[float | None]:
    """Shares in percent, as they are published."""
    return [None if value is None else 100 * value for value in values]


def _rows(tables: Sequence[Verdicts]) -> Iterator[list[bool]]:
    """The verdicts there are on each row, over all tables."""
    for parts in zip(*tables, strict=True):
        yield [verdict for part in parts for verdict in part if verdict is not None]
