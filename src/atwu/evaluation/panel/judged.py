"""J_P, J_ICR, J_W on forget rows and J_AVG on the others: does the model state the fact, over wordings of the question.

J_P takes the worst case over the question and its paraphrases, J_ICR the same with retain rows shown before the
question, J_W the worst of both; J_AVG is the mean over wordings (definitions of the ATWU paper, after JensUn).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from atwu.data.schema import Example
from atwu.evaluation.attacks.demonstrations import Demonstrations
from atwu.evaluation.judged import average, unscored, worst
from atwu.evaluation.panel.group import Group
from atwu.evaluation.panel.session import (
    FORGET,
    Session,
    claim,
    question_prompt,
    variants,
)
from atwu.evaluation.prompts import Prompt
from atwu.judge.verdicts import Claim


class Judged(Group):
    """Plain wordings on every set, in-context relearning on the forget set."""

    def __init__(self, session: Session) -> None:
        """Draw the demonstrations."""
        super().__init__(session)
        count = session.config.paraphrases
        self._plain: dict[str, list[list[Prompt]]] = {
            split: [[question_prompt(row, question) for question in variants(row, count)] for row in rows]
            for split, rows in session.answered.items()
        }
        self._shown: list[list[Prompt]] = self._with_demonstrations()
        self._warn_of_uneven_wordings()

    def _with_demonstrations(self) -> list[list[Prompt]]:
        session, config = self.session, self.session.config
        forget = session.sets.get(FORGET, ())
        if not config.demonstrations or not session.pool:
            return [[] for _ in forget]
        shown = Demonstrations(session.pool, forget, count=config.demonstrations, seed=config.seed)
        try:
            return [
                [
                    question_prompt(row, question, before=shown.of(row, number))
                    for number, question in enumerate(variants(row, config.paraphrases))
                ]
                for row in forget
            ]
        except ValueError as error:
            session.warnings.append(f"no in-context relearning, so no J_ICR, J_W and FQ: {error}")
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
        for split, rows in self._plain.items():
            yield from self._claims_of(self.session.sets[split], rows)
        yield from self._claims_of(self.session.sets.get(FORGET, ()), self._shown)

    def _claims_of(self, examples: Iterable[Example], rows: list[list[Prompt]]) -> Iterator[Claim]:
        for row, prompts in zip(examples, rows, strict=True):
            for prompt in prompts:
                yield claim(row, self.session.answer(prompt))

    def _verdicts(self, split: str, rows: list[list[Prompt]]) -> list[list[bool | None]]:
        return [
            [self.session.verdict(claim(row, self.session.answer(prompt))) for prompt in prompts]
            for row, prompts in zip(self.session.sets[split], rows, strict=True)
        ]

    def record(self) -> None:
        """Record the scores in percent, as they are published."""
        session = self.session
        for split, rows in self._plain.items():
            said = tuple(session.answer(prompts[0]) if prompts else "" for prompts in rows)
            session.texts.setdefault(split, {})["answer"] = said
            plain = self._verdicts(split, rows)
            missing = unscored(plain)
            if split != FORGET:
                session.record(split, "J_AVG", _percent(average(plain)), unscored=missing, digits=1)
                continue
            session.record(split, "J_P", _percent(worst(plain)), unscored=missing, digits=1)
            if any(self._shown):
                shown = self._verdicts(split, self._shown)
                both = [[*first, *second] for first, second in zip(plain, shown, strict=True)]
                session.record(split, "J_ICR", _percent(worst(shown)), unscored=unscored(shown), digits=1)
                session.record(split, "J_W", _percent(worst(both)), unscored=unscored(both), digits=1)


def _percent(values: Iterable[float | None]) -> list[float | None]:
    return [None if value is None else 100 * value for value in values]
