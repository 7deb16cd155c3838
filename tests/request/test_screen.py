"""The verdict as it is printed."""

from __future__ import annotations

import dataclasses
import re

import pytest

from atwu.data.schema import Example
from atwu.evaluation.facts.askings import AS_WRITTEN
from atwu.evaluation.facts.fact_table import FactCount, FactTable
from atwu.request.screen import answer_lines, excerpt, shorten, state_lines, verdict_html, verdict_text
from atwu.request.text_wording import count_facts
from atwu.request.verdict import StateCount, decide
from tests.request.tables import KNOWN, answer, table


def printed(after: FactTable | None, before: FactTable = KNOWN, lost: float = 0.012) -> str:
    verdict = decide(
        before,
        after,
        retain_loss_increase=lost,
        max_retain_increase=0.15,
        next_commands=("atwu chat out --compare model",),
        not_tested=("other languages",),
    )
    text = verdict_text(verdict)
    assert all(len(line) <= 80 for line in text.splitlines())
    return text


def test_the_screen_says_what_still_comes_out_how_it_was_asked_and_what_was_said() -> None:
    rounded = [answer("forget", fact, AS_WRITTEN, state="4 bits", stated=fact < 2) for fact in range(10)]
    text = printed(FactTable((*table(1).records, *rounded)))
    first, *rest = text.split("\n\n")
    assert first.splitlines() == [
        "VERDICT: FORGOTTEN",
        "10 facts, each asked in 20 ways: 1 of 200 answers still states its fact (160",
        "before).",
        "Asked their own question, 0 of 10 facts are stated (10 before).",
        "Of 10 neighbours' 100 answers 80 state theirs (80 before).",
        "Of 100 general questions 0 are refused (0 before).",
        "Of all 400 answers 0 cannot be read (0 before).",
        "The retain loss rose by 0.012 nats/token (limit 0.15).",
    ]
    rule, stated, now, states, untested, further = rest
    assert " ".join(rule.split()).startswith(
        "Forgotten means: at most 2 % of all answers about the facts state one, no"
    )
    assert stated.splitlines() == [
        "Still stated",
        "  What is thing 0, way 1? (way 1)  ->  It is thing 0.",
        "  What is thing 0, as written? (4 bits)  ->  It is thing 0.",
        "  What is thing 1, as written? (4 bits)  ->  It is thing 1.",
    ]
    assert now.splitlines()[0] == "Answers now"
    assert len(now.splitlines()) == 1 + 3  # the neighbours have no question as written
    head, saved, four, note = states.splitlines()
    assert head.split("  ")[-1] == "answers stating one"
    assert re.fullmatch(r"as saved +10 -> 1 of 10 +\[\.00, \.45\] +160 -> 1 of 200", saved)
    assert re.fullmatch(r"4 bits +10 -> 2 of 10 +\[\.03, \.56\] +10 -> 2 of 10", four)
    assert "below the first one decide nothing" in note
    assert untested.splitlines() == ["Not tested:", "  other languages"]
    assert further.splitlines() == ["Next:", "  atwu chat out --compare model"]


def test_parts_of_the_rule_that_are_missed_are_marked() -> None:
    text = printed(table(5, own=1, neighbours=50), lost=0.2)
    marked = [line for line in text.splitlines() if line.startswith("NOT MET: ")]
    assert len(marked) == 4
    assert marked[1] == "NOT MET: Asked their own question, 1 of 10 facts is stated (10 before)."
    assert "PARTLY" in text.splitlines()[0]


def test_at_most_ten_leaks_are_printed() -> None:
    text = printed(table(14))
    stated = next(part for part in text.split("\n\n") if part.startswith("Still stated"))
    assert len(stated.splitlines()) == 1 + 10 + 1
    assert stated.splitlines()[-1] == "  and 4 more, in verdict.json"


def test_a_long_question_stands_above_its_answer() -> None:
    long = dataclasses.replace(
        answer("forget", 0, "way 1", stated=True), question="Who " * 30, answer="It is thing 0, " * 9
    )
    question, said = answer_lines(long)
    assert question.startswith("  Who Who Who")
    assert question.endswith("… (way 1)")
    assert said.startswith("    -> It is thing 0, It")
    assert len(question) == len(said) == 80


def test_the_part_that_states_the_fact_is_in_brackets_and_on_the_line() -> None:
    """A leak that stands behind the end of the line would look like none."""
    assert excerpt("He rests in Port Sel.", "Port Sel", 70) == "He rests in [Port Sel]."
    late = "The harbour, which many ships of many lands have called home for many years, is Port Sel in the north."
    line = excerpt(late, "Port Sel", 50)
    assert line.startswith("…")
    assert "[Port Sel]" in line
    assert len(line) <= 50
    assert excerpt(late, "", 50) == shorten(late, 50)
    assert excerpt(late, "Ost", 50) == shorten(late, 50)


def test_nothing_to_forget_shows_what_was_stated_by_chance() -> None:
    text = printed(None, before=table(1))
    assert text.startswith("VERDICT: NOTHING TO FORGET\nThe original model does not know these facts: 1 of 200 answers")
    assert "Stated\n  What is thing 0, way 1? (way 1)  ->  It is thing 0." in text


def test_facts_that_the_model_never_knew_stand_beside_the_others() -> None:
    lines = state_lines(
        [
            StateCount("as saved", FactCount(12, 12, 180, 151), FactCount(12, 1, 180, 1)),
            StateCount(
                "after 10 steps on half of them",
                FactCount(6, 6, 24, 20),
                FactCount(6, 4, 24, 9),
                FactCount(20, 3, 60, 4),
            ),
        ]
    )
    assert lines[0].endswith("never known")
    assert re.fullmatch(r"after 10 steps on half of them +6 -> 4 of 6 +\[\.22, \.96\] +3 of 20", lines[2])
    assert lines[1].endswith("]")


@pytest.mark.parametrize("text", ["<b>bold</b>", "\x1b[31mred"])
def test_answers_are_printed_and_shown_in_notebooks_as_plain_text(text: str) -> None:
    record = answer("forget", 0, AS_WRITTEN, stated=True)
    loud = type(record)("forget", 0, AS_WRITTEN, "4 bits", text, text, True, False, False)
    verdict = decide(KNOWN, FactTable((*table(0).records, loud)), retain_loss_increase=0.0, max_retain_increase=0.15)
    assert "\x1b" not in verdict_text(verdict)
    assert "<b>bold" not in verdict_html(verdict)


def test_one_fact_and_several_texts_are_counted_in_words() -> None:
    fact, text = Example.from_qa("Who?", "Orla Venn."), Example((), "A text.", chance_run=4)
    assert count_facts([fact]) == "1 fact"
    assert count_facts([fact, text, text]) == "1 fact and 2 texts"
    assert count_facts([text]) == "1 text"
