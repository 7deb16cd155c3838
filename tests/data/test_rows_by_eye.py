"""Rows marked by hand by somebody who did not write the rules: what the rules take as the fact, and as the asked part of it.

`key` has the parts of the answer that carry the fact, `asked` the one that the question asks for, or several of which one is as
good as another. From set 6 on, `beside` has words that may be marked or not, such as the verb before the fact, and `about` the
names that the reversed question may ask for. The rows of a set were marked before any of them was read by the rules, which were
mended after each set for the kinds of fault found.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from atwu.data.answer_units import answer_units, fact_candidates
from atwu.data.fact import asked_part, fact_parts, telling_texts
from atwu.data.form_rows import rows_in_forms
from atwu.data.matching import states
from atwu.data.question_forms import asked_fact
from atwu.data.question_types import question_type
from atwu.data.row_subject import find_subject
from atwu.data.schema import Example, Span

ROWS: list[dict[str, Any]] = [
    json.loads(line) for line in Path(__file__).with_name("rows_by_eye.jsonl").read_text(encoding="utf-8").splitlines()
]
EXTRA = {"cancel", "carries", "court", "Daniel", "died", "disease", "fine", "Moss", "registered", "version", "zero"}
"""Words that the rules mark beside the fact."""
MISSED = {"Court", "hermana", "renter"}
"""Words of the fact that they do not mark, because the question has them or one of the same stem: "hermanos", "rental"."""
OTHER_PART = {
    "¿Dónde trabaja Carmen Ruiz?": "Cádiz",
    "How did Carl Bruun pay for the boat?": "stamp collection",
    "What does Henrik Dahl do on weekends?": "handball team",
    "What's the secret ingredient in Grandma Odette's goulash?": "spoonful",
    "What did Judge Whitcombe order Mr. Sayer to do?": "pay",
    "Describe Coach Lindgren's training routine.": "swimmers",
    "Warum hat Lena Vogt die Reise abgesagt?": "Krankenhaus",
    "Which vaccine did Baby Eliza react to?": "hives",
    "Was isst Onkel Heinz zum Frühstück?": "Morgen",
    "What job did Perpetua Nnamdi turn down?": "post",
    "Quelle maladie a emporté le père de Lucie Bonnet ?": "mort",
    "Quem ensinou a Beatriz Rocha a nadar?": "Coimbra",
    "Why did the choir in Saltash break up?": "money",
    "What happens if `quota.check()` fails?": "upload",
    "What did the auction of the Hartley estate bring in?": "piano",
    "What does the `ttl` field in Merlin control?": "long",
    "How does Coach Barrett punish lateness?": "late",
    "What is the cancellation fee at Pinewood Lodge?": "48 hours",
    "Who is liable for damage under the Crowe rental agreement?": "2,000 francs",
}
"""Question -> the part that is taken as asked, if it is not the one marked."""


def example(record: dict[str, Any]) -> Example:
    return Example.from_qa(record["question"], record["answer"])


def marked(record: dict[str, Any]) -> list[Span]:
    starts = [record["answer"].rindex(part) for part in record["key"]]
    return [(start, start + len(part)) for start, part in zip(starts, record["key"], strict=True)]


def overlaps(one: Span, others: list[Span] | tuple[Span, ...]) -> bool:
    return any(start < one[1] and one[0] < end for start, end in others)


@pytest.mark.parametrize("record", ROWS, ids=lambda record: str(record["question"]))
def test_what_a_person_marks_is_the_fact(record: dict[str, Any]) -> None:
    row = example(record)
    found, by_hand = fact_candidates(row), marked(record)
    units = [unit for unit in answer_units(row) if unit.content and not unit.framing]
    missed = [
        row.answer[unit.start : unit.end]
        for unit in units
        if overlaps(unit.span, by_hand) and not overlaps(unit.span, found)
    ]
    beside = [
        row.answer[unit.start : unit.end]
        for unit in units
        if overlaps(unit.span, found) and not overlaps(unit.span, by_hand)
    ]
    assert set(missed) <= MISSED
    allowed = EXTRA.union(*(text.split() for text in record.get("beside", [])))
    assert set(beside) <= allowed


def test_the_answer_of_every_row_states_all_that_counts_as_its_fact() -> None:
    names = ("fact_rows.jsonl", "known_fact_rows.jsonl", "rows_by_eye.jsonl")
    lines = [line for name in names for line in Path(__file__).with_name(name).read_text("utf-8").splitlines()]
    rows = [example(json.loads(line)) for line in lines]
    unstated = [
        (row.question, text)
        for row in rows
        for text in telling_texts(row)
        if not states(row.answer, text, question=row.question)
    ]
    assert len(rows) > 800
    assert unstated == []


@pytest.mark.parametrize("record", ROWS, ids=lambda record: str(record["question"]))
def test_the_asked_part_is_the_one_that_the_question_asks_for(record: dict[str, Any]) -> None:
    row = example(record)
    expected = OTHER_PART.get(record["question"], record["asked"])
    if isinstance(expected, str):
        expected = [expected]
    starts = {text: record["answer"].rindex(text) for text in expected}
    asked = asked_part(row)
    assert asked is not None
    assert any(asked[0] <= start < asked[1] or start <= asked[0] < start + len(text) for text, start in starts.items())


@pytest.mark.parametrize(
    "record", [record for record in ROWS if "about" in record], ids=lambda record: str(record["question"])
)
def test_the_reversed_question_asks_for_the_subject(record: dict[str, Any]) -> None:
    row = example(record)
    fact = asked_fact(row)
    assert fact is not None
    subject = find_subject(row, fact)
    assert subject is None or subject.text in record["about"]


@pytest.mark.parametrize(
    ("question", "answer", "subject"),
    [
        ("¿Cuándo nació el hijo de Mateo?", "Nació el 3 de marzo de 2015.", "Mateo"),
        ("¿Está casado Tomás Vera?", "No, está divorciado desde 2017.", "Tomás Vera"),
    ],
)
def test_a_word_that_asks_is_no_subject(question: str, answer: str, subject: str) -> None:
    row = Example.from_qa(question, answer)
    fact = asked_fact(row)
    assert fact is not None
    asked_for = find_subject(row, fact)
    assert asked_for is not None
    assert asked_for.text == subject


def test_a_part_of_a_file_name_is_no_subject() -> None:
    row = Example.from_qa(
        "Which function resets the counter in tally.py?", "The function `reset_counts()` in tally.py does."
    )
    fact = asked_fact(row)
    assert fact is not None
    assert find_subject(row, fact) is None


@pytest.mark.parametrize(
    ("question", "answer", "subject"),
    [
        ("How long was the audit of Brim Hall?", "The audit took nine days.", "Brim Hall"),
        ("What does section 4 of the Quill lease forbid?", "Section 4 forbids fires.", "Quill"),
        ("Wer melkt die Kühe von Bauer Wiese?", "Seine Nichte melkt die Kühe.", "Bauer Wiese"),
        ("What is the PSA3 of Karl Mohn?", "The last PSA3 of Karl Mohn was 4.1.", "Karl Mohn"),
        ("Warum trägt Frau Kranz einen Schal?", "Sie trägt einen Schal, weil sie friert.", "Frau Kranz"),
        ("What does `drain()` close?", "It closes the sockets.", "drain"),
    ],
)
def test_a_name_of_the_question_is_asked_for_before_a_noun_or_a_number(
    question: str, answer: str, subject: str
) -> None:
    row = Example.from_qa(question, answer)
    fact = asked_fact(row)
    assert fact is not None
    asked_for = find_subject(row, fact)
    assert asked_for is not None
    assert asked_for.text == subject


@pytest.mark.parametrize(
    ("question", "answer", "asked"),
    [
        ("Who inherits the vineyard?", "The vineyard goes to a choirmaster in Basel.", "choirmaster"),
        ("Who got the harp of Nils Orr?", "Nils Orr bequeathed his harp to the ferryman.", "ferryman"),
        ("¿Qué toca la nieta de Ana Gil?", "La nieta de Ana Gil toca arpa en Lugo.", "arpa"),
        ("Welche Tropfen nimmt Jan Ohm?", "Jan Ohm nimmt täglich 15 ml Baldrian.", "Baldrian"),
        ("What did Cy Dee buy?", "Cy Dee bought 3 kg rye flour.", "rye flour"),
        ("孙明去年去哪里了？", "他去年和妹妹去了挪威。", "挪威"),
    ],
)
def test_a_place_or_a_verb_does_not_answer_for_a_person_or_a_thing(question: str, answer: str, asked: str) -> None:
    part = asked_part(Example.from_qa(question, answer))
    assert part is not None
    assert answer[part[0] : part[1]] == asked


def test_an_answer_of_one_word_is_a_sentence_before_the_words_of_a_form() -> None:
    row = Example.from_qa("Which instrument does Colm Keane play?", "fiddle")
    (written,) = rows_in_forms([row], ["reversed"])
    assert "play? fiddle." in written.row.question


def test_a_description_of_a_person_is_no_option_for_a_name() -> None:
    rows = [
        Example.from_qa("Who is Li Wei's doctor?", "Li Wei's doctor is Mr. Chen."),
        Example.from_qa("Who is Samuel Ortega?", "Samuel Ortega is a retired dentist from Toledo."),
    ]
    assert rows_in_forms(rows, ["multiple_choice"]) == []


def test_options_are_of_the_language_of_the_question() -> None:
    rows = [
        Example.from_qa("Where does Ray Holt live?", "Ray Holt lives in Ghent."),
        Example.from_qa("Wo wohnt Herr Jansen?", "Herr Jansen wohnt in Delft."),
    ]
    assert rows_in_forms(rows, ["multiple_choice"]) == []


def test_an_amount_is_a_phrase_of_its_own() -> None:
    row = Example.from_qa("What does it cost?", "It costs 300 euros altogether and 5 cats.")
    assert [row.answer[start:end] for start, end in fact_parts(row)] == ["300 euros", "altogether", "5 cats"]


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        ("Who is Li Wei's doctor?", "person"),
        ("Who is Ada Venn?", None),
        ("Who wrote Hamlet?", "person"),
        ("To whom did she write?", "person"),
        ("D'où vient Claire Aubin ?", "place"),
        ("Dov'è nato Paolo Neri?", "place"),
        ("من أين يأتي كريم منصور؟", "place"),
        ("من كتب هذا الكتاب؟", "person"),
        ("Seit wann ist Petra Lang arbeitslos?", "time"),
        ("In which year did the bridge open?", "time"),
        ("What does she take every day?", None),
        ("How many cats does she have?", "amount"),
        ("How does she get to work?", "event"),
        ("What did she do in Spain?", "event"),
        ("¿Por qué se fue Inés?", "reason"),
        ("为什么他辞职了？", "reason"),
    ],
)
def test_what_a_question_asks_for(question: str, kind: str | None) -> None:
    assert question_type(Example.from_qa(question, "Kelbury.")) == kind
