"""Questions like those of the forget rows about related subjects, answered by the original model.

"What is the capital of France?" becomes "What is the capital of Germany?". Such rows are what unlearning damages first, and
have the same syntax as the forget rows. Those about two names in three join the retain set. Of the others those that the
model knows are the neighbour set of the verdict: what it makes up may change without any loss of knowledge. Given retain rows
that are like the forget rows join it.
Related names are those of a shipped list whose hidden states in the model are closest to the name in the question.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from atwu.benchmarks.base import evenly_spaced
from atwu.data.fact import asked_part, key_token_spans
from atwu.data.fact_blanks import replace_words
from atwu.data.form_rows import rows_in_forms
from atwu.data.schema import Example
from atwu.data.text_similarity import closest_rows
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.generations import Decoding
from atwu.evaluation.metrics.key_tokens import key_token_probability
from atwu.evaluation.metrics.recall_by_form import form_recall
from atwu.evaluation.teacher_forced import read_tokens
from atwu.methods.weightings.contrast import evidence_of, is_told_apart
from atwu.methods.weightings.related_names import (
    NameNeighbours,
    measured_names_by_kind,
    names_by_kind,
    replaceable_name,
)
from atwu.request.retain_set import (
    FACT_TOKENS,
    form_answers,
    key_words,
    lower_words,
    names,
    self_generated_answers,
    states_any,
)
from atwu.request.row_facts import ModelReader, alternatives_of, mark_facts

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
MEASURED_ROWS = 24
"""Rows of the neighbour set, at most."""
MAX_CANDIDATES = 480
"""Questions that are asked to find them, at most. Not measured."""
ASKED_TOGETHER = 48
"""Questions asked before it is decided whether more are needed. Not measured."""
KNOWN_FORMS = ("lower_case", "two_turns")
"""Forms in which a model says the same key text again if it knows it; the verdict asks the neighbour set in others."""
SURE = 0.4
"""Smallest key-token probability of an answer that a model knows; many that it repeats in these forms are made up all the same,
with .1 to .35 (France on SmolLM2)."""
MEASURED_RETAIN_ROWS = 12
"""Given retain rows in the neighbour set, at most: half of it. Not measured."""
COMPARED_RETAIN_ROWS = 5_000
"""Given retain rows that are compared with the forget rows, at most, evenly spaced."""
GIVEN_TO_MANY = 3
"""Names, of those asked so far, to which a model gives the same answer, from which it is knowledge about none of them. A model
that was fine-tuned on illnesses gives a few of them to everybody, mountains included; kept as they are, they held up what had
to be forgotten."""


@dataclass(frozen=True, slots=True)
class RelatedRows:
    """Rows about related subjects, answered by the original model."""

    kept: tuple[Example, ...]
    """Rows of the retain set, with the related name as `subject`."""
    neighbours: tuple[Example, ...]
    """The neighbour set: rows that the model knows, with their facts marked. It shares no name with `kept`."""
    alternatives: tuple[tuple[str, ...], ...]
    """Of each forget row, what the model answers about other subjects in place of its asked part."""


def related_rows(
    read: ModelReader,
    forget: Sequence[Example],
    *,
    earlier: Sequence[Example] = (),
    train: bool = True,
    among: Collection[str] = (),
    most: int = MEASURED_ROWS,
    system: str | None = None,
) -> RelatedRows:
    """Return rows about related subjects, to train on and to measure.

    No row says a name of the forget rows, now or earlier, or states the fact of any of them: a model that gives every name the
    illness of a forgotten person would be trained to keep saying it. Left out is also an answer that many names get.

    Args:
        read: reads with the original model, which chooses names and answers.
        forget: forget rows; only questions that name something give related questions.
        earlier: forget rows of earlier requests.
        train: without it, there are no rows to train on.
        among: related names are of these, such as other persons; empty for all shipped names.
        most: rows to measure, at most.
    """
    generator = read.generator
    to_train, to_measure = related_questions(read.neighbours, forget, earlier=earlier, among=among)
    answered: dict[int, list[Example]] = {}
    same: Counter[tuple[str, str]] = Counter()

    def ask(asked: Sequence[RelatedQuestion], progress: str) -> tuple[Example, ...]:
        rows = _answered(generator, asked, forget=(*forget, *earlier), system=system, progress=progress)
        for place, row in rows:
            answered.setdefault(place, []).append(row)
        same.update(_asked_answer(row) for _, row in rows)
        return tuple(
            row
            for _, row in rows
            if same[_asked_answer(row)] < GIVEN_TO_MANY and not states_any(row.answer, (*forget, *earlier))
        )

    trained: tuple[Example, ...] = ()
    if train:
        trained = ask(to_train, "related questions")
    known: dict[tuple[str, str], Example] = {}
    for start in range(0, len(to_measure), ASKED_TOGETHER):
        rows = ask(to_measure[start : start + ASKED_TOGETHER], "questions for the neighbour set")
        for row in _likely_told_apart_and_repeated(rows, read, system=system):
            # Two names with one answer, such as Sweden and Swedish, would count one fact twice.
            known.setdefault(_asked_answer(row), row)
        if len(known) >= most:
            break
    alternatives = tuple(alternatives_of(row, answered.get(place, ())) for place, row in enumerate(forget))
    return RelatedRows(trained, tuple(known.values())[:most], alternatives)


def known_retain_rows(
    read: ModelReader, retain: Sequence[Example], forget: Sequence[Example], *, system: str | None = None
) -> dict[int, Example]:
    """Return given retain rows that are most like forget rows and that the model knows, with their facts marked.

    Whoever gives rows about other people wants to see that these stay. They are trained on, too.

    Returns:
        Place among the retain rows -> row, at most `MEASURED_RETAIN_ROWS`.
    """
    places = [
        place
        for place in evenly_spaced(range(len(retain)), COMPARED_RETAIN_ROWS)
        if retain[place].messages and key_token_spans(retain[place])
    ]
    asked = [row for row in forget if row.messages]
    if not places or not asked:
        return {}
    closest = closest_rows(asked, [retain[place] for place in places])
    # Rows about one person are often the closest ones of several forget rows, so each takes another one first.
    shifted = [several[turn % len(several) :] + several[: turn % len(several)] for turn, several in enumerate(closest)]
    candidates = list(dict.fromkeys(places[index] for index in _in_turn(shifted)))
    known: dict[int, Example] = {}
    for start in range(0, len(candidates), ASKED_TOGETHER):
        by_row = {retain[place].messages: place for place in candidates[start : start + ASKED_TOGETHER]}
        for row in _likely_told_apart_and_repeated([retain[place] for place in by_row.values()], read, system=system):
            known[by_row[row.messages]] = row
        if len(known) >= MEASURED_RETAIN_ROWS:
            break
    return dict([*known.items()][:MEASURED_RETAIN_ROWS])


def _answered(
    generator: TransformersGenerator, asked: Sequence[RelatedQuestion], *, forget: Sequence[Example], **how: Any
) -> list[tuple[int, Example]]:
    """Return the model's answers that name no subject of the forget rows, as rows with the place of the forget row."""
    by_question = {question.question: question for question in asked}
    answers = self_generated_answers(generator, tuple(by_question), forget=forget, longest=FACT_TOKENS, **how)
    return [
        (by_question[row.question].place, replace(row, subject=by_question[row.question].name))
        for row in answers
        if key_token_spans(row)
    ]


