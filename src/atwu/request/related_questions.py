"""Questions like those of the forget rows about related subjects, answered by the original model.

"What is the capital of France?" becomes "What is the capital of Germany?". Such rows are what unlearning damages first, and
have the same syntax as the forget rows. Those about two names in three join the retain set; among the others the neighbour set
is looked for (`neighbours.py`). Related names are those of a shipped list whose hidden states in the model are closest to the
name in the question.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from atwu.data.fact import asked_part, key_token_spans
from atwu.data.fact_blanks import replace_words
from atwu.data.schema import Example
from atwu.evaluation.backends import TransformersGenerator
from atwu.methods.weightings.related_names import (
    NameNeighbours,
    measured_names_by_kind,
    names_by_kind,
    replaceable_name,
)
from atwu.request.retain_set import FACT_TOKENS, key_words, lower_words, names, self_generated_answers, states_any
from atwu.request.row_facts import ModelReader, alternatives_of

_T = TypeVar("_T")

NAMES_PER_ROW = 24
"""Questions about related subjects to train on, of one forget row, at most; compared with 9 in
`benchmarks/results/default-experiments.md` (*More related names*)."""
MAX_RELATED = 180
"""The same for all forget rows together. Not measured."""
MEASURED_NAME = 3
"""One shipped name in so many is measured instead of trained on."""
RELATED_KINDS = 3
"""Closest kinds of names that are used: a kind that the model knows little about leaves too few rows to measure. Training takes
names of the closest kind and of the others in turn, measuring one kind after the other."""
MAX_CANDIDATES = 480
"""Questions that are asked to find the neighbour set, at most. Not measured."""
GIVEN_TO_MANY = 3
"""Names, of those asked so far, to which a model gives the same answer, from which it is knowledge about none of them. A model
that was fine-tuned on illnesses gives a few of them to everybody, mountains included; kept as they are, they held up what had
to be forgotten."""


@dataclass(frozen=True, slots=True)
class RelatedRows:
    """Rows about related subjects, answered by the original model."""

    kept: tuple[Example, ...]
    """Rows of the retain set, with the related name as `subject`."""
    alternatives: tuple[tuple[str, ...], ...]
    """Of each forget row, what the model answers about other subjects in place of its asked part."""


def related_rows(
    read: ModelReader,
    forget: Sequence[Example],
    *,
    earlier: Sequence[Example] = (),
    train: bool = True,
    among: Collection[str] = (),
    system: str | None = None,
) -> RelatedRows:
    """Return rows about related subjects to train on, and what can stand for the fact of each forget row.

    Args:
        read: reads with the original model, which chooses names and answers.
        forget: forget rows; only questions that name something give related questions.
        earlier: forget rows of earlier requests.
        train: without it, there are no rows to train on.
        among: related names are of these, such as other persons; empty for all shipped names.
    """
    to_train, _ = related_questions(read.neighbours, forget, earlier=earlier, among=among)
    asker = RelatedAsker(read.generator, (*forget, *earlier), system)
    answers = asker.ask(to_train, "related questions")
    by_place: dict[int, list[Example]] = {}
    for place, row in answers:
        by_place.setdefault(place, []).append(row)
    alternatives = tuple(alternatives_of(row, by_place.get(place, ())) for place, row in enumerate(forget))
    kept: tuple[Example, ...] = ()
    if train:
        kept = asker.knowledge(answers)
    return RelatedRows(kept, alternatives)


class RelatedAsker:
    """Asks the original model about related subjects, and tells what may be knowledge from what is none.

    Args:
        removed: forget rows, now and earlier.
        system: system prompt of the questions.
    """

    def __init__(self, generator: TransformersGenerator, removed: Sequence[Example], system: str | None) -> None:
        self.generator, self.removed, self.system = generator, removed, system
        self._names_with_answer: Counter[tuple[str, str]] = Counter()

    def ask(self, asked: Sequence[RelatedQuestion], progress: str) -> list[tuple[int, Example]]:
        """Return answers that name no subject of the forget rows, as rows with the place of the forget row."""
        by_question = {question.question: question for question in asked}
        answers = self_generated_answers(
            self.generator,
            tuple(by_question),
            forget=self.removed,
            longest=FACT_TOKENS,
            system=self.system,
            progress=progress,
        )
        rows = []
        for answer in answers:
            question = by_question[answer.question]
            row = replace(answer, subject=question.name)
            if key_token_spans(row):
                rows.append((question.place, row))
                self._names_with_answer[asked_answer(row)] += 1
        return rows

    def knowledge(self, answers: Sequence[tuple[int, Example]]) -> tuple[Example, ...]:
        """Return the rows that state no fact of the forget rows, and whose answer few of the names asked so far get.

        A model that gives every name the illness of a forgotten person would be trained to keep saying it.
        """
        return tuple(
            row
            for _, row in answers
            if self._names_with_answer[asked_answer(row)] < GIVEN_TO_MANY and not states_any(row.answer, self.removed)
        )


def asked_answer(row: Example) -> tuple[str, str]:
    """Return what is asked, without the name, and what is answered: equal for names that get the same answer."""
    start, end = asked_part(row) or (0, len(row.answer))
    return replace_words(row.question, str(row.subject), ""), row.answer[start:end].lower()


@dataclass(frozen=True, slots=True)
class RelatedQuestion:
    """The question of a forget row about something else."""

    place: int
    """Place of the forget row."""
    question: str
    name: str
    """The name in place of its own."""


def related_questions(
    neighbours: NameNeighbours,
    forget: Sequence[Example],
    *,
    earlier: Sequence[Example] = (),
    among: Collection[str] = (),
) -> tuple[tuple[RelatedQuestion, ...], tuple[RelatedQuestion, ...]]:
    """Return the questions of forget rows with another name in place of their own, one of `among` if there are any.

    Returns:
        Questions to train on, and candidates to measure, of every forget row in turn. The two share no name.
    """
    removed = (*forget, *earlier)
    secrets = names(removed).union(*map(key_words, removed))
    named = [(place, row, name) for place, row in enumerate(forget) if (name := replaceable_name(row)) is not None]
    if not named:
        return (), ()
    measured = _measured_names()
    nearest: dict[str, dict[str, list[str]]] = {}
    for name, kinds in neighbours.nearest([name for *_, name in named]).items():
        usable = {kind: _usable(near, secrets, among) for kind, near in kinds.items()}
        nearest[name] = {kind: near for kind, near in usable.items() if near}
    count = max(1, min(NAMES_PER_ROW, MAX_RELATED // len(named)))
    to_train: dict[str, RelatedQuestion] = {}
    for turn, (place, row, name) in enumerate(named[:MAX_RELATED]):
        choices = _to_train_on([*nearest[name].values()], measured)[: 2 * count]
        for step in range(min(count, len(choices))):  # neighbouring rows take other names
            _ask_about(choices[(turn + step) % len(choices)], name, place, row, to_train)
    to_measure: dict[str, RelatedQuestion] = {}
    # A question about another kind of thing often makes no sense ("What is the capital of Swedish?"), so the second kind of
    # every row comes when the closest one of all rows has been asked.
    for rank in range(RELATED_KINDS):
        candidates: list[list[tuple[str, str, int, Example]]] = []
        for place, row, name in named:
            others = _usable(_to_measure(nearest[name], rank, measured), secrets, among)
            candidates.append([(other, name, place, row) for other in others])
        for other, name, place, row in in_turn(candidates):
            _ask_about(other, name, place, row, to_measure)
    return tuple(to_train.values()), tuple(to_measure.values())[:MAX_CANDIDATES]


def _measured_names() -> set[str]:
    """Return the names that are measured: of each kind one in three, and those that are shipped for it."""
    thirds = {name for kind in names_by_kind().values() for name in kind[1::MEASURED_NAME]}
    return thirds.union(*measured_names_by_kind().values())


def _to_measure(nearest: Mapping[str, Sequence[str]], rank: int, measured: Collection[str]) -> list[str]:
    """Return the measured names of the kind of a rank, 0 for the closest one; those that no request trains on come last."""
    kinds = [*nearest]
    if rank >= len(kinds):
        return []
    shipped = [name for name in nearest[kinds[rank]] if name in measured]
    return [*shipped, *measured_names_by_kind().get(kinds[rank], ())]


def _usable(names: Sequence[str], secrets: Collection[str], among: Collection[str]) -> list[str]:
    """Return the names that say nothing of the forget rows, and that may be used."""
    return [name for name in names if not (lower_words(name) & set(secrets)) and (not among or name in among)]


def _to_train_on(kinds: Sequence[Sequence[str]], measured: Collection[str]) -> list[str]:
    """Return the names that are not measured: one of the closest kind and one of the next ones in turn, closest first."""
    closest, *next_ones = ([name for name in kind if name not in measured] for kind in kinds[:RELATED_KINDS])
    further = in_turn(next_ones)
    return in_turn([closest, further])


def in_turn(lists: Sequence[Sequence[_T]]) -> list[_T]:
    """Return the first item of each list, then the second ones, and so on."""
    return [item for items in itertools.zip_longest(*lists) for item in items if item is not None]


def _ask_about(other: str, name: str, place: int, row: Example, questions: dict[str, RelatedQuestion]) -> None:
    """Add a row's question with another name; an adjective needs the article of the old name."""
    adjective = name.startswith("the ") and other in names_by_kind()["nationalities"]
    instead = f"the {other}" if adjective else other
    question = replace_words(row.question, name, instead)
    questions.setdefault(question, RelatedQuestion(place, question, other))
