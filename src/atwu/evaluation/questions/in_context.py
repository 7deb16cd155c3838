"""In-context relearning: answered retain questions before the actual one, which can restore an unlearned answer.

Examples are drawn anew for every row and question. They never come from the forget set and never contain the row's key
tokens, so the answer cannot be copied from them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from atwu.data.schema import Example, Message
from atwu.evaluation.questions.prompts import folded, labelled_parts, says


class InContextExamples:
    """Draws answered retain questions as in-context examples of a row."""

    def __init__(self, retain: Sequence[Example], forget: Sequence[Example], *, count: int = 3, seed: int = 42) -> None:
        """Index the forget questions and answers, which must not be shown."""
        self._retain, self._count, self._seed = retain, count, seed
        self._questions = frozenset(folded(text) for row in forget for text in (row.question, *row.paraphrases))
        self._answers = frozenset(folded(row.answer) for row in forget)

    def of(self, row: Example, number: int) -> tuple[Message, ...]:
        """Return 2 x count alternating user and assistant turns, which depend only on (seed, row, number).

        Args:
            number: Which of the row's questions they precede: 0 for its own, then its paraphrases.
            row: Row that is asked about. Rows with its subject, or that contain one of its key tokens, are not drawn.

        Raises:
            ValueError: Fewer usable rows than `count`.
        """
        seed = f"demonstrations/{self._seed}/{number}/{row.question}\n{row.answer}"  # old name: draws stay the same
        drawn = self.rows(row, random.Random(seed))
        if len(drawn) < self._count:
            raise ValueError(
                f"only {len(drawn)} of {len(self._retain)} retain rows can be in-context examples for the question "
                f"{row.question[:60]!r}, but {self._count} are needed; give more retain rows or lower --icr-examples."
            )
        return tuple(turn for example in drawn for turn in (example.messages[-1], Message("assistant", example.answer)))

    def rows(self, row: Example, rng: random.Random) -> list[Example]:
        """Draw at most `count` rows with distinct questions."""
        questions = {folded(text) for text in (row.question, *row.paraphrases)}
        answer = folded(row.answer)
        names = (*labelled_parts(row), *([row.subject] if row.subject else []))
        drawn: list[Example] = []
        for other in _shuffled(self._retain, rng):
            if len(drawn) == self._count:
                break
            if sum(turn.role != "system" for turn in other.messages) != 1:
                continue
            if row.subject is not None and other.subject == row.subject:
                continue
            question, other_answer = folded(other.question), folded(other.answer)
            if question in questions or question in self._questions:
                continue
            if other_answer == answer or other_answer in self._answers:
                continue
            if any(says(f"{other.question}\n{other.answer}", name) for name in names):
                continue
            questions.add(question)
            drawn.append(other)
        return drawn


def _shuffled(rows: Sequence[Example], rng: random.Random) -> Iterator[Example]:
    """Yield all rows in random order; drawing few of many rows is cheap."""
    moved: dict[int, int] = {}
    for place in range(len(rows)):
        pick = rng.randrange(place, len(rows))
        yield rows[moved.get(pick, pick)]
        moved[pick] = moved.get(place, place)
