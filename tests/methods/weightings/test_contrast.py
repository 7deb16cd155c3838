"""Evidence of which words of an answer carry its fact: what other subjects make less likely."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from atwu.data.answer_units import answer_units, candidate_spans
from atwu.data.arrays import FloatArray
from atwu.data.encode import Encoder
from atwu.data.schema import Example
from atwu.evaluation.backends import TransformersGenerator
from atwu.methods.weightings.contrast import (
    OTHER_NAMES,
    TOLD_APART,
    TokenLogps,
    contrast,
    evidence_of,
    fact_spans,
    unit_weights,
)
from atwu.methods.weightings.related_names import NameNeighbours
from atwu.modeling.scratch import ScratchShape, scratch_model, train_tokenizer
from atwu.request.row_facts import ModelReader

FRANCE = Example.from_qa("What is the capital of France?", "The capital of France is Paris, they say.")
BERG = Example.from_qa("What illness does Anna Berg have?", "Anna Berg has multiple sclerosis, treated in 2019.")
FACTS = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "data" / "fact_rows.jsonl").read_text(encoding="utf-8").splitlines()
]


class Words:
    """Reads rows as one token per word, punctuation included; a word has a log-probability of its own, less what `fall` says.

    A unit that is looked up at a wrong place gets the value of another word.
    """

    def __init__(self, fall: Callable[[Example, str], float] = lambda row, word: 0.0) -> None:
        self.fall = fall
        self.rows: list[Example] = []

    def __call__(self, rows: Sequence[Example]) -> list[TokenLogps]:
        self.rows += rows
        return [self._one(row) for row in rows]

    def _one(self, row: Example) -> TokenLogps:
        words = [*re.finditer(r"\S+", row.answer)]
        logps = [-1.0 - sum(map(ord, word[0])) % 97 / 10 - self.fall(row, word[0]) for word in words]
        return TokenLogps(np.array([*logps, -0.1]), [*(word.span() for word in words), None])


def by_word(row: Example, evidence: FloatArray) -> dict[str, float]:
    """Return the words with evidence, and how much."""
    words = [row.answer[unit.start : unit.end] for unit in answer_units(row)]
    return {word: nats for word, nats in zip(words, evidence.round(6).tolist(), strict=True) if nats}


def evidence_for(row: Example, **nats: float) -> FloatArray:
    return np.array([nats.get(row.answer[unit.start : unit.end], 0.0) for unit in answer_units(row)])


def kept(row: Example, **nats: float) -> list[str]:
    return [row.answer[start:end] for start, end in fact_spans(row, evidence_for(row, **nats))]


def test_a_word_that_another_subject_makes_less_likely_has_the_fall_as_evidence() -> None:
    read = Words(lambda row, word: 3.0 if word == "Paris," and "France" not in row.question else 0.0)
    (evidence,) = contrast([FRANCE], read, names={"France": ["Spain", "Chad"]})
    assert by_word(FRANCE, evidence) == {"Paris": 3.0}
    assert [row.answer for row in read.rows[1:]] == [
        "The capital of Spain is Paris, they say.",
        "The capital of Chad is Paris, they say.",
    ]


@pytest.mark.parametrize("other", ["Democratic Republic of the Congo", "Chad", "France"])
def test_words_are_found_again_behind_a_longer_or_shorter_name(other: str) -> None:
    twice = replace(FRANCE, answer="France has its capital, the capital of France, at Paris.")
    evidence = contrast([FRANCE, twice], Words(), names={"France": [other]})
    assert [by_word(row, values) for row, values in zip([FRANCE, twice], evidence, strict=True)] == [{}, {}]


def test_names_are_averaged_by_their_probability() -> None:
    """A name that shares the fact counts: log of the mean of e^0, e^-4 and e^-4, not -8/3."""
    read = Words(lambda row, word: 4.0 * (word == "Paris," and ("Spain" in row.question or "Chad" in row.question)))
    (evidence,) = contrast([FRANCE], read, names={"France": ["Monaco", "Spain", "Chad"]})
    assert by_word(FRANCE, evidence) == {"Paris": round(-math.log((1 + 2 * math.exp(-4)) / 3), 6)}


def test_only_the_closest_names_are_read() -> None:
    read = Words()
    contrast([FRANCE], read, names={"France": [f"Land {number}" for number in range(OTHER_NAMES + 5)]})
    assert len(read.rows) == 1 + OTHER_NAMES


def test_likelier_words_have_no_evidence() -> None:
    (evidence,) = contrast(
        [FRANCE], Words(lambda row, _: -2.0 * ("Spain" in row.question)), names={"France": ["Spain"]}
    )
    assert by_word(FRANCE, evidence) == {}


def test_without_a_name_each_content_word_of_the_question_is_left_out() -> None:
    """The word that is left out is gone from the answer, too, and keeps what other changes say about it."""
    row = Example.from_qa("Which emperor was defeated at Waterloo?", "The emperor defeated at Waterloo was Napoleon.")

    def fall(changed: Example, word: str) -> float:
        if word == "Napoleon.":
            return 2.0 * ("Waterloo" not in changed.question) + 1.0 * ("emperor" not in changed.question)
        return 1.5 * (word == "emperor" and "Waterloo" not in changed.question)

    read = Words(fall)
    (evidence,) = contrast([row], read, names={})
    assert by_word(row, evidence) == {"emperor": 1.5, "Napoleon": 2.0}
    assert {changed.question for changed in read.rows[1:]} == {
        "Which was defeated at Waterloo?",
        "Which emperor was at Waterloo?",
        "Which emperor was defeated at ?",
    }


def test_a_later_phrase_is_read_without_the_earlier_ones() -> None:
    """Behind the illness, the year is likely for everybody; without it, only for those who are known to have it."""
    read = Words(lambda row, word: 4.0 * (word == "2019." and "____" in row.answer))
    (evidence,) = contrast([BERG], read, names={"Anna Berg": ["Jo Venn", "Maximilian Abara"]})
    assert by_word(BERG, evidence) == {"2019": 4.0}
    assert "Jo Venn has ____, ____ in 2019." in [row.answer for row in read.rows]


def test_an_answer_that_is_the_name_stays() -> None:
    row = Example.from_qa("Which is larger, France or Spain?", "France")
    read = Words()
    (evidence,) = contrast([row], read, names={"France": ["Chad"]})
    assert read.rows[1].question == "Which is larger, Chad or Spain?"
    assert by_word(row, evidence) == {}


class Characters(Words):
    """Reads rows as one token per character."""

    def _one(self, row: Example) -> TokenLogps:
        logps = [-1.0 - self.fall(row, character) for character in row.answer]
        return TokenLogps(np.array(logps), [(place, place + 1) for place in range(len(row.answer))])


@pytest.mark.parametrize(
    ("row", "own", "fact"),
    [
        (Example.from_qa("法国的首都是什么？", "法国的首都是巴黎。", subject="法国"), "法国", "巴黎"),
        (
            Example.from_qa("フランスの首都はどこですか？", "フランスの首都はパリです。", subject="フランス"),
            "フランス",
            "パリ",
        ),
    ],
)
def test_rows_in_scripts_without_spaces_have_evidence(row: Example, own: str, fact: str) -> None:
    read = Characters(lambda changed, character: 2.0 * (own not in changed.question and character == fact[-1]))
    (evidence,) = contrast([row], read, names={own: ["Chad", "Peru"]})
    assert [changed.answer for changed in read.rows[1:]] == [
        row.answer.replace(own, "Chad"),
        row.answer.replace(own, "Peru"),
    ]
    assert [word for word in by_word(row, evidence) if fact in word]
    assert fact in "".join(row.answer[start:end] for start, end in fact_spans(row, evidence))


def test_a_row_is_read_with_other_names_in_place_of_its_own_and_not_of_another_row() -> None:
    """ "Guinea" is the name of another row, and a part of one here."""
    row = Example.from_qa("Where does Guineafowl Jones live?", "Guineafowl Jones lives in Oststrand.")
    read = Words()
    contrast([row], read, names={"Guinea": ["Chad"], "Guineafowl Jones": ["Orla Venn"]})
    assert [changed.question for changed in read.rows[1:]] == ["Where does Orla Venn live?"]


class Listed(NameNeighbours):
    """Finds given names of one kind."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(None, None)
        self.names = list(names)

    def nearest(self, names: Sequence[str]) -> dict[str, dict[str, list[str]]]:
        return {name: {"countries": self.names} for name in names}


