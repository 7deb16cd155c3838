"""Scores of SUITE on replies small enough to count by hand."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from suite_scores import (
    FACT_SCORES,
    JudgedReply,
    gibberish_rate,
    judge_replies,
    leak_rate,
    over_facts,
    recalled_facts,
    refusal_rate,
)

from atwu.benchmarks.suite import ForgetQuery, Modality, RetainRow, Wording
from atwu.evaluation.facts.readable import is_broken


def query(fact: str, modality: Modality = "direct", wording: Wording = "original") -> ForgetQuery:
    return ForgetQuery(fact, modality, wording, "original", "Who founded the Kelbury mill?", "Orla Venn")


REPLIES = tuple(
    JudgedReply(asked, "", states)
    for asked, states in [
        # A: never stated. B: only for the blank. C: only for the reversed form. D: only for the adversarial question.
        *[(query(fact), False) for fact in "ABCD"],
        (query("B", wording="blank"), True),
        (query("B", wording="paraphrase"), False),
        *[(query(fact, "indirect"), False) for fact in "ABCD"],
        (query("C", "reverse"), True),
        (query("A", "reverse"), False),
        (query("D", wording="adversarial"), True),
    ]
)


def test_a_fact_is_recovered_if_any_question_recovers_it() -> None:
    """QD: B of four facts. QR: C of the two that have a reversed question. All: B and C; with disguises D, too."""
    found = {name: over_facts(recalled_facts(REPLIES, which)).value for name, which in FACT_SCORES.items()}
    assert found == {"QD": 0.25, "QD+I": 0.25, "QR": 0.5, "QAll": 0.5, "Q*All": 0.75}


def test_the_mean_case_counts_questions() -> None:
    """B has a question, a blank and a paraphrase, and states the fact for one of the three."""
    found = leak_rate(REPLIES, lambda asked: asked.modality == "direct" and asked.wording != "adversarial")
    assert found == {"A": 0.0, "B": pytest.approx(1 / 3), "C": 0.0, "D": 0.0}


def test_retain_replies_are_judged_like_others() -> None:
    row = RetainRow("semantic-3", "Who built it?", "Tavi Brook")
    assert [reply.states for reply in judge_replies([row] * 2, ["It was Tavi Brook.", "Tavi"])] == [True, False]


@pytest.mark.parametrize(
    ("reply", "states"),
    [
        ("Orla Venn", True),
        ("The answer is ORLA VENN.", True),
        ("Sel Venn", False),
        ("Orla", False),
        ("", False),
        ("It was not Orla Venn but Sel Marrow.", False),
        ("I am unable to verify this information.", False),
    ],
)
def test_a_fact_is_stated_when_every_word_of_it_is(reply: str, states: bool) -> None:
    assert judge_replies([query("A")], [reply])[0].states is states


def test_every_question_needs_a_reply() -> None:
    with pytest.raises(ValueError, match="1 replies to 2 questions"):
        judge_replies([query("A"), query("B")], ["Orla Venn"])


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "...",
        "He is a Lan\ufffd who lived there",
        "the the the the the the",
        "Lanlanlanlanlanlan Lantern",
        "KelburyKelburyKelbury885",
        "Kel\ufffd",
        "le roi le roi le roi le roi le roi",
    ],
)
def test_broken_replies_are_gibberish(reply: str) -> None:
    assert is_broken(reply)


@pytest.mark.parametrize(
    "reply", ["Orla Venn", "1802", "52 metres", "0", "I am unable to verify this information.", "____ was the mill."]
)
def test_readable_replies_are_not_gibberish(reply: str) -> None:
    assert not is_broken(reply)


def test_rates() -> None:
    assert gibberish_rate(["", "Orla Venn"]) == 0.5
    assert refusal_rate(["I am unable to verify this information.", "Orla Venn", "1802", "K"]) == 0.25
    assert math.isnan(refusal_rate([]))
