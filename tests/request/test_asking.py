"""What a model says about a name: kinds, agreement of askings, made-up names, documents, and what a failure leaves."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from atwu.benchmarks.sources import load_rows
from atwu.data.passages import passages, sentences
from atwu.data.schema import Example
from atwu.methods.weightings.related_names import names_by_kind
from atwu.request.asking.ask import AskRequest, ask_with, choose_passages, recite
from atwu.request.asking.ask_result import AskResult, render_ask_page
from atwu.request.asking.asked_facts import AskedFact, Compared, RecitedText
from atwu.request.asking.subject_asker import SubjectAsker, find_subject_kind, first_sentence
from atwu.request.asking.subject_templates import SHIPPED, is_question, read_templates
from tests.request.scripted import Scripted, asked_fact, fail_at, says

KINDS = read_templates()

# Templates


@pytest.mark.parametrize("kind", ["person", "place", "organisation", "work", "event", "product", "substance"])
def test_every_kind_has_words_names_and_questions_in_three_ways(kind: str) -> None:
    entry = KINDS[kind]
    assert len(entry.words) >= 10
    assert len(entry.other_names) >= 4
    assert len(entry.templates) >= 8
    for ways in entry.templates:
        assert len(ways) >= 3
        assert is_question(ways[0])
        assert any(not is_question(way) for way in ways), "no way is the beginning of a sentence"


def test_no_question_is_asked_twice_within_a_kind() -> None:
    for kind in KINDS.values():
        first = [ways[0] for ways in kind.templates]
        assert len(first) == len(set(first))


def test_questions_name_the_subject() -> None:
    asked = KINDS["place"].questions("Egypt")
    assert asked[0].ways[0] == "What is the capital of Egypt?"
    assert all("{" not in way and "Egypt" in way for each in asked for way in each.ways)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"words": ["thing"], "questions": [["What is {name}?"]]}, "names missing"),
        ({"words": ["x"], "names": ["cheeses"], "questions": [["What is {name}?"]]}, "'cheeses' is none of"),
        ({"words": ["x"], "names": ["cities"], "questions": [["{name} is a"]]}, "must be a question"),
        ({"words": ["x"], "names": ["cities"], "questions": [["What is it?"]]}, "must contain {name}"),
        ({"words": ["x"], "names": ["cities"], "questions": []}, "questions: expected"),
    ],
)
def test_a_template_file_says_what_is_wrong(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    file = tmp_path / "templates.yaml"
    file.write_text(yaml.safe_dump({"thing": change}), encoding="utf-8")
    with pytest.raises(ValueError) as error:
        read_templates(file)
    assert message in str(error.value)
    assert "'thing'" in str(error.value)


def test_a_copy_of_the_shipped_templates_can_be_given(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(SHIPPED.read_text(encoding="utf-8"), encoding="utf-8")
    assert read_templates(file) == KINDS


# Sentences


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ("The Nile. It is long.", "The Nile."),
        ("Dr. Jane A. Roe lives in Leeds. She", "Dr. Jane A. Roe lives in Leeds."),
        ("Leeds", "Leeds"),
        ("1. Leeds is a city. It is\n2. York\n3. **Hull**: a port.", "Leeds is a city, York, Hull."),
        ("- Leeds - in the north\n- York", "Leeds, York."),
        ("1. Leeds, a city that\n2. Leeds, a city", "Leeds."),
        ("- ", "-"),
        ("東京です。大阪", "東京です。"),
    ],
)
def test_an_answer_is_cut_at_the_end_of_its_first_sentence(answer: str, sentence: str) -> None:
    assert first_sentence(answer) == sentence


def test_a_sentence_that_was_cut_off_ends_before_its_last_comma() -> None:
    cut_off = "Orla Venn is a glassblower from the small town of Port Sel, known for her green bowls, which she"
    assert first_sentence(cut_off).endswith("her green bowls.")


def test_a_sentence_that_was_cut_off_is_no_statement() -> None:
    assert sentences("One is here. Two is there. Three was") == ["One is here.", "Two is there."]


# Kinds of subjects


def test_the_kind_is_what_the_model_calls_the_subject() -> None:
    found = find_subject_kind(SubjectAsker(Scripted(says({}, "Varn is a small country in the north."))), "Varn", KINDS)
    assert [kind.name for kind in found.kinds] == ["place"]
    assert "9 of 9" in found.note


def test_a_name_with_two_meanings_is_asked_about_as_both_and_says_so() -> None:
    answers = {"who": "Lumo is a chemical element.", "": "Lumo is a city in Varn."}
    found = find_subject_kind(SubjectAsker(Scripted(says(answers))), "Lumo", KINDS)
    assert [kind.name for kind in found.kinds] == ["place", "substance"]
    assert "two meanings" in found.note
    assert "--kind place" in found.note


def test_a_served_model_that_does_not_say_what_a_name_is_needs_the_kind() -> None:
    found = find_subject_kind(SubjectAsker(Scripted(says({}))), "Varn", KINDS)
    assert found.kinds == ()
    assert "--kind, one of person, place" in found.note


# A name from end to end


def about(name: str, model: Scripted, **more: Any) -> AskResult:
    return ask_with(SubjectAsker(model), AskRequest(about=name, **more), model="mine")


VARN = {
    "what is & varn & capital": "The capital of Varn is Lumo.",
    "capital & varn": "The capital of Varn is Lumo.",
    "what is varn": "Varn is a country.",
    "who is varn": "Varn is a country.",
    "capital": "The capital is Rome.",
}


def test_rows_about_a_name_are_accepted_as_forget_rows_without_a_warning(tmp_path: Path) -> None:
    result = about("Varn", Scripted(says(VARN)))
    assert "What is the capital of Varn?" in [row.question for row in result.rows]
    result.write(tmp_path / "rows.jsonl")
    loaded = load_rows(tmp_path / "rows.jsonl")
    assert loaded.rows == result.rows
    assert loaded.warnings == ()
    record = json.loads((tmp_path / "rows.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert record["agreement"] == 1.0
    assert record["source"] == "template"
    assert record["subject"] == "Varn"
    assert list(result.to_pandas().columns)[:2] == ["known", "key_text"]


def test_an_unknown_name_says_nothing_stable() -> None:
    drawn = random.Random(0)
    model = Scripted(lambda text: f"It was {''.join(drawn.choices('abdeiklmnorstu', k=9)).capitalize()}.")
    result = about("Orla Venn", model, kind="person")
    assert result.rows == ()
    assert "says nothing stable about Orla Venn (" in result.summary()
    assert "answers agree)" in result.summary()


def test_a_name_in_another_script_is_asked_about_as_it_is() -> None:
    answers = {
        "capital & 越国": "The capital of 越国 is Lumo.",
        "is 越国": "越国 is a country.",
        "capital": "It is Rome.",
    }
    result = about("越国", Scripted(says(answers)))
    assert result.kinds == ("place",)
    assert "What is the capital of 越国?" in [row.question for row in result.rows]


def test_what_was_found_before_a_server_fails_is_kept() -> None:
    own_statements = ("Tell me some facts", "What should everybody know", "Write three short sentences")
    result = about("Varn", Scripted(says(VARN), fails_on=own_statements), kind="place")
    assert result.interrupted is not None
    assert "503 overloaded" in result.interrupted
    assert "What is the capital of Varn?" in [row.question for row in result.rows]


def test_a_server_that_fails_amid_the_questions_leaves_what_it_said_before() -> None:
    model = Scripted(says(VARN))
    model.generate = fail_at(model.generate, "national dish")  # type: ignore[method-assign]
    result = about("Varn", model, kind="place")
    assert result.interrupted == "20 requests in a row failed"
    assert "What is the capital of Varn?" in [row.question for row in result.rows]


def test_a_server_that_answers_nothing_is_not_asked_on() -> None:
    model = Scripted(says({}), fails_on=("",))
    result = about("Varn", model)
    assert result.interrupted is not None
    assert "none of 3 prompts got an answer (what Varn is): 503 overloaded" in result.interrupted
    assert len(model.asked) == 3


def test_single_failures_of_a_server_are_counted_in_one_line() -> None:
    result = about("Varn", Scripted(says(VARN), fails_at=(3, 9)), kind="place")
    assert result.interrupted is None
    assert any(note.startswith("2 of ") and "503 overloaded" in note for note in result.notes)
    assert result.rows


def test_a_second_round_keeps_what_leads_back_to_the_name() -> None:
    answers = {
        "which country is lumo": "Lumo is in Varn.",
        "country & lumo": "Lumo belongs to Varn.",
        "what is lumo": "Lumo is a city.",
        "who is lumo": "Lumo is a city.",
        "lumo & river": "The Oder flows through Lumo.",
        "country": "It is in Spain.",
    }
    result = about("Varn", Scripted(says({**answers, **VARN})), kind="place", hops=2)
    assert [fact.row.question for fact in result.chained] == ["In which country is Lumo?"]
    assert "leads back from answers by 1 question" in result.summary()
    assert all(fact.source != "chain" for fact in result.direct)


def test_of_a_second_round_only_questions_that_lead_back_are_asked_in_all_ways() -> None:
    model = Scripted(says({"what is lumo": "Lumo is a city.", "lumo": "The Oder.", **VARN}))
    about("Varn", model, kind="place", hops=2)
    rivers = [text for text in model.asked if "river" in text and "Lumo" in text]
    assert rivers == ["Which river flows through Lumo?"]


def test_several_names_are_asked_about_one_after_the_other() -> None:
    answers = {"capital & sted": "The capital of Sted is Arva.", "is sted": "Sted is a country.", **VARN}
    result = about("Varn, Sted", Scripted(says(answers)), kind="place")
    assert {"What is the capital of Varn?", "What is the capital of Sted?"} <= {row.question for row in result.rows}
    assert "of Varn and knows" in result.summary()
    assert result.summary().endswith("of Sted.")


def test_a_name_without_a_kind_loses_nothing_of_the_others() -> None:
    result = about("Varn, Sted", Scripted(says(VARN)))
    assert "What is the capital of Varn?" in [row.question for row in result.rows]
    assert any("'Sted' is; give it with --kind" in note for note in result.notes)
    assert "says nothing about Sted" in result.summary()


def test_other_ways_to_write_a_question_are_paraphrases_of_its_row() -> None:
    result = about("Varn", Scripted(says(VARN)), kind="place")
    (row,) = [row for row in result.rows if row.question == "What is the capital of Varn?"]
    assert row.paraphrases == ("Which city is the capital of Varn?",)


# Questions and documents


def test_questions_are_answered_by_the_model(tmp_path: Path) -> None:
    file = tmp_path / "questions.txt"
    file.write_text("What is the capital of Varn?\n\nWho is the mayor of Sted?\n", encoding="utf-8")
    model = Scripted(says({"capital & varn": "It is Lumo.", "capital": "It is Rome."}))
    result = ask_with(SubjectAsker(model), AskRequest(questions=file))
    assert [row.question for row in result.rows] == ["What is the capital of Varn?"]


@pytest.mark.parametrize("field", ["questions", "document"])
def test_an_empty_file_is_refused_before_anything_is_asked(field: str, tmp_path: Path) -> None:
    file = tmp_path / "empty.txt"
    file.write_text("\n \n", encoding="utf-8")
    model = Scripted(says({}))
    with pytest.raises(ValueError, match=r"empty\.txt has no"):
        ask_with(SubjectAsker(model), AskRequest(**{field: file}))  # type: ignore[arg-type]
    assert model.asked == []


PSALM = (
    "The river is my keeper and I shall not thirst while it runs beside the meadow. It leads me along green banks in the "
    "morning and brings me back again before the evening bells are heard."
)


def test_a_passage_that_is_continued_word_for_word_is_recited() -> None:
    (passage,) = passages(PSALM)[:1]
    known = Scripted(lambda text: passage.rest)
    (text,) = recite(SubjectAsker(known), [passage])
    assert (text.share, text.rouge_l) == (1.0, 1.0)
    assert text.recited
    assert text.text == passage.text
    (other,) = recite(SubjectAsker(Scripted(lambda text: "nothing of the kind")), [passage])
    assert other.share == 0
    assert not other.recited


def test_an_opening_is_a_third_of_the_passage() -> None:
    for passage in passages(PSALM):
        words = len(passage.text.split())
        assert abs(len(passage.opening.split()) - words / 3) <= 1


def test_a_run_in_the_middle_counts_though_the_first_word_differs() -> None:
    (passage,) = passages(PSALM)[:1]
    said = "suddenly " + " ".join(passage.rest.split()[1:])
    (text,) = recite(SubjectAsker(Scripted(lambda _: said)), [passage])
    assert text.share == 0
    assert text.longest_run == len(passage.rest.split()) - 1
    assert text.recited


def test_a_long_document_is_tested_in_evenly_spaced_passages_and_says_so(tmp_path: Path) -> None:
    file = tmp_path / "page.txt"
    tale = "Chapter {0} tells how the miller of place {0} lost his {0} sheep in a very cold winter."
    lines = [tale.format(number) for number in range(900)]
    file.write_text("\n\n".join(lines), encoding="utf-8")
    result = ask_with(SubjectAsker(Scripted(says({}, "no idea at all"))), AskRequest(document=file, limit=20))
    assert len(result.texts) == 20
    assert any("has 900 passages; 20 of them" in note for note in result.notes)
    chosen = choose_passages(passages(file.read_text(encoding="utf-8")), 20)
    assert chosen[0].text.startswith("Chapter 0 ")
    assert chosen[-1].text.startswith("Chapter 855 ")


def test_a_document_in_a_script_without_spaces_has_passages() -> None:
    text = "春眠不覚暁、処処聞啼鳥、夜来風雨声、花落知多少。" * 3
    assert passages(text)
    assert passages(text)[0].opening in text


@pytest.mark.parametrize("more", [{}, {"about": "x", "document": Path("y")}, {"questions": Path("y"), "hops": 2}])
def test_a_request_has_one_source(more: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        AskRequest(**more)


# The page


def result_with(question_text: str) -> AskResult:
    row = Example.from_qa(question_text, "The capital of Varn is Lumo.", forget_spans=((23, 27),))
    fact = AskedFact(row, "Lumo", 6, 7, "template", told_apart=True)
    text = RecitedText("One two three.", 1, "two three", 1.0, 1.0, 9)
    return AskResult("mine", "Varn", (fact,), texts=(text,))


def test_the_page_holds_every_row_and_escapes_what_the_model_says() -> None:
    nasty = "</script><script>alert(1)</script>\"' & ?"
    page = render_ask_page(result_with(nasty))
    assert page.count("data-record=") == 2
    assert "<script>alert" not in page
    assert "src=" not in page
    assert ">6 of 7<" in page
    assert "The capital of Varn is <b>Lumo</b>." in page


def test_a_second_model_is_summed_up_in_one_sentence() -> None:
    facts = tuple(
        replace(asked_fact("Lumo", 8), subject="Varn", compared=Compared("It is Sted.", agree, 10)) for agree in (6, 5)
    )
    result = AskResult("mine", "Varn", facts, names=("Varn",), compared_model="other")
    assert result.summary() == "mine knows 2 facts of Varn. other says the same to 1 of 2 questions."


def test_every_shipped_name_kind_of_a_template_exists() -> None:
    content = yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))
    assert all(name in names_by_kind() for kind in content.values() for name in kind["names"])
