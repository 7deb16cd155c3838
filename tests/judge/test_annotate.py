"""Annotation: phrases named by a model become spans of the answer; phrases that are not in it are dropped."""

from __future__ import annotations

import json
import re

import pytest

from atwu.data.schema import Example
from atwu.judge.asker import Asker
from atwu.judge.written_rows import annotate_by_rule, annotate_rows, estimate_annotation, piece_spans
from tests.judge.conftest import Fake, empty_cache

ROW = Example.from_qa("Where was Orla Venn born?", "Orla Venn was born in Kelbury, near Mirrow.", subject="Orla Venn")


def named(*pieces: str) -> str:
    return json.dumps({"secrets": pieces})


def asker(*replies: str) -> Asker:
    scripted = iter(replies)
    return Asker(Fake(lambda request: next(scripted)), empty_cache(), progress=False, attempts=1)


@pytest.mark.parametrize(
    ("piece", "answer", "places"),
    [
        ("Kelbury", "Kelbury, not Kelburyan; kelbury!", ((0, 7), (24, 31))),
        ("3 March", "On 3  March 1961.", ((3, 11),)),
        ("Oslo", "She was born in Kelbury.", ()),
        ("  ", "She was born in Kelbury.", ()),
        ("凯尔伯里", "她出生在凯尔伯里。", ((4, 8),)),
        ("a{b}", "It is a{b}.", ((6, 10),)),
    ],
)
def test_places_of_phrases_in_an_answer(piece, answer, places):
    assert piece_spans(piece, answer) == places


def test_phrases_become_spans_and_those_missing_from_the_answer_are_counted():
    found = annotate_rows([ROW], asker(named("Mirrow", "Kelbury, near Mirrow", "Oslo")))
    assert found.rows[0].forget_spans == ((22, 42),)  # merged
    assert (found.had, found.without, found.absent, found.failed) == (0, 0, 1, 0)
    assert (found.rows[0].question, found.rows[0].subject) == (ROW.question, "Orla Venn")


def test_existing_labels_are_kept_without_a_call():
    labelled = Example.from_qa("Who?", "Nobody.", forget_spans=())
    one = asker(named())
    found = annotate_rows([labelled, ROW], one)
    assert [row.forget_spans for row in found.rows] == [(), ()]
    assert (found.had, found.without) == (1, 1)
    assert re.search(r"\b1 of 2 rows .*\b1 .*\b1 ", str(found))
    assert len(one.model.asked) == 1


@pytest.mark.parametrize("reply", ["no", '{"secrets": "Kelbury"}', '{"secrets": ["Kelbury", 1]}', "{}"])
def test_a_row_without_a_readable_reply_gets_no_labels(reply):
    other = Example((), "It rained.")
    found = annotate_rows([ROW, other], asker(reply, named()))
    assert found.rows[0] == ROW
    assert found.failed == 1
    assert re.search(r"\b1 .*reply", str(found))


def test_prompts_name_the_subject_of_rows_without_a_question_and_keep_braces():
    one = asker(named(), named())
    annotate_rows([Example((), "Orla {x} left.", subject="Orla Venn"), Example((), "It rained.")], one)
    assert "(No question: a text about Orla Venn.)" in one.model.prompts[0]
    assert "\nOrla {x} left.\n</answer-" in one.model.prompts[0]
    assert "(No question: a text.)" in one.model.prompts[1]


def test_the_estimate_is_zero_once_replies_are_cached():
    one = asker(named("Kelbury"))
    assert estimate_annotation([ROW], one).calls == 1
    annotate_rows([ROW], one)
    assert estimate_annotation([ROW], one).calls == 0


def test_the_offline_rule_labels_rows_without_labels():
    labelled = Example.from_qa("Who?", "Nobody.", forget_spans=((0, 6),))
    found = annotate_by_rule([labelled, ROW], lambda row: [(22, 29), (25, 29)])
    assert [row.forget_spans for row in found.rows] == [((0, 6),), ((22, 29),)]
    assert (found.had, found.without, found.absent, found.failed) == (1, 0, 0, 0)
