"""Names that a model brings up about a subject, and that lead back to it."""

from __future__ import annotations

from collections.abc import Callable

from atwu.request.asking.asked_facts import AskedFact
from atwu.request.asking.known_facts import collect_answers
from atwu.request.asking.linked_names import QUESTIONS_BACK, find_linked
from atwu.request.asking.subject_asker import SubjectAsker
from atwu.request.asking.subject_templates import read_templates
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
    return find_linked(asker, subject, read_templates()[kind], [answers], known)


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
    assert not find_linked(asker, "Varn", read_templates()["organisation"], [answers], [])
    assert find_linked(asker, "Varn", read_templates()["event"], [answers], [])


def test_what_is_known_already_is_not_asked_about() -> None:
    back = "Zorbal is a ship of Varn.".format
    assert {fact.key_text for fact in linked(back)} == {"Zorbal", "Quell"}
    assert [fact.key_text for fact in linked(back, asked_fact("Zorbal", 9))] == ["Quell"]


def test_a_person_is_led_back_to_by_the_last_name() -> None:
    back = "Zorbal is a ship of Varn.".format
    assert linked(back, subject="Ida Varn", kind="person")
    assert not linked(back, subject="Ida Varn")
