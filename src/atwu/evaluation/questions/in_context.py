"""In-context relearning: solved retain questions before the real one, which can jog the memory of an unlearned model.

Demonstrations are drawn anew for every row and variant of its question. They never come from the forget set and never
say the row's own secret, so an answer cannot be copied from them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from atwu.data.schema import Example, Message
from atwu.evaluation.questions.prompts import folded, says, secrets_of


class InContextExamples:
    """Draws completed turns from the retain set for one row after the other."""

    def __init__(self, retain: Sequence[Example], forget: Sequence[Example], *, count: int = 3, seed: int = 42) -> None:
        """Note what may not be shown."""
        self._retain, self._count, self._seed = retain, count, seed
        self._questions = frozenset(folded(text) for row in forget for text in (row.question, *row.paraphrases))
        self._answers = frozenset(folded(row.answer) for row in forget)

    def of(self, row: Example, variant: int) -> tuple[Message, ...]:
        """User and assistant turns in alternation, 2 x count; they depend on (seed, row, variant) alone.

        Args:
            row: the row asked about. Rows that name its subject or hold one of its secrets are not shown either.

        Raises:
            ValueError: fewer usable rows than asked for.
        """
        drawn = self.rows(row, random.Random(f"demonstrations/{self._seed}/{variant}/{row.question}\n{row.answer}"))
        if len(drawn) < self._count:
            raise ValueError(
                f"{len(drawn)} of {len(self._retain)} retain rows can be shown before the question "
                f"{row.question[:60]!r}, and {self._count} demonstrations were asked for; give more retain rows or ask "
                "for fewer."
            )
        return tuple(turn for shown in drawn for turn in (shown.messages[-1], Message("assistant", shown.answer)))

    def rows(self, row: Example, rng: random.Random) -> list[Example]:
        """Draw rows with distinct questions; fewer if there are fewer."""
        questions = {folded(text) for text in (row.question, *row.paraphrases)}
        answer = folded(row.answer)
        names = (*secrets_of(row), *([row.subject] if row.subject else []))
        drawn: list[Example] = []
        for other in _shuffled(self._retain, rng):
            if len(drawn) == self._count:
                break
            if sum(turn.role != "system" for turn in other.messages) != 1:
                continue
            if row.subject is not None and other.subject == row.subject:
                continue
            question, told = folded(other.question), folded(other.answer)
            if question in questions or question in self._questions or told == answer or told in self._answers:
                continue
            if any(says(f"{other.question}\n{other.answer}", name) for name in names):
                continue
            questions.add(question)
            drawn.append(other)
        return drawn


def _shuffled(rows: Sequence[Example], rng: random.Random) -> Iterator[Example]:
    """All rows in random order, drawn one at a time, so that taking a few of many is cheap."""
    moved: dict[int, int] = {}
    for place in range(len(rows)):
        pick = rng.randrange(place, len(rows))
        yield rows[moved.get(pick, pick)]
        moved[pick] = moved.get(place, place)
