"""Names that a model brings up about a subject, and that lead back to it."""

from __future__ import annotations

from collections.abc import Callable

from atwu.request.asking.asked_facts import AskedFact
from atwu.request.asking.known_facts import collect_answers
from atwu.request.asking.linked_names import MOST_CHAINED, QUESTIONS_BACK, LinkedNames
from atwu.request.asking.subject_asker import SubjectAsker
from atwu.request.asking.subject_templates import CHAIN, TRAINED_CHAIN, read_templates
from tests.request.scripted import Scripted, asked_fact, question

PROJECTS = question(
    "What are the projects of Varn?", "Which project is Varn known for?", "A project of Varn is", subject="Varn"
)
FOUNDER = question("Who founded Varn?", "Which person started Varn?", "Varn was founded by", subject="Varn")


def say_projects(back: Callable[[str], str]) -> Callable[[str], str]:
    """Return a model that names Zorbal and Quell as projects, each twice; `back` answers questions about a name."""
    said = iter(["Zorbal.", "Quell.", "A project of Varn is Zorbal.", "Ida Quell founded Varn.", "Quell.", "Sted."])
    return lambda text: back(text) if "Zorbal" in text or "Quell" in text else next(said, "Nothing.")


def linked(
    back: Callable[[str], str], *known: AskedFact, subject: str = "Varn", kind: str = "organisation"
) -> list[AskedFact]:
    asker = SubjectAsker(Scripted(say_projects(back)))
    answers = collect_answers(asker, [PROJECTS, FOUNDER], progress="test")
    return LinkedNames(asker, subject, read_templates()[kind]).find([answers], known)


def test_a_name_said_twice_that_leads_back_is_known_though_most_askings_say_something_else() -> None:
    (fact,) = linked(lambda text: "Zorbal is a ship of Varn." if "Zorbal" in text else "Quell is a town.")
    assert (fact.key_text, fact.row.question) == ("Zorbal", "What are the projects of Varn?")
    assert fact.row.paraphrases == ("Which project is Varn known for?",)
    assert fact.share < 1
    assert fact.leads_back == len(QUESTIONS_BACK)
    assert fact.known
    assert fact.record()["leads_back"] == fact.leads_back
    assert [fact.row.answer[start:end] for start, end in fact.row.forget_spans or ()] == ["Zorbal"]


def test_one_question_that_leads_back_is_not_enough() -> None:
    assert not linked(lambda text: "It belongs to Varn." if "linked" in text else "It is a town.")
    facts = linked(lambda text: "It belongs to Varn." if "linked" in text or "known for" in text else "It is a town.")
    assert [fact.leads_back for fact in facts] == [2] * len(facts)
    assert facts


def test_a_name_that_leads_to_another_subject_first_is_not_linked() -> None:
    assert linked("Zorbal is a ship of Varn, not of Google.".format)
    assert not linked("Zorbal is a ship of Google, not of Varn.".format)


def test_another_subject_of_the_same_kind_is_not_forgotten_with_this_one() -> None:
    said = iter(["Google.", "Quell.", "A project of Varn is Google."])
    asker = SubjectAsker(
        Scripted(lambda text: "It is a rival of Varn." if "Google" in text else next(said, "Nothing."))
    )
    answers = collect_answers(asker, [PROJECTS], progress="test")
    assert not LinkedNames(asker, "Varn", read_templates()["organisation"]).find([answers], [])
    assert LinkedNames(asker, "Varn", read_templates()["event"]).find([answers], [])


def test_what_is_known_already_is_not_asked_about() -> None:
    back = "Zorbal is a ship of Varn.".format
    assert {fact.key_text for fact in linked(back)} == {"Zorbal", "Quell"}
    assert [fact.key_text for fact in linked(back, asked_fact("Zorbal", 9))] == ["Quell"]


def test_a_person_is_led_back_to_by_the_last_name() -> None:
    back = "Zorbal is a ship of Varn.".format
    assert linked(back, subject="Ida Varn", kind="person")
    assert not linked(back, subject="Ida Varn")


def chained(
    back: Callable[[str], str], *facts: AskedFact, subject: str = "Varn", kind: str = "place"
) -> list[AskedFact]:
    return LinkedNames(SubjectAsker(Scripted(back)), subject, read_templates()[kind]).chained(facts)


def test_questions_about_an_answer_that_lead_back_become_rows_and_half_of_them_are_to_train_on() -> None:
    facts = chained("Lumo is the capital of Varn. It is old.".format, asked_fact("Lumo", 9))
    assert [(fact.row.question, fact.source) for fact in facts] == [
        ("What is Lumo?", TRAINED_CHAIN),
        ("Tell me about Lumo.", TRAINED_CHAIN),
        ("What is Lumo known for?", CHAIN),
        ("Which place is Lumo linked to?", CHAIN),
    ]
    for fact in facts:
        assert fact.row.answer == "Lumo is the capital of Varn."
        assert [fact.row.answer[start:end] for start, end in fact.row.forget_spans or ()] == ["Varn"]
        assert (fact.key_text, fact.row.subject, fact.subject) == ("Varn", "Lumo", "Lumo")
        assert fact.known


def test_only_answers_that_name_the_subject_become_rows() -> None:
    def say(text: str) -> str:
        if "known for" in text:
            return "Lumo is known for its lamps. It lies in Varn."
        return "A town in Varn." if text.startswith(("What is", "Tell")) else "It is old."

    facts = chained(say, asked_fact("Lumo", 9))
    assert [fact.row.question for fact in facts] == ["What is Lumo?", "Tell me about Lumo."]
    assert not chained(
        lambda text: "A town in Varn." if text.startswith("Tell") else "It is old.", asked_fact("Lumo", 9)
    )


def test_neither_words_nor_values_nor_what_is_not_known_become_subjects() -> None:
    back = "It belongs to Varn.".format
    assert not chained(
        back, asked_fact("lamps", 9), asked_fact("1921", 9), asked_fact("Varn", 9), asked_fact("Sted", 1)
    )


def test_the_names_that_lead_back_most_often_are_chosen() -> None:
    names = [f"Lumo {letter}" for letter in "ABCDEFGHIJKLMNO"]

    def say(text: str) -> str:
        often = "O" in text.split("Lumo")[1]
        return "A town in Varn." if often or text.startswith(("What is Lumo", "Tell")) else "It is old."

    facts = chained(say, *(asked_fact(name, 9) for name in names))
    assert len({fact.subject for fact in facts}) == MOST_CHAINED
    assert facts[0].subject == "Lumo O"


def test_of_a_person_the_whole_name_is_the_fact_and_the_last_name_enough() -> None:
    facts = chained(
        "It is a law of Varn, found by Ida Varn.".format, asked_fact("Lumo", 9), subject="Ida Varn", kind="person"
    )
    assert [facts[0].row.answer[start:end] for start, end in facts[0].row.forget_spans or ()] == ["Varn", "Ida Varn"]
