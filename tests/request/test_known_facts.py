"""What a model knows: answers that it repeats in other askings, and not about other names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from atwu.data.schema import Example
from atwu.methods.weightings.contrast import TokenLogps
from atwu.request.asking.asked_facts import AskedFact
from atwu.request.asking.known_facts import ask_for_facts, collect_answers, compare_facts, mark_guesses
from atwu.request.asking.subject_asker import SubjectAsker
from atwu.request.asking.subject_templates import SubjectQuestion, read_templates
from atwu.request.row_facts import ModelReader
from tests.request.scripted import Scripted, asked_fact, question, says

KINDS = read_templates()


def test_what_a_model_repeats_in_most_askings_is_known() -> None:
    model = Scripted(says({"capital & varn": "The capital of Varn is Lumo.", "capital": "The capital is Sted."}))
    (fact,) = ask_for_facts(
        SubjectAsker(model),
        [question("What is the capital of Varn?", "The capital of Varn is", subject="Varn")],
        kinds=[KINDS["place"]],
        progress="test",
    )
    assert fact.key_text == "Lumo"
    assert fact.agree == fact.askings > 4
    assert fact.known
    assert fact.row.answer[slice(*fact.row.forget_spans[0])] == "Lumo"  # type: ignore[index]


def test_what_is_said_of_every_name_is_no_fact() -> None:
    model = Scripted(says({}, "It is famous for its Renaissance festival."))
    (fact,) = ask_for_facts(
        SubjectAsker(model),
        [question("What is Varn famous for?", "Varn is famous for", subject="Varn")],
        kinds=[KINDS["place"]],
        progress="test",
    )
    assert fact.repeated
    assert fact.told_apart is False
    assert not fact.known


def test_what_changes_with_every_asking_is_not_known() -> None:
    towns = iter(["Lumo", "Sted", "Arva", "Belk", "Cora", "Dorn", "Evas", "Fenn"])
    model = Scripted(lambda text: f"It is in {next(towns)}.")
    (fact,) = ask_for_facts(
        SubjectAsker(model), [question("Where is Varn?", "Varn lies in", "Where does Varn lie?")], progress="test"
    )
    assert not fact.known
    assert fact.agree == 1
    assert fact.askings == len(model.asked) == 3, "asked further though the first answers have nothing in common"


def test_what_two_first_answers_share_is_asked_in_all_ways() -> None:
    towns = iter(["Lumo", "Sted", "Lumo", "Belk", "Cora", "Dorn", "Evas", "Fenn"])
    model = Scripted(lambda text: f"It is in {next(towns)}.")
    (fact,) = ask_for_facts(
        SubjectAsker(model), [question("Where is Varn?", "Varn lies in", "Where does Varn lie?")], progress="test"
    )
    assert (fact.key_text, fact.agree, fact.askings) == ("Lumo", 2, 8)
    assert len(model.asked) == 8
    assert not fact.known


def test_of_several_parts_only_those_are_marked_that_are_repeated() -> None:
    def say(text: str) -> str:
        if text == "Where was Ida Holm born?":
            return "Ida Holm was born in Ulm, Norway."
        if "Ida Holm" in text or "ida holm" in text:
            return "Ida Holm was born in Norway."
        return "In Spain."

    (fact,) = ask_for_facts(
        SubjectAsker(Scripted(say)),
        [question("Where was Ida Holm born?", "Ida Holm was born in", subject="Ida Holm")],
        kinds=[KINDS["person"]],
        progress="test",
    )
    assert fact.key_text == "Norway"
    assert [fact.row.answer[start:end] for start, end in fact.row.forget_spans or ()] == ["Norway"]


def test_every_mention_of_what_is_repeated_is_marked() -> None:
    def say(text: str) -> str:
        if "varn" not in text.lower():
            return "It is Greek."
        if text == "Who is Varn named after?":
            return "Varn has the name of a Roman deity, of the Roman god."
        return "Varn is named after a Roman."

    (fact,) = ask_for_facts(
        SubjectAsker(Scripted(say)),
        [question("Who is Varn named after?", "Varn is named after", subject="Varn")],
        kinds=[KINDS["place"]],
        progress="test",
    )
    assert fact.key_text == "Roman"
    marked = [fact.row.answer[start:end] for start, end in fact.row.forget_spans or ()]
    assert sum("Roman" in text for text in marked) == fact.row.answer.count("Roman") == 2


def test_the_answer_of_the_row_is_one_that_says_what_most_askings_say() -> None:
    """A first answer beside the point does not hide a fact that all other askings agree on."""

    asked: list[str] = []

    def say(text: str) -> str:
        asked.append(text)
        if len(asked) == 1:
            return "It is a matter of debate."
        return "The capital of Varn is Lumo." if "varn" in text.lower() else "It is Rome."

    (fact,) = ask_for_facts(
        SubjectAsker(Scripted(say)),
        [question("What is the capital of Varn?", "Which town rules Varn?", subject="Varn")],
        kinds=[KINDS["place"]],
        progress="test",
    )
    assert (fact.row.question, fact.row.answer) == ("What is the capital of Varn?", "The capital of Varn is Lumo.")
    assert fact.known
    assert fact.agree < fact.askings


def test_words_that_a_model_says_to_everything_are_no_facts() -> None:
    model = Scripted(says({"varn & river": "It is indeed the Oder."}, "It is indeed a matter of debate."))
    asked = [
        question(f"What is the {what} of Varn?", subject="Varn") for what in ("river", "dish", "flag", "king", "bird")
    ]
    facts = ask_for_facts(SubjectAsker(model), asked, kinds=[KINDS["place"]], progress="test")
    assert [fact.key_text for fact in facts if fact.known] == ["Oder"]


class Reader:
    """Reads rows as a model that says "evolution" of Varn alone, and "renowned" of everybody."""

    generator = SimpleNamespace(too_long=lambda prompts: [None] * len(prompts))
    neighbours = SimpleNamespace(
        nearest=lambda names: {name: {"scientists": ["Ada Holm", "Otto Reed"]} for name in names}
    )

    def __call__(self, rows: Sequence[Example]) -> list[TokenLogps]:
        return [self._read(row) for row in rows]

    def _read(self, row: Example) -> TokenLogps:
        words = list(re.finditer(r"\w+", row.answer))
        known = "Varn" in row.question
        logps = [-0.1 if known or word.group() != "evolution" else -6.0 for word in words]
        return TokenLogps(np.array(logps), [word.span() for word in words])


def test_with_weights_a_word_said_to_everything_is_kept_if_it_is_said_of_no_other_subject() -> None:
    model = Scripted(says({}, "It is renowned for evolution."))
    asked = [
        question(f"What is the {what} of Varn?", subject="Varn") for what in ("field", "theory", "work", "book", "idea")
    ]
    served = collect_answers(SubjectAsker(model), asked, progress="test")
    assert served.fillers == {"renowned", "evolution"}
    local = collect_answers(SubjectAsker(model, read=cast(ModelReader, Reader())), asked, progress="test")
    assert local.fillers == {"renowned"}


def test_a_sentence_about_something_else_answers_with_its_first_part_only() -> None:
    answers = says({"father": "Varn was born in Lumo in Norway.", "where": "Varn was born in Lumo in Norway."})
    asked = [question("Who was the father of Varn?", subject="Varn"), question("Where was Varn born?", subject="Varn")]
    father, birth = collect_answers(SubjectAsker(Scripted(answers)), asked, progress="test").said
    assert father[0].texts == ("Lumo",)
    assert birth[0].texts == ("Lumo", "Norway")


def test_a_description_that_a_surer_question_gets_is_no_second_fact() -> None:
    profession, invention = asked_fact("renowned physicist", 9), asked_fact("German physicist", 8)
    assert [fact.known for fact in mark_guesses([invention, profession])] == [False, True]


def test_a_question_about_a_document_whose_answer_is_not_in_its_sentence_is_dropped() -> None:
    asked = SubjectQuestion(("Which country is Varn a rival of?",), "document", None, "Varn is a rival of Sted.")
    assert ask_for_facts(SubjectAsker(Scripted(says({}, "It is Arva."))), [asked], progress="test") == []
    assert ask_for_facts(SubjectAsker(Scripted(says({}, "It is Sted."))), [asked], progress="test") != []


def test_an_own_question_is_answered_by_a_name_in_a_sentence_about_the_subject() -> None:
    asked = SubjectQuestion(("Which country is Varn a rival of?",), "own question", "Varn")
    assert ask_for_facts(SubjectAsker(Scripted(says({}, "Arva is a major player."))), [asked], progress="test") == []
    assert ask_for_facts(SubjectAsker(Scripted(says({}, "Varn has a rich culture."))), [asked], progress="test") == []
    (fact,) = ask_for_facts(SubjectAsker(Scripted(says({}, "Varn is a rival of Sted."))), [asked], progress="test")
    assert fact.key_text == "Sted"


def test_an_own_question_whose_answer_its_statement_does_not_say_is_dropped() -> None:
    """A small model asks beside the point: of "Varn trades with Sted" it asks which country Varn is famous in."""
    asked = SubjectQuestion(("Which country is Varn famous in?",), "own question", "Varn", "Varn trades with Sted.")
    assert ask_for_facts(SubjectAsker(Scripted(says({}, "Varn is famous in Arva."))), [asked], progress="test") == []


def test_a_form_of_the_subjects_name_is_no_fact() -> None:
    model = Scripted(says({"varnia": "It was the Varnians, in the Oder valley."}, "It was the Romans."))
    (fact,) = ask_for_facts(
        SubjectAsker(model),
        [question("Who built the walls of Varnia?", "The walls of Varnia were built by", subject="Varnia")],
        kinds=[KINDS["place"]],
        progress="test",
    )
    assert fact.key_text == "Oder valley"


@pytest.mark.parametrize(
    ("fact", "known"),
    [
        (asked_fact("Lumo", 6), True),
        (asked_fact("Lumo", 5), False),
        (asked_fact("1921", 6), True),
        (asked_fact("rich cultural heritage", 6), False),
        (asked_fact("rich cultural heritage", 7), True),
        (asked_fact("Lumo", 7, probability=0.1), False),
        (asked_fact("Lumo", 8, probability=0.1), True),
        (asked_fact("Lumo", 6, probability=0.3), True),
    ],
)
def test_words_and_unlikely_answers_need_more_agreement(fact: AskedFact, known: bool) -> None:
    assert fact.known is known


def test_an_answer_that_a_surer_question_gets_needs_more_agreement() -> None:
    tower, palace, capital = (
        asked_fact("Tall Tower of Lumo", 9),
        asked_fact("Tall Tower of Lumo", 6),
        asked_fact("Sted", 6),
    )
    assert [fact.known for fact in mark_guesses([palace, capital, tower])] == [False, True, True]
    church = asked_fact("Tall Tower of Lumo", 8)
    assert [fact.known for fact in mark_guesses([church, tower])] == [True, True]


def test_refusals_give_no_fact() -> None:
    model = Scripted(says({"who": "I'm sorry, I don't know who that is."}))
    assert ask_for_facts(SubjectAsker(model), [question("Who is Varn?")], progress="test") == []


def test_another_model_is_counted_by_the_key_text_of_the_first() -> None:
    asked = [question("What is the capital of Varn?", "The capital of Varn is", subject="Varn")]
    before = SubjectAsker(Scripted(says({"capital & varn": "The capital of Varn is Lumo."}, "The capital is Sted.")))
    after = SubjectAsker(Scripted(says({}, "The capital is Sted.")))
    facts = ask_for_facts(before, asked, kinds=[KINDS["place"]], progress="test")
    (fact,) = compare_facts(after, facts, asked)
    assert fact.compared is not None
    assert fact.compared.answer == "The capital is Sted."
    assert fact.compared.agree == 0
    assert fact.compared.askings == fact.askings
