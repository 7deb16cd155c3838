"""Whether a text contains a phrase."""

from __future__ import annotations

import pytest

from atwu.data.schema import Example
from atwu.evaluation.questions import labelled_parts, says, span_texts


@pytest.mark.parametrize(
    ("text", "phrase", "expected"),
    [
        ("born in KELBURY, up north", "Kelbury", True),
        ("born in Kelburytown", "Kelbury", False),
        ("on 3  May\n1961", "3 May 1961", True),
        ("on 13 May 1961", "3 May 1961", False),
        ("the town (Kelbury)", "Kelbury", True),
        ("他住在北山镇附近", "北山镇", True),
        ("a+b", "a+b", True),
        ("anything", " ", False),
    ],
)
def test_says_matches_whole_words(text, phrase, expected):
    assert says(text, phrase) is expected


def test_words_of_the_question_are_not_key_tokens():
    row = Example.from_qa("Where is Orla?", "Orla is in Tarn, in Tarn.", forget_spans=((0, 4), (11, 15), (20, 24)))
    assert span_texts(row) == ("Orla", "Tarn")
    assert labelled_parts(row) == ("Tarn",)
    assert labelled_parts(Example.from_qa("Where?", "There.")) == ()
