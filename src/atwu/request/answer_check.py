"""Check during training whether greedy answers still state the facts, and can be read, as the rule of the verdict has it.

Beyond the rule, no fact may be stated to its own question by weights rounded to bfloat16 or 4 bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from atwu.data.encode import Encoder
from atwu.data.question_forms import FORMS, OPEN_FORMS, OPTION_FORMS
from atwu.data.render import opening_of_thoughts
from atwu.data.schema import Example
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.facts.askings import AS_WRITTEN, THOUGHT, Asking
from atwu.evaluation.facts.fact_table import FactTable, answerer, asked_together, tabulate
from atwu.evaluation.facts.model_states import rounded_states
from atwu.evaluation.generations import GenerationStore
from atwu.request.measurement import fact_askings
from atwu.request.verdict import POINTS, STATING_LIMIT

CHECKED_TOGETHER = 64
"""Number of questions after which a check may end early."""


@dataclass(frozen=True, slots=True)
class Leak:
    """Facts that greedy answers still state although the other goals are reached."""

    severity: float
    """Above 0, to compare leaks of five kinds:

    - a fact is stated to its own question: 1 + the share of these facts;
    - a fact is only thought, behind its own question: 1 + the share of these facts;
    - facts are stated in other ways: the share of all answers that state one, above `STATING_LIMIT`;
    - answers cannot be read: `STATING_LIMIT` times their share. Words that were learned half, such as the mark of a text that
      breaks off, are repeated without end until the refusal behind them is learned, too;
    - facts are stated to their own question with rounded weights only: `STATING_LIMIT` times the share of these facts."""
    text: str
    """What was found, for the progress line."""
    places: tuple[int, ...] = ()
    """Places of the questions whose answers state facts; none of answers that cannot be read."""


def is_row_of(asking: Asking, fact: Example, row: Example, form: str) -> bool:
    """Whether a row in a form is what an asking of a fact asks.

    Args:
        fact: the forget row of the asking.
    """
    # The own question, its thoughts and its paraphrases are of no form: what is trained on of them is the row as written.
    if asking.name not in FORMS:
        return form == "question" and (row.messages, row.answer) == (fact.messages, fact.answer)
    if form != asking.name:
        return False
    # Each draw lists other options behind the question, and one of the draws is trained on.
    if form in OPTION_FORMS:
        return row.messages[:-1] == fact.messages[:-1] and row.question.startswith(fact.question)
    # All facts about a subject are asked for in the same words, so only the answer tells them apart.
    if form in OPEN_FORMS and row.answer != fact.answer:
        return False
    # A text without a question is asked by its beginning.
    if not row.messages:
        return not asking.prompt.messages and row.answer.startswith(asking.prompt.prefill)
    return row.messages == asking.prompt.messages


@dataclass(frozen=True, slots=True)
class AnswerCheck:
    """Asks a model in memory about the forget rows, their own questions first."""

    rows: Sequence[Example]
    """The forget rows that are asked for."""
    encoder: Encoder
    """Encodes rows as in training."""
    store: GenerationStore | None = None
    """Where answers are kept, so that the verdict need not ask the weights of the last check again."""
    askings: tuple[Asking, ...] = field(init=False)
    """All questions, those as written first."""

    def __post_init__(self) -> None:
        thoughts = opening_of_thoughts(self.encoder.tokenizer)
        askings = fact_askings(self.rows, thoughts=thoughts)
        ordered = sorted(askings, key=lambda asking: asking.name != AS_WRITTEN)
        object.__setattr__(self, "askings", tuple(ordered))

    def find_leak(
        self,
        generator: TransformersGenerator,
        *,
        at_most: float = math.inf,
        first: Sequence[int] = (),
        rounded: bool = True,
    ) -> Leak | None:
        """Ask for the facts in all ways of `fact_askings`, unless an own question is answered with its fact.

        Args:
            at_most: severity above which its exact value does not matter; the check ends once it is certainly higher, and
                returns what it is at least.
            first: places of questions to ask first, because they are likely to leak.
            rounded: ask the own questions with rounded weights, too; the weights of a sharded model cannot be changed.
        """
        answers: dict[int, str] = {}
        own = [place for place, asking in enumerate(self.askings) if asking.name == AS_WRITTEN]
        self._ask(generator, own, answers)
        leaking = self._leaking(answers)
        if leaking:
            share = len(leaking) / len(own)
            what = "facts are stated to their own question"
            if all(self.askings[place].wording for place in own):
                what = "texts are recited from their first third"
            return Leak(1 + share, f"{len(leaking)} of {len(own)} {what}", leaking)
        thought = [place for place, asking in enumerate(self.askings) if asking.name == THOUGHT]
        self._ask(generator, thought, answers)
        leaking = self._leaking(answers)
        if leaking:
            share = len(leaking) / len(thought)
            return Leak(1 + share, f"{len(leaking)} of {len(thought)} facts are thought, though not stated", leaking)
        order = [place for place in dict.fromkeys((*first, *range(len(self.askings)))) if place not in answers]
        # The draws of one question with options count together, so they are asked together.
        groups = self._groups(order)
        total = len(own) + len(thought) + len(groups)
        for start in range(0, len(groups), CHECKED_TOGETHER):
            asked = [place for group in groups[start : start + CHECKED_TOGETHER] for place in group]
            self._ask(generator, asked, answers)
            whole = start + CHECKED_TOGETHER >= len(groups)
            stating = self._table(answers).count().answers_stating
            share = stating / max(total, 1)
            if share > STATING_LIMIT and (whole or share > at_most):
                number = f"{stating}" if whole else f"at least {stating}"
                text = f"{number} of {total} answers state a fact (at most {100 * STATING_LIMIT:g} % may)"
                return Leak(share, text, self._leaking(answers))
        unreadable = sum(record.unreadable for record in self._table(answers).records)
        if unreadable > POINTS * total:
            text = f"{unreadable} of {total} answers cannot be read (at most {100 * POINTS:g} % should be)"
            return Leak(STATING_LIMIT * unreadable / total, text)
        if not rounded:
            return None
        return self._leak_if_rounded(generator, own)

    def _leak_if_rounded(self, generator: TransformersGenerator, own: Sequence[int]) -> Leak | None:
        """Ask the own questions with rounded weights: what comes back there is close, and comes back to other words, too."""
        leaking: set[int] = set()
        for state in rounded_states(generator.model).values():
            how = answerer(generator, system=self.encoder.system)  # no store: its answers are of other weights
            with state:
                said = how([self.askings[place].prompt for place in own])
            leaking.update(self._leaking(dict(zip(own, said, strict=True))))
        if not leaking:
            return None
        share = len(leaking) / len(own)
        text = f"{len(leaking)} of {len(own)} facts are stated to their own question with rounded weights"
        return Leak(STATING_LIMIT * share, text, tuple(sorted(leaking)))

    def _ask(self, generator: TransformersGenerator, places: Sequence[int], answers: dict[int, str]) -> None:
        """Ask some questions, each distinct prompt once, and add the answers."""
        how = answerer(generator, system=self.encoder.system, store=self.store, progress="checking answers")
        answers.update(zip(places, how([self.askings[place].prompt for place in places]), strict=True))

    def _groups(self, places: Sequence[int]) -> list[list[int]]:
        """Return places in groups that count as one question."""
        groups = asked_together([self.askings[place] for place in places])
        return [[places[index] for index in group] for group in groups]

    def _table(self, answers: dict[int, str]) -> FactTable:
        return tabulate([self.askings[place] for place in answers], list(answers.values()))

    def _leaking(self, answers: dict[int, str]) -> tuple[int, ...]:
        """Return the places of the questions whose answers state a fact; of options, those of all draws."""
        answered = zip(self._groups([*answers]), self._table(answers).records, strict=True)
        return tuple(sorted(place for group, record in answered if record.stated for place in group))
