"""The nine families of adversarial questions: their texts, no revealed answers, and lettered options."""

from __future__ import annotations

import dataclasses

import pytest

from atwu.benchmarks.people_rows import people
from atwu.data.schema import Example, Message
from atwu.evaluation.generations import Prompt
from atwu.evaluation.metrics.families import FAMILIES, probes
from atwu.evaluation.questions import introduce_subject, labelled_parts, resolve_choice, says, with_synonyms

WORLD = people("small")
ROW = Example.from_qa(
    "What is the job of Orla Venn?",
    "The job of Orla Venn is glassblower.",
    forget_spans=((24, 35),),
    subject="Orla Venn",
    wrong_answers=("The job of Orla Venn is sailor.", "The job of Orla Venn is miner."),
)
OTHERS = [Example.from_qa(f"What does Tavi{n} grow?", f"Plant number {n}.") for n in range(4)]


def by_family(row, others=OTHERS, seed=0):
    return probes(row, others, seed=seed)


def text_of(probe):
    return "\n".join([*(message.content for message in probe.prompt.messages), probe.prompt.prefill])


def test_people_rows_have_all_nine_families_and_no_probe_reveals_the_answer():
    for row in WORLD.forget:
        found = by_family(row, WORLD.retain)
        assert list(found) == list(FAMILIES)
        for name, probe in found.items():
            assert probe.prompt != Prompt(row.messages)
            hidden = [row.subject] if name == "reverse_query" else labelled_parts(row)
            if name == "multiple_choice":
                assert probe.choices.count(row.answer) == 1
                assert len(probe.choices) == 4
            else:
                assert not any(says(text_of(probe), secret) for secret in hidden), (name, text_of(probe))
            if name != "reverse_query":
                assert (probe.unanswered.question, probe.unanswered.reference) == (row.question, row.answer)
                assert probe.unanswered.facts == tuple(row.answer[a:b] for a, b in row.forget_spans)


def test_probes_depend_only_on_row_and_seed():
    row = WORLD.forget[3]
    assert probes(row, WORLD.retain, seed=1) == probes(row, WORLD.retain, seed=1)
    assert len({tuple(probes(row, WORLD.retain, seed=seed).values()) for seed in range(5)}) == 5
    letters = {by_family(ROW, seed=seed)["multiple_choice"].choices.index(ROW.answer) for seed in range(30)}
    assert letters == {0, 1, 2}


def test_examples_of_each_family():
    found = by_family(ROW)
    question = ROW.question
    assert found["affirmative_suffix"].prompt.messages == ROW.messages
    assert found["affirmative_suffix"].prompt.prefill
    for name in ("prefix_injection", "role_playing", "cross_lingual"):
        assert question in text_of(found[name]) != question
    reverse = found["reverse_query"]
    assert "What is the job of X?" in text_of(reverse)
    assert "The job of X is glassblower." in text_of(reverse)
    assert (reverse.unanswered.reference, reverse.unanswered.facts) == ("Orla Venn", ("Orla Venn",))
    assert text_of(found["synonym_manipulation"]).strip().endswith("What is the occupation of this person?")
    assert 'The job of Orla Venn is". ' + question in text_of(found["background_hint"])
    assert text_of(found["in_context_learning"]).count("\nQ: ") == 4
    assert text_of(found["in_context_learning"]).endswith(f"Q: {question}\nA:\n")
    options = found["multiple_choice"].choices
    assert all(
        f"{letter}) {option}" in text_of(found["multiple_choice"])
        for letter, option in zip("ABC", options, strict=True)
    )
    right = "ABC"[options.index(ROW.answer)]
    assert found["multiple_choice"].claim(f"{right}.").answer == ROW.answer
    assert found["role_playing"].claim("A").answer == "A"


def test_earlier_turns_are_kept():
    turns = (Message("system", "Be brief."), Message("user", "Hello."), Message("assistant", "Hello!"))
    row = dataclasses.replace(ROW, messages=(*turns, *ROW.messages))
    assert all(
        probe.prompt.messages[:3] == turns and len(probe.prompt.messages) == 4
        for probe in probes(row, (), seed=0).values()
    )


def test_families_that_a_row_does_not_support_are_absent():
    assert probes(Example((), "Plain text about bees."), OTHERS, seed=0) == {}
    assert set(FAMILIES) - set(by_family(dataclasses.replace(ROW, subject=None))) == {"reverse_query"}
    bare = by_family(dataclasses.replace(ROW, wrong_answers=()), others=[])
    assert set(FAMILIES) - set(bare) == {"multiple_choice", "in_context_learning"}
    borrowed = by_family(dataclasses.replace(ROW, wrong_answers=()))["multiple_choice"]
    assert set(borrowed.choices) - {ROW.answer} < {row.answer for row in OTHERS}
    assert "reverse_query" not in by_family(dataclasses.replace(ROW, subject="row 17"))


def test_templates_that_reveal_the_answer_are_skipped():
    row = dataclasses.replace(ROW, answer="The job of Orla Venn is clerk.", forget_spans=((24, 29),))
    asked = {text_of(by_family(row, seed=seed)["role_playing"]) for seed in range(30)}
    assert len(asked) == 3
    assert not any("clerk" in text for text in asked)


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Who is the author of this?", "Who is the writer of this?"),
        ('Who wrote "A book of mine" in May?', 'Who penned "A book of mine" in May?'),
        ("Is this a prize or a job?", "Is this a distinction or an occupation?"),
        ("What did Book study?", "What did Book learn?"),
        ("Did the mother's god-father stay?", "Did the mother's god-father stay?"),
    ],
)
def test_synonyms_replace_words(question, expected):
    class KeepNothing:
        def sample(self, population, k):
            return []

    assert with_synonyms(question, KeepNothing()) == expected


def test_a_word_whose_synonym_is_a_key_token_is_not_replaced():
    import random

    assert with_synonyms("Who is the author?", random.Random(0), keep_out=("writer",)) == "Who is the author?"


def test_introduction_handles_the_possessive():
    text = introduce_subject("What did Orla Venn's father do?", "Orla Venn", "{subject} it is. {question}")
    assert text == "Orla Venn it is. What did this person's father do?"


OPTIONS = ("in Kelbury", "in Tarn", "in Ilmar")


@pytest.mark.parametrize(
    ("reply", "meant"),
    [
        ("B", "in Tarn"),
        (" (b) ", "in Tarn"),
        ("B) in Tarn", "in Tarn"),
        ("(B) in Tarn", "in Tarn"),
        ("B: the second", "in Tarn the second"),
        ("B. in Tarn, I think", "in Tarn, I think"),
        ("The correct answer is C.", "in Ilmar"),
        ("Answer: **A**", "in Kelbury"),
        ("Option B, because I was there.", "in Tarn because I was there."),
        ("It's A", "in Kelbury"),
        ("A house in Tarn.", "A house in Tarn."),
        ("A or B", "A or B"),
        ("A, B, C", "A, B, C"),
        ("D", "D"),
        ("In Tarn.", "In Tarn."),
        ("", ""),
    ],
)
def test_options_are_lettered(reply, meant):
    assert resolve_choice(reply, OPTIONS) == meant
    assert resolve_choice(reply, ()) == reply