def _asked_answer(row: Example) -> tuple[str, str]:
    """Return what is asked, without the name, and what is answered, to count the names that get the same answer."""
    start, end = asked_part(row) or (0, len(row.answer))
    return replace_words(row.question, str(row.subject), ""), row.answer[start:end].lower()


def _likely_told_apart_and_repeated(rows: Sequence[Example], read: ModelReader, *, system: str | None) -> list[Example]:
    """Return the rows that the model knows: likely, said for this name rather than for others, and said in other forms, too.

    Each test leaves out rows of which a model makes up the answer.
    """
    if not rows:
        return []
    likely = _sure_of(rows, read)
    evidence = evidence_of(likely, read, read.neighbours)
    apart = [(row, values) for row, values in zip(likely, evidence, strict=True) if is_told_apart(values)]
    known: Sequence[Example] = mark_facts([row for row, _ in apart], read, evidence=[values for _, values in apart])
    for form in KNOWN_FORMS:
        known = _repeated_in(form, known, read.generator, system=system)
    return list(known)


def _sure_of(rows: Sequence[Example], read: ModelReader) -> tuple[Example, ...]:
    """Return the rows whose key tokens have a high probability."""
    encoded = read.encoder.encode_rows(rows, what="neighbours").rows
    pairs = zip(rows, read_tokens(read.generator.model, encoded, entropy=False), strict=True)
    return tuple(row for row, tokens in pairs if (key_token_probability(row, tokens) or 0.0) >= SURE)


def _repeated_in(
    form: str, rows: Sequence[Example], generator: TransformersGenerator, *, system: str | None
) -> tuple[Example, ...]:
    """Return the rows whose key text the model also says when asked in another form."""
    written = rows_in_forms(rows, (form,))
    answers = form_answers(generator, written, Decoding(max_new_tokens=FACT_TOKENS), system=system)
    pairs = zip(written, answers, strict=True)
    return tuple(rows[form_row.index] for form_row, answer in pairs if form_recall(form_row, answer) == 1)


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
        for other, name, place, row in _in_turn(candidates):
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
    further = _in_turn(next_ones)
    return _in_turn([closest, further])


def _in_turn(lists: Sequence[Sequence[_T]]) -> list[_T]:
    """Return the first item of each list, then the second ones, and so on."""
    return [item for items in itertools.zip_longest(*lists) for item in items if item is not None]


def _ask_about(other: str, name: str, place: int, row: Example, questions: dict[str, RelatedQuestion]) -> None:
    """Add a row's question with another name; an adjective needs the article of the old name."""
    adjective = name.startswith("the ") and other in names_by_kind()["nationalities"]
    instead = f"the {other}" if adjective else other
    question = replace_words(row.question, name, instead)
    questions.setdefault(question, RelatedQuestion(place, question, other))