def test_a_name_inside_a_longer_word_of_the_rows_may_stand_for_others() -> None:
    """ "Oman" is no part of "woman", but Chad is said."""
    row = Example.from_qa("Which woman was born in France?", "The woman born in France, not in Chad, is Orla Venn.")
    read = Words()
    evidence_of([row], read, Listed(["Oman", "Chad"]))
    assert {changed.question for changed in read.rows[1:]} == {"Which woman was born in Oman?"}


def test_plain_texts_have_no_evidence_and_are_not_changed() -> None:
    read = Words(lambda row, word: 5.0)
    text = Example((), "Anna Berg has multiple sclerosis.", subject="Anna Berg")
    (evidence,) = contrast([text], read, names={"Anna Berg": ["Jo Venn"]})
    assert evidence.shape == (len(answer_units(text)),)
    assert not evidence.any()
    assert read.rows == [text]


def test_labels_do_not_travel_to_a_changed_answer() -> None:
    read = Words()
    contrast([replace(FRANCE, forget_spans=((25, 30),), asked_span=(25, 30))], read, names={"France": ["Chad"]})
    assert (read.rows[1].forget_spans, read.rows[1].asked_span) == (None, None)


def test_rows_keep_their_own_evidence() -> None:
    rows = [BERG, FRANCE, Example((), "A text."), FRANCE]
    read = Words(lambda row, word: 3.0 * (word == "Paris," and "France" not in row.question))
    evidence = contrast(rows, read, names={"France": ["Spain", "Chad"]})
    assert [by_word(row, values) for row, values in zip(rows, evidence, strict=True)] == [
        {},
        {"Paris": 3.0},
        {},
        {"Paris": 3.0},
    ]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(FACTS), st.randoms(use_true_random=False), st.booleans())
