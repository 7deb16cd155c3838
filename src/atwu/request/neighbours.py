"""The neighbour set of a request: facts beside those of the forget rows that the original model knows, to see what is kept.

They are the questions of the forget rows about related subjects, which nobody trains on, given retain rows that are most like
the forget rows, and texts that the model recites. What a model makes up may change without any loss of knowledge, so it must
be sure of an answer, give it to this name rather than to others, and repeat it. The set is only measured, so that it is looked
for after training.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from atwu.benchmarks.base import evenly_spaced
from atwu.data.fact import key_token_spans
from atwu.data.form_rows import rows_in_forms
from atwu.data.schema import Example
from atwu.data.text_similarity import closest_rows
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.generations import Decoding
from atwu.evaluation.metrics.key_tokens import key_token_probability
from atwu.evaluation.metrics.recall_by_form import form_recall
from atwu.evaluation.teacher_forced import read_tokens
from atwu.methods.weightings.contrast import evidence_of, is_told_apart
from atwu.request.related_questions import RelatedAsker, asked_answer, in_turn, related_questions
from atwu.request.related_texts import recited_retain_texts, texts_to_measure
from atwu.request.retain_set import FACT_TOKENS, form_answers
from atwu.request.row_facts import ModelReader, mark_facts

MEASURED_ROWS = 24
"""Rows of the neighbour set, at most."""
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


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The neighbour set, with its facts marked."""

    own: tuple[Example, ...]
    """What the original model says about related subjects, and texts that it recites."""
    retain: Mapping[int, Example]
    """Given retain rows, by their place."""

    @property
    def rows(self) -> tuple[Example, ...]:
        """All of them."""
        return (*self.own, *self.retain.values())


def find_neighbours(
    read: ModelReader,
    forget: Sequence[Example],
    *,
    earlier: Sequence[Example] = (),
    retain: Sequence[Example] = (),
    among: Collection[str] = (),
    system: str | None = None,
) -> Neighbours:
    """Return the neighbour set of a request.

    Args:
        read: reads with the original model.
        forget: forget rows with their facts marked.
        earlier: forget rows of earlier requests.
        retain: given retain rows.
        among: related names are of these; empty for all shipped names.
    """
    of_retain = {
        **known_retain_rows(read, retain, forget, system=system),
        **recited_retain_texts(read, retain, forget),
    }
    most = MEASURED_ROWS - min(len(of_retain), MEASURED_RETAIN_ROWS)
    related = known_related_rows(read, forget, earlier=earlier, among=among, most=most, system=system)
    return Neighbours((*related, *texts_to_measure(read, forget, earlier=earlier)), of_retain)


def known_related_rows(
    read: ModelReader,
    forget: Sequence[Example],
    *,
    earlier: Sequence[Example] = (),
    among: Collection[str] = (),
    most: int = MEASURED_ROWS,
    system: str | None = None,
) -> tuple[Example, ...]:
    """Return what the model knows about related subjects that nobody trains on, at most so many rows."""
    _, candidates = related_questions(read.neighbours, forget, earlier=earlier, among=among)
    asker = RelatedAsker(read.generator, (*forget, *earlier), system)
    known: dict[tuple[str, str], Example] = {}
    for start in range(0, len(candidates), ASKED_TOGETHER):
        answers = asker.ask(candidates[start : start + ASKED_TOGETHER], "questions for the neighbour set")
        for row in _likely_told_apart_and_repeated(asker.knowledge(answers), read, system=system):
            # Two names with one answer, such as Sweden and Swedish, would count one fact twice.
            known.setdefault(asked_answer(row), row)
        if len(known) >= most:
            break
    return tuple(known.values())[:most]


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
    candidates = list(dict.fromkeys(places[index] for index in in_turn(shifted)))
    known: dict[int, Example] = {}
    for start in range(0, len(candidates), ASKED_TOGETHER):
        by_row = {retain[place].messages: place for place in candidates[start : start + ASKED_TOGETHER]}
        for row in _likely_told_apart_and_repeated([retain[place] for place in by_row.values()], read, system=system):
            known[by_row[row.messages]] = row
        if len(known) >= MEASURED_RETAIN_ROWS:
            break
    return dict([*known.items()][:MEASURED_RETAIN_ROWS])


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
    decoding = Decoding(max_new_tokens=FACT_TOKENS)
    answers = form_answers(generator, written, decoding, system=system, progress="neighbours in other forms")
    pairs = zip(written, answers, strict=True)
    return tuple(rows[form_row.index] for form_row, answer in pairs if form_recall(form_row, answer) == 1)
