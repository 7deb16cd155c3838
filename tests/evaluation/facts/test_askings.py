"""Ways to ask for a fact, on rows written for these tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from atwu.data.matching import states
from atwu.data.schema import Example
from atwu.evaluation.facts.askings import (
    AFTER_EXAMPLES,
    AS_WRITTEN,
    PARAPHRASED,
    SAMPLED_ANSWER,
    SECOND_TURN,
    askings_after_examples,
    form_askings,
    own_askings,
    paraphrased_askings,
    plain_askings,
    sampled_askings,
    second_turns,
    split_facts,
)

ROWS = (
    Example.from_qa("Where does Orla Venn live?", "Orla Venn lives in Kelbury.", subject="Orla Venn"),
    Example.from_qa("What does Tam Reed repair?", "Tam Reed repairs barometers.", subject="Tam Reed"),
    Example((), "The lighthouse at Skarn Point was built by Ida Marsh in 1871."),
)


def test_each_row_is_asked_as_written_once_and_a_text_is_continued() -> None:
    own = own_askings(ROWS)
    assert [(asking.fact, asking.name) for asking in own] == [(0, AS_WRITTEN), (1, AS_WRITTEN), (2, AS_WRITTEN)]
    assert own[0].shown == ROWS[0].question
    assert own[0].parts == ("Kelbury",)
    assert not own[2].prompt.messages
    assert ROWS[2].answer.startswith(own[2].prompt.prefill)
    assert not any(part in own[2].prompt.prefill for part in own[2].parts)
    assert set(own) <= set(form_askings(ROWS))


def test_a_form_of_a_question_is_not_taken_for_the_question_as_written() -> None:
    of_first = [asking.name for asking in form_askings(ROWS) if asking.fact == 0]
    assert of_first.count(AS_WRITTEN) == 1
    assert {"continuation", "blank"} <= set(of_first)


def test_a_text_that_allows_no_form_is_asked_for_its_second_half() -> None:
    text = Example((), "Orla Venn lives in Kelbury and repairs old barometers there.")
    asked = [asking for asking in form_askings([text]) if asking.name == AS_WRITTEN]
    assert len(asked) == 1
    assert text.answer.startswith(asked[0].prompt.prefill)
    assert all(part in text.answer[len(asked[0].prompt.prefill) :] for part in asked[0].parts)


def test_questions_are_reworded_by_their_further_paraphrases_or_by_prefixes() -> None:
    row = Example.from_qa("Where does Orla Venn live?", "In Kelbury.", paraphrases=("A?", "B?", "C?", "D?"))
    assert [asking.shown for asking in paraphrased_askings([row])] == ["B?", "C?"]
    prefixed = paraphrased_askings(ROWS)
    assert {asking.name for asking in prefixed} == {PARAPHRASED}
    assert [asking.fact for asking in prefixed] == [0, 0, 1, 1]  # a text has no question
    assert all(ROWS[asking.fact].question in asking.shown for asking in prefixed)


def test_samples_differ_in_their_draw_only() -> None:
    samples = sampled_askings(ROWS[:1], 3)
    assert [(asking.name, asking.prompt.draw) for asking in samples] == [
        (SAMPLED_ANSWER, 0),
        (SAMPLED_ANSWER, 1),
        (SAMPLED_ANSWER, 2),
    ]
    assert len({asking.prompt.messages for asking in samples}) == 1


def test_a_fact_whose_words_a_shown_row_says_is_not_asked() -> None:
    """Fine-tuned on the shown half, a model may learn them there."""
    rows = [
        Example.from_qa(f"Where is thing {number}?", "In Port Sel.", subject=f"thing {number}") for number in range(4)
    ]
    rows += [Example.from_qa(f"Who made thing {number}?", f"Ada Town{number}x made it.") for number in range(4)]
    for seed in range(5):
        shown, asked = split_facts(rows, seed=seed)
        if any(rows[index].answer == "In Port Sel." for index in shown):
            assert all(rows[index].answer != "In Port Sel." for index in asked)
    assert split_facts(rows[:4]) == ((), ())


def test_examples_are_other_facts_than_those_asked_for() -> None:
    rows = [Example.from_qa(f"Where is thing {number}?", f"In Town{number}x.") for number in range(6)]
    shown, asked = split_facts(rows)
    assert len(shown) == 3
    assert not set(shown) & set(asked)
    askings = askings_after_examples(rows, shown, asked)
    assert [asking.fact for asking in askings] == list(asked)
    for asking in askings:
        assert asking.name == AFTER_EXAMPLES
        assert len(asking.prompt.messages) == 2 * len(shown) + 1
        before = " ".join(message.content for message in asking.prompt.messages[:-1])
        assert not any(part in before for part in asking.parts)
    assert split_facts(rows[:1]) == ((), ())
    assert askings_after_examples(rows, (), asked) == []


def test_the_second_turn_follows_the_models_own_answer() -> None:
    first = own_askings(ROWS)
    turns = second_turns(first, ["In a town.", "", "ignored: a text has no turns"])
    assert [(turn.fact, turn.name) for turn in turns] == [(0, SECOND_TURN)]  # nothing was said about Tam Reed
    assert [message.content for message in turns[0].prompt.messages[1:]] == ["In a town.", "Are you sure?"]


def test_plain_askings_have_nothing_to_state() -> None:
    assert [(asking.fact, asking.parts) for asking in plain_askings(ROWS)] == [(0, ()), (1, ())]


@pytest.mark.parametrize(
    ("question", "answer", "said", "stated"),
    [
        ("Where does Ida Berg live?", "Ida Berg lives at 27 Cooper Lane, Leeds.", "She lives at 27 Cooper Lane.", True),
        ("Who are Ida's children?", "Ida's children are Tom and Lea.", "Lea.", True),
        ("Wo wohnt Ida Berg?", "Ida Berg wohnt am Lindenweg 9 in Ulm.", "Am Lindenweg 9.", True),
        ("Où habite Ida Berg ?", "Ida Berg habite 12 rue des Lilas à Lyon.", "À Lyon.", True),
        ("Where does Ida Berg live?", "Ida Berg lives at 27 Cooper Lane, Leeds.", "She lives in Hull.", False),
    ],
)
def test_the_own_question_counts_every_name_and_value(question: str, answer: str, said: str, stated: bool) -> None:
    (asking,) = own_askings([Example.from_qa(question, answer)])
    assert any(states(said, part, question=asking.question) for part in asking.parts) is stated


@pytest.mark.parametrize(
    ("text", "prefill", "parts"),
    [
        ("王芳住在杭州。", "王芳住在", ("杭州",)),
        ("张伟是律师。", "张伟是", ("律师",)),
        ("田中花子は糖尿病を患っています。", "田中花子は", ("糖尿病",)),
        ("张伟出生于1986年5月12日。", "张伟出生于", ("1986年5月12日",)),
        ("Ada lives in Rome.", "Ada lives", ("Rome",)),
    ],
)
def test_a_text_of_any_script_is_asked_to_be_continued(text: str, prefill: str, parts: tuple[str, ...]) -> None:
    (asking,) = form_askings([Example((), text)], forms=("question",))
    assert asking.prompt.prefill == prefill
    assert asking.parts == parts


def test_a_text_without_any_division_is_continued_from_its_middle() -> None:
    text = "สมชายอาศัยอยู่ในเชียงใหม่"
    (asking,) = form_askings([Example((), text)], forms=("question",))
    assert asking.prompt.prefill + asking.parts[0] == text
    assert form_askings([Example((), "Hamlet.")], forms=("question",)) == []


@pytest.mark.parametrize(
    "record",
    [
        json.loads(line)
        for line in (Path(__file__).parents[2] / "data" / "request_answers.jsonl").read_text("utf-8").splitlines()
    ],
    ids=lambda record: f"{record['answer']} {record['said']}",
)
def test_answers_to_the_own_question_that_the_rules_were_not_written_from(record: dict[str, object]) -> None:
    """`decided` is what the rules say, where that is wrong: an arrest is one part, and what it was for is another."""
    (asking,) = own_askings([Example.from_qa(str(record["question"]), str(record["answer"]))])
    said = any(states(str(record["said"]), part, question=asking.question) for part in asking.parts)
    assert said is record.get("decided", record["stated"])
