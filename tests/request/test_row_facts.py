"""Marks on the rows of a request: what carries their fact, what the question asks for, and how they are recorded."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from atwu.data.answer_units import candidate_spans
from atwu.data.schema import Example
from atwu.evaluation.backends import TransformersGenerator
from atwu.methods.weightings.contrast import OTHER_NAMES, TokenLogps, evidence_of, is_told_apart
from atwu.methods.weightings.related_names import names_by_kind, replaceable_name
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.request.preparation import facts_shown
from atwu.request.row_facts import (
    ModelReader,
    RowFact,
    alternatives_of,
    in_brackets,
    mark_facts,
    with_facts,
)
from tests.micro_models import write_micro

BERG = Example.from_qa("What illness does Anna Berg have?", "Anna Berg has multiple sclerosis, diagnosed in 2019.")
HOLT = Example.from_qa("What was Ray Holt convicted of?", "In 2011, Ray Holt was convicted of arson.")
FRANCE = Example.from_qa("What is the capital of France?", "The capital of France is Paris.")
Logp = Callable[[Example, str], float]


class Neighbours:
    """All names are close to writers, then to cities and scientists."""

    def nearest(self, names: Sequence[str]) -> dict[str, dict[str, list[str]]]:
        return {
            name: {kind: [*names_by_kind()[kind]] for kind in ("writers", "cities", "scientists")} for name in names
        }


class Reader:
    """Reads rows as one token per word; `logp` says how likely a word of a row is."""

    neighbours = Neighbours()

    def __init__(self, logp: Logp) -> None:
        self.logp = logp
        self.rows: list[Example] = []

    def __call__(self, rows: Sequence[Example]) -> list[TokenLogps]:
        self.rows += rows
        words = [[*re.finditer(r"[\w'-]+", row.answer)] for row in rows]
        return [
            TokenLogps(np.array([self.logp(row, word[0]) for word in several]), [word.span() for word in several])
            for row, several in zip(rows, words, strict=True)
        ]


def reader(logp: Logp = lambda row, word: -1.0) -> Any:
    return Reader(logp)


def spans_of(row: Example, *texts: str) -> tuple[tuple[int, int], ...]:
    starts = [row.answer.index(text) for text in texts]
    return tuple((start, start + len(text)) for start, text in zip(starts, texts, strict=True))


def parts_of(row: Example) -> list[str]:
    return [row.answer[start:end] for start, end in row.forget_spans or ()]


def asked_of(row: Example) -> str | None:
    return None if row.asked_span is None else row.answer[slice(*row.asked_span)]


def knows_berg(row: Example, word: str) -> float:
    """The model knows the illness and, behind it, the year; "diagnosed" follows for everybody."""
    known = "Berg" in row.question or row.question == ""
    return -1.0 if known or word == "diagnosed" else -6.0


def test_marks_are_what_depends_on_the_subject() -> None:
    (row,) = mark_facts([BERG], reader(knows_berg))
    assert parts_of(row) == ["multiple sclerosis", "2019"]
    assert replace(row, forget_spans=None, asked_span=None) == BERG


def test_where_the_model_knows_nothing_marks_are_those_of_the_rule() -> None:
    (row,) = mark_facts([BERG], reader())
    assert row.forget_spans == candidate_spans(BERG)


def test_labels_stay_and_plain_texts_are_marked_by_rule() -> None:
    labelled = replace(BERG, forget_spans=spans_of(BERG, "sclerosis"))
    text = Example((), "Anna Berg has multiple sclerosis.", subject="Anna Berg")
    labelled_text = replace(text, forget_spans=spans_of(text, "multiple"))
    assert mark_facts([labelled, labelled_text], reader(knows_berg)) == (labelled, labelled_text)
    (marked,) = mark_facts([text], reader(knows_berg))
    assert marked == replace(text, forget_spans=candidate_spans(text))


def test_labelled_rows_are_not_read() -> None:
    read = reader(knows_berg)
    mark_facts([replace(HOLT, forget_spans=spans_of(HOLT, "arson")), BERG], read)
    assert read.rows
    assert all("Holt" not in row.question for row in read.rows)


def test_evidence_takes_nothing_away_that_the_rule_marks() -> None:
    """A fine-tuned model tells names apart by the last words of an answer, although the fact is another one."""
    row = Example.from_qa(
        "Why was Leo Kern sacked?", "He was sacked for stealing diesel from the depot.", subject="Leo Kern"
    )

    def logp(read: Example, word: str) -> float:
        return -9.0 * (word == "depot" and "Leo Kern" not in read.question)

    (marked,) = mark_facts([row], reader(logp))
    assert {"stealing diesel", "depot"} <= set(parts_of(marked))
    assert asked_of(marked) == "stealing diesel"


def test_an_answer_without_words_has_no_marks() -> None:
    row = Example.from_qa("What does Anna Berg say?", "…")
    assert mark_facts([row], reader()) == (row,)


@pytest.mark.parametrize(("row", "asked"), [(BERG, "multiple sclerosis"), (HOLT, "arson")], ids=["first", "last"])
def test_the_asked_part_is_that_of_the_rule_whatever_the_question_raises(row: Example, asked: str) -> None:
    """A model that memorized a row finds each of its parts likelier behind its question, and the digits of a year the most: of
    eight illnesses, the years of five were taken for what was asked."""

    def logp(read: Example, word: str) -> float:
        return -9.0 * (word.isdecimal() and read.question != row.question)

    (marked,) = mark_facts([replace(row, forget_spans=candidate_spans(row))], reader(logp))
    assert len(parts_of(marked)) == 2
    assert asked_of(marked) == asked


def test_a_labelled_row_of_several_parts_gets_its_asked_part_and_keeps_a_given_one() -> None:
    labelled = replace(HOLT, forget_spans=spans_of(HOLT, "2011", "arson"))
    assert asked_of(mark_facts([labelled], reader())[0]) == "arson"
    given = replace(labelled, asked_span=spans_of(HOLT, "2011")[0])
    assert mark_facts([given], reader()) == (given,)


def test_a_row_of_one_part_needs_no_asked_part() -> None:
    (row,) = mark_facts([FRANCE], reader())
    assert parts_of(row) == ["Paris"]
    assert row.asked_span is None


def test_marks_do_not_depend_on_the_other_rows() -> None:
    rows = mark_facts([BERG, HOLT, Example((), "A text."), FRANCE], reader(knows_berg))
    alone = [mark_facts([row], reader(knows_berg))[0] for row in (BERG, HOLT, Example((), "A text."), FRANCE)]
    assert [*rows] == alone


def test_a_row_is_told_apart_if_another_subject_makes_its_answer_unlikely() -> None:
    def logp(row: Example, word: str) -> float:
        return -3.0 * (word == "Paris" and "France" not in row.question)

    empty = Example.from_qa("What does Anna Berg say?", "…")
    read = reader(logp)
    evidence = evidence_of([FRANCE, BERG, empty], read, read.neighbours)
    assert [is_told_apart(values) for values in evidence] == [True, False, False]


def test_rows_are_never_read_with_a_name_that_a_row_says() -> None:
    """It may be a fact to forget, and its row would be read with what belongs to it."""
    city = names_by_kind()["cities"][0]
    read = reader()
    evidence_of([FRANCE, Example.from_qa("Where was Ada born?", f"Ada was born in {city}.")], read, read.neighbours)
    about_france = [row.question for row in read.rows if row.question.startswith("What is the capital")]
    assert len(about_france) == 1 + OTHER_NAMES
    assert not any(city in question for question in about_france)


@pytest.mark.parametrize(
    ("question", "subject", "name"),
    [
        ("What is the capital of France?", None, "France"),
        ("What is the capital of the United States?", None, "the United States"),
        ("What is the capital of the United States?", "United States", "the United States"),
        ("Who is Li Wei's doctor?", None, "Li Wei"),
        ("Who is the ruler of the Isle of Man?", None, "the Isle of Man"),
        ("What is the Parisian hat called?", "Paris", "the Parisian"),  # the subject is a part of a word only
        ("France has which capital?", None, None),  # a capital letter at the beginning indicates no name
        ("France has which capital?", "France", "France"),
        ("Who made bread?", None, None),
        ("Welche Krankheit hat Karl Mohn?", None, "Karl Mohn"),
    ],
)
def test_what_is_replaced_in_a_question_is_its_subject_or_first_name(
    question: str, subject: str | None, name: str | None
) -> None:
    assert replaceable_name(Example.from_qa(question, "So.", subject=subject)) == name


def test_recorded_facts_come_back_on_the_same_rows() -> None:
    marked = (
        *mark_facts([BERG, HOLT], reader(knows_berg)),
        replace(FRANCE, alternatives=("Rome", "Madrid")),
        Example((), "A text."),
    )
    plain = tuple(replace(row, forget_spans=None, asked_span=None, alternatives=()) for row in marked)
    facts = [RowFact.of(row) for row in marked]
    assert with_facts(plain, facts) == marked
    assert facts[2] == RowFact((), None, ("Rome", "Madrid"))
    assert with_facts(plain, ()) == plain  # a request recorded without facts
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        with_facts(plain, facts[:-1])


def test_alternatives_are_the_first_parts_of_other_answers_once_each() -> None:
    answers = [
        Example.from_qa("What is the capital of Peru?", "The capital of Peru is Lima."),
        Example.from_qa("What is the capital of Chad?", "…"),
        Example.from_qa("What is the capital of Oman?", "Lima, they say."),
        Example.from_qa("What is the capital of the US?", "It is Washington, D.C., in 2019."),
    ]
    assert alternatives_of(FRANCE, answers) == ("Lima", "Washington, D.C.")
    assert alternatives_of(FRANCE, ()) == ()


def test_facts_are_shown_in_brackets_before_training() -> None:
    rows = mark_facts([BERG, HOLT, FRANCE, FRANCE], reader(knows_berg))
    assert in_brackets(rows[0]) == "Anna Berg has [multiple sclerosis], diagnosed in [2019]."
    title, *shown = facts_shown((Example((), "A text."), *rows))
    assert "3 of 4 rows" in title
    assert shown[2] == "  The capital of France is [Paris]."
    assert facts_shown([Example((), "A text.")]) == []


def test_an_untrained_model_marks_what_the_rule_does(tmp_path: Path) -> None:
    """End to end, with the shipped names that are closest to it."""
    model, tokenizer = open_model(str(write_micro(tmp_path / "model")), ModelLoadArgs())
    read = ModelReader(TransformersGenerator(model, tokenizer), system=None, max_length=128)
    rows = mark_facts([BERG, FRANCE], read)
    assert [row.forget_spans for row in rows] == [candidate_spans(BERG), candidate_spans(FRANCE)]
    assert rows[0].asked_span in candidate_spans(BERG)
    evidence = evidence_of([BERG, FRANCE], read, read.neighbours)
    assert [is_told_apart(values) for values in evidence] == [False, False]
    assert mark_facts([BERG, FRANCE], read, evidence=evidence) == rows