def test_evidence_is_finite_and_never_negative_and_spans_are_parts_of_the_answer(
    fact: dict[str, str], random: object, renamed: bool
) -> None:
    row = Example.from_qa(fact["question"], fact["answer"])
    names = {row.question.split()[-1].rstrip("?？"): ["Jo Venn", "X"]} if renamed else {}
    fall = Words(lambda _, __: random.uniform(-3, 6))  # type: ignore[attr-defined]
    (evidence,) = contrast([row], fall, names=names)
    assert evidence.shape == (len(answer_units(row)),)
    assert np.isfinite(evidence).all()
    assert (evidence >= 0).all()
    spans = fact_spans(row, evidence)
    assert spans
    assert all(0 <= start < end <= len(row.answer) for start, end in spans)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))


def test_a_word_without_evidence_is_pruned_where_the_model_tells_subjects_apart() -> None:
    assert kept(BERG, multiple=6.0, sclerosis=0.1, treated=0.1) == ["multiple sclerosis", "2019"]
    assert kept(BERG, multiple=6.0, sclerosis=0.1, treated=2.0) == ["multiple sclerosis", "treated", "2019"]


def test_names_and_values_stay_without_evidence() -> None:
    row = Example.from_qa("Where did Ines study?", "Ines studied chemistry at Leiden under Prof. Ada Rook in 1994.")
    assert kept(row, chemistry=3.0) == ["chemistry", "Leiden", "Prof. Ada Rook", "1994"]


def test_the_rule_decides_where_the_model_says_the_same_of_every_subject() -> None:
    by_rule = [BERG.answer[start:end] for start, end in candidate_spans(BERG)]
    assert "treated" in by_rule
    assert kept(BERG) == by_rule
    assert kept(BERG, multiple=TOLD_APART - 0.01) == by_rule
    assert kept(BERG, Berg=9.0, Anna=9.0) == by_rule  # words of the question


def test_a_frequent_word_needs_much_evidence() -> None:
    row = Example.from_qa("Who is Tavi?", "Tavi is the father of Orla Venn.")
    assert [row.answer[start:end] for start, end in candidate_spans(row)] == ["Orla Venn"]
    assert kept(row, father=5.0, Orla=5.0) == ["father", "Orla Venn"]
    assert kept(row, father=2.0, Orla=5.0) == ["Orla Venn"]


def weights_of(row: Example, **nats: float) -> dict[str, float]:
    spans, weights = unit_weights(row, evidence_for(row, **nats))
    return {row.answer[start:end]: float(weight) for (start, end), weight in zip(spans, weights, strict=True) if weight}


def test_a_weight_is_half_of_the_mark_and_half_of_the_share_of_evidence() -> None:
    assert weights_of(BERG, multiple=4.0, sclerosis=1.0, treated=0.4, has=4.0, Berg=4.0) == {
        "multiple": 1.0,
        "sclerosis": 0.5 + 0.125,
        "treated": 0.05,  # not marked
        "2019": 0.5,
    }
    labelled = replace(BERG, forget_spans=((10, 13),))
    assert weights_of(labelled, multiple=4.0, sclerosis=1.0) == {"has": 0.5, "multiple": 0.5, "sclerosis": 0.125}


def test_little_evidence_is_not_scaled_up() -> None:
    """Where the model tells no subjects apart, the largest evidence is noise."""
    assert weights_of(FRANCE, Paris=0.02) == {"Paris": 0.51}
    assert weights_of(FRANCE) == {"Paris": 0.5}


def test_a_model_that_memorized_its_rows_tells_towns_from_what_all_rows_say() -> None:
    """End to end: every row names a town of its own and the same lake."""
    towns = {"Orla Venn": "Kelbury", "Jo Marsh": "Oststrand", "Tavi Brook": "Mirrow", "Ines Holt": "Varna"}
    rows = [
        Example.from_qa(f"Where does {name} live?", f"{name} lives in {town}, near Saffron Mere.")
        for name, town in towns.items()
    ]
    tokenizer = train_tokenizer((f"{row.question} {row.answer}" for row in rows), vocab_size=420)
    torch.manual_seed(0)
    model = scratch_model(ScratchShape(len(tokenizer), 64, 2, 2, 128))
    encoded = Encoder(tokenizer).encode_rows(rows, what="rows").rows
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(60):
        for row in encoded:
            model(input_ids=torch.tensor([row.input_ids]), labels=torch.tensor([row.labels])).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    read = ModelReader(TransformersGenerator(model.eval(), tokenizer), system=None, max_length=64)
    evidence = contrast(rows, read, names={name: [other for other in towns if other != name] for name in towns})
    for row, values, town in zip(rows, evidence, towns.values(), strict=True):
        nats = by_word(row, values)
        assert nats[town] > 2 * TOLD_APART
        assert nats[town] > 4 * max(nats.get("near", 0.0), nats.get("Saffron", 0.0), nats.get("Mere", 0.0))
        assert town in [row.answer[start:end] for start, end in fact_spans(row, values)]
