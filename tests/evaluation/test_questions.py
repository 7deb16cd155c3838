"""Whether a text contains a phrase; in-context examples never reveal the answer."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atwu.benchmarks.people_rows import people
from atwu.data.schema import Example, Message
from atwu.evaluation.questions import InContextExamples, labelled_parts, says, span_texts


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


WORLD = people("tiny")


def demonstrations(retain, forget, *, row, number, count=3, seed=42):
    return InContextExamples(retain, forget, count=count, seed=seed).of(row, number)


@settings(max_examples=25)
@given(st.sampled_from(WORLD.forget), st.integers(0, 9), st.integers(1, 5), st.integers(0, 99))
def test_turns_come_from_harmless_retain_rows(row, number, count, seed):
    turns = demonstrations(WORLD.retain, WORLD.forget, row=row, number=number, count=count, seed=seed)
    assert [turn.role for turn in turns] == ["user", "assistant"] * count
    pairs = set(zip(turns[::2], turns[1::2], strict=True))
    assert len(pairs) == count
    assert pairs <= {(r.messages[-1], Message("assistant", r.answer)) for r in WORLD.retain}
    text = "\n".join(turn.content for turn in turns)
    assert not any(says(text, secret) for secret in labelled_parts(row))
    assert not says(text, row.subject)


def test_every_row_has_its_own_draw():
    pool = InContextExamples(WORLD.retain, WORLD.forget)
    draws = {(row, number): pool.of(row, number) for row in WORLD.forget for number in range(3)}
    assert len(set(draws.values())) > 0.9 * len(draws)
    row = WORLD.forget[5]
    assert demonstrations(WORLD.retain, WORLD.forget, row=row, number=2) == draws[row, 2]
    assert demonstrations(WORLD.retain, WORLD.forget, row=row, number=2, seed=1) != draws[row, 2]


def test_excluded_rows():
    row = Example.from_qa("Where does Orla Venn live?", "In Kelbury.", forget_spans=((3, 10),), subject="Orla Venn")
    row = dataclasses.replace(row, paraphrases=("Where is the home of Orla?",))
    forget = [Example.from_qa("Who is Tavi Brook?", "A potter.")]
    bad = [
        row,
        Example.from_qa("where does  orla venn live?", "Nobody knows."),
        Example.from_qa("Where is the home of Orla?", "At sea."),
        Example.from_qa("Who is Tavi Brook?", "A sailor."),
        Example.from_qa("Who is Ines Mar?", "a potter."),
        Example.from_qa("Who is Ines?", "A cook.", subject="Orla Venn"),
        Example.from_qa("Who knows Orla Venn?", "Ines Mar."),
        Example.from_qa("Where is the fair?", "At kelbury, in spring."),
        Example((), "Plain text about bees."),
        Example((Message("user", "Hello."), Message("assistant", "Hello!"), Message("user", "And who else?")), "Tom."),
    ]
    good = [
        Example.from_qa("Where is Kelburytown?", "Up north."),
        Example((Message("system", "Be brief."), Message("user", "Who sells honey?")), "Ines Mar."),
    ]
    shown = demonstrations([*bad, *good], forget, row=row, number=0, count=2)
    assert {turn.content for turn in shown} == {"Where is Kelburytown?", "Up north.", "Who sells honey?", "Ines Mar."}
    with pytest.raises(ValueError, match=r"2 of 12 .*3"):
        demonstrations([*bad, *good], forget, row=row, number=0)
