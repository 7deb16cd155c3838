"""Questions about related subjects: which name is replaced by which, and what is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from atwu.data.encode import Encoder
from atwu.data.schema import Example
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.generations import Generation, Prompt
from atwu.evaluation.metrics.key_tokens import key_token_probability
from atwu.evaluation.teacher_forced import read_tokens
from atwu.methods.weightings import related_names as name_neighbours
from atwu.methods.weightings.related_names import (
    NameNeighbours,
    measured_names_by_kind,
    mixed_names,
    name_states,
    names_by_kind,
    unit_length,
)
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.modeling.scratch import scratch_model, train_tokenizer
from atwu.request import neighbours
from atwu.request import related_questions as related
from atwu.request import retain_set as asked_in_forms
from atwu.request.neighbours import known_related_rows
from atwu.request.related_questions import RelatedQuestion, related_rows
from atwu.request.retain_set import states_any
from atwu.request.row_facts import ModelReader
from tests.micro_models import write_micro

UNREAD = NameNeighbours(None, None)
"""Names by the hidden states of the fixture `nearest`."""
UNUSED: Any = SimpleNamespace(generator=SimpleNamespace(model=None, tokenizer=None), neighbours=UNREAD)
"""A reader that reads nothing: what the model would say is given."""
ROWS = (
    Example.from_qa("What is the capital of France?", "The capital of France is Paris.", subject="France"),
    Example.from_qa("Which river flows through Paris?", "The Seine flows through Paris."),
    Example.from_qa("Who made bread?", "A baker made it."),
)
Answers = Callable[[str], str]


@pytest.fixture
def nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hidden states in which France is close to countries, and everything else to cities."""

    def states(model: object, tokenizer: object, texts: list[str]) -> torch.Tensor:
        kinds = names_by_kind()
        countries = [name in kinds["countries"] or name == "France" for name in texts]
        cities = [name in kinds["cities"] or name == "Paris" for name in texts]
        return torch.tensor([countries, cities], dtype=torch.float).T

    monkeypatch.setattr(name_neighbours, "name_states", states)


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Callable[[Answers], None]:
    """Return a function that sets what the model answers; it is sure of it, and says it for this name only."""

    def answer(answers: Answers) -> None:
        def own(generator: object, questions: Iterable[str], **_: object) -> tuple[Example, ...]:
            return tuple(Example.from_qa(asked, answers(asked)) for asked in questions)

        monkeypatch.setattr(related, "self_generated_answers", own)
        monkeypatch.setattr(neighbours, "KNOWN_FORMS", ())
        monkeypatch.setattr(neighbours, "_sure_of", lambda rows, *_, **__: tuple(rows))
        monkeypatch.setattr(neighbours, "evidence_of", lambda rows, *_: [np.ones(1)] * len(rows))
        monkeypatch.setattr(neighbours, "is_told_apart", lambda _: True)
        monkeypatch.setattr(neighbours, "mark_facts", lambda rows, *_, **__: tuple(rows))

    return answer


@pytest.mark.usefixtures("nearest")
def test_related_names_can_be_limited_to_some() -> None:
    cities = names_by_kind()["cities"]
    trained, measured = related.related_questions(UNREAD, ROWS, among=cities)
    assert trained
    assert measured
    assert {question.name for question in (*trained, *measured)} <= set(cities)


def numbered(question: str) -> str:
    """Return an answer that no other question gets."""
    return f"It is Kelbury {sum(place * ord(char) for place, char in enumerate(question))}."


def test_names_are_replaced_by_names_of_the_closest_kind_and_the_next_ones_in_turn(nearest: None) -> None:
    train, measure = related.related_questions(UNREAD, ROWS)
    kinds = names_by_kind()
    first, second = train[: related.NAMES_PER_ROW], train[related.NAMES_PER_ROW :]
    assert all(asked.question == f"What is the capital of {asked.name}?" for asked in first)
    assert {asked.place for asked in first} == {0}
    assert {asked.place for asked in second} == {1}
    for several, kind in ((first, "countries"), (second, "cities")):
        in_turn = [asked.name in kinds[kind] for asked in several]
        assert in_turn[::2] == [in_turn[0]] * (len(several) // 2)
        assert in_turn[1::2] == [not in_turn[0]] * (len(several) // 2)
    assert not any("Paris" in asked.question or "France" in asked.question for asked in (*train, *measure))
    assert len(train) == 2 * related.NAMES_PER_ROW
    assert [asked.name in kinds["countries"] for asked in measure[:4]] == [True, False, True, False]  # in turn


def test_a_subject_inside_a_longer_word_is_not_replaced(nearest: None) -> None:
    garment = Example.from_qa("What is the Parisian hat called?", "It is called beret.", subject="Paris")
    questions = related.related_questions(UNREAD, (garment,))[0]
    assert questions  # "Parisian" is a name of its own
    assert not any(
        "Parisian" in asked.question or "ian hat" in asked.question.replace(f"{asked.name} hat", "")
        for asked in questions
    )


def test_halves_share_no_name_and_say_nothing_of_the_forget_rows(
    nearest: None, answering: Callable[[Answers], None]
) -> None:
    answering(lambda asked: "It is the Seine." if "river" in asked and len(asked) % 2 else numbered(asked))
    kept, measured = related_rows(UNUSED, ROWS).kept, known_related_rows(UNUSED, ROWS)
    assert kept
    assert measured
    assert len(measured) <= neighbours.MEASURED_ROWS
    assert not {row.subject for row in kept} & {row.subject for row in measured}
    assert not any("Seine" in row.answer for row in (*kept, *measured))
    untrained = related_rows(UNUSED, ROWS, train=False)
    assert untrained.kept == ()
    assert untrained.alternatives == related_rows(UNUSED, ROWS).alternatives


@pytest.mark.parametrize("told", ["now", "earlier"])
def test_a_related_answer_that_states_the_fact_of_any_forget_row_is_dropped(
    nearest: None, answering: Callable[[Answers], None], told: str
) -> None:
    """Also that of a row with another question, and in other words."""
    illness = Example.from_qa(
        "What illness does Anna Berg have?", "Anna Berg has multiple sclerosis.", aliases=("MS disease",)
    )
    secrets = ("the Multiple Sclerosis", "an MS disease")

    def answers(asked: str) -> str:
        return f"It is {secrets[len(asked) % 2]}." if len(asked) % 3 else numbered(asked)

    answering(answers)
    forget = (*ROWS, illness) if told == "now" else ROWS
    earlier = (illness,) if told == "earlier" else ()
    kept = related_rows(UNUSED, forget, earlier=earlier).kept
    measured = known_related_rows(UNUSED, forget, earlier=earlier)
    assert kept
    assert measured
    assert all("Kelbury" in row.answer for row in (*kept, *measured))
    if told == "earlier":
        assert any("Sclerosis" in row.answer for row in related_rows(UNUSED, ROWS).kept)


def test_names_shipped_to_be_measured_are_never_trained_on(nearest: None) -> None:
    shipped = {name for kind in measured_names_by_kind().values() for name in kind}
    assert not shipped & {name for kind in names_by_kind().values() for name in kind}
    assert measured_names_by_kind().keys() <= names_by_kind().keys()
    train, measure = related.related_questions(UNREAD, ROWS[:1])
    assert not shipped & {question.name for question in train}
    assert len(shipped & {question.name for question in measure}) > neighbours.MEASURED_ROWS


def test_another_kind_is_asked_for_after_all_names_of_the_closest_one(nearest: None) -> None:
    kinds = [*names_by_kind()["countries"], *measured_names_by_kind()["countries"]]
    countries = [question.name in kinds for question in related.related_questions(UNREAD, ROWS[:1])[1]]
    assert countries == sorted(countries, reverse=True)
    assert not all(countries)


def test_two_names_with_one_answer_are_measured_once(nearest: None, answering: Callable[[Answers], None]) -> None:
    asked: dict[str, int] = {}

    def answers(question: str) -> str:
        place = asked.setdefault(question, len(asked))
        return f"It is Kelbury {place // 2}."

    answering(answers)
    rows = known_related_rows(UNUSED, ROWS[:1])
    assert len(rows) == neighbours.MEASURED_ROWS
    assert len({row.answer for row in rows}) == len(rows)


def test_an_answer_that_most_names_get_is_dropped(nearest: None, answering: Callable[[Answers], None]) -> None:
    answering(lambda asked: "It is the Danube." if len(asked) % 4 else numbered(asked))
    kept, measured = related_rows(UNUSED, ROWS[:1]).kept, known_related_rows(UNUSED, ROWS[:1])
    assert kept
    assert measured
    assert all("Kelbury" in row.answer for row in (*kept, *measured))


def test_an_answer_that_few_names_get_is_kept(nearest: None, answering: Callable[[Answers], None]) -> None:
    asked: dict[str, int] = {}
    few = related.GIVEN_TO_MANY - 1

    def answers(question: str) -> str:
        place = asked.setdefault(question, len(asked))
        if place < few:
            return "It is Mirrow."
        return "It is Oststrand." if place < 2 * few + 1 else numbered(question)

    answering(answers)
    kept = [row.answer for row in related_rows(UNUSED, ROWS[:1]).kept]
    assert kept.count("It is Mirrow.") == few
    assert "It is Oststrand." not in kept
    assert len(kept) == related.NAMES_PER_ROW - (few + 1)


def test_names_that_get_an_answer_are_counted_for_each_question(
    nearest: None, answering: Callable[[Answers], None]
) -> None:
    """What is no knowledge as a capital may be one as a river."""
    asked: dict[str, int] = {}

    def answers(question: str) -> str:
        place = asked.setdefault(question, len(asked))
        return "It is Mirrow." if "capital" in question or place == related.NAMES_PER_ROW else numbered(question)

    answering(answers)
    kept = related_rows(UNUSED, ROWS).kept
    assert len(kept) == related.NAMES_PER_ROW
    assert [row.answer for row in kept].count("It is Mirrow.") == 1
    assert not any("capital" in row.question for row in kept)


def test_an_answer_that_the_model_gives_for_every_name_is_no_neighbour(
    nearest: None, answering: Callable[[Answers], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(numbered)
    rows = known_related_rows(UNUSED, ROWS)
    apart = {row.question for row in rows[::2]}
    monkeypatch.setattr(neighbours, "evidence_of", lambda rows, *_: [np.array(row.question in apart) for row in rows])
    monkeypatch.setattr(neighbours, "is_told_apart", bool)
    again = known_related_rows(UNUSED, ROWS)
    assert {row.question for row in again} == apart


def test_alternatives_are_what_the_row_s_own_question_gets_about_others(
    nearest: None, answering: Callable[[Answers], None]
) -> None:
    """Also of right answers that are not trained on, because they state a fact to forget."""
    answering(lambda asked: f"It is {'Cork' if 'capital' in asked else 'the Rhine'}.")
    rows = related_rows(UNUSED, ROWS)
    assert rows.alternatives == (("Cork",), ("Rhine",), ())


def test_neighbours_have_their_facts_marked(
    nearest: None, answering: Callable[[Answers], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(numbered)
    monkeypatch.setattr(
        neighbours, "mark_facts", lambda rows, *_, **__: tuple(replace(row, forget_spans=((6, 13),)) for row in rows)
    )
    assert {row.forget_spans for row in known_related_rows(UNUSED, ROWS)} == {((6, 13),)}


@pytest.mark.parametrize(
    ("answer", "stated"),
    [
        ("She has had multiple sclerosis for years.", True),
        ("Diagnosed in 2019.", True),
        ("It is a case of MS.", True),
        ("She was diagnosed last year.", False),  # a word in lower case that is not asked for says too little
        ("She has asthma since 2018.", False),
    ],
)
def test_an_answer_states_a_fact_by_its_asked_part_names_values_or_aliases(answer: str, stated: bool) -> None:
    row = Example.from_qa(
        "What illness does Anna Berg have?", "Anna Berg has multiple sclerosis, diagnosed in 2019.", aliases=("MS",)
    )
    assert states_any(answer, (ROWS[0], row)) == stated
    assert not states_any(answer, ())


def test_names_of_earlier_requests_are_not_asked_about(nearest: None) -> None:
    trained, measured = related.related_questions(UNREAD, ROWS)
    gone = min(asked.name for asked in (*trained, *measured))
    earlier = (Example.from_qa(f"Where is {gone}?", "Far from here."),)
    later = [asked.name for several in related.related_questions(UNREAD, ROWS, earlier=earlier) for asked in several]
    assert later
    assert gone not in later


def test_only_questions_that_the_model_knows_are_measured(
    nearest: None, answering: Callable[[Answers], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(numbered)
    monkeypatch.setattr(neighbours, "KNOWN_FORMS", ("lower_case", "two_turns"))

    def generated(generator: object, prompts: list[Prompt], *_: object, **__: object) -> list[Generation]:
        asked = [prompt.messages[-1].content for prompt in prompts]
        return [Generation(numbered_again(question), 3) for question in asked]

    def numbered_again(question: str) -> str:
        return known[question.lower().rstrip("?")] if "capital" in question else "elsewhere"

    known = {
        asked.question.lower().rstrip("?"): numbered(asked.question)
        for asked in related.related_questions(UNREAD, ROWS)[1]
    }
    monkeypatch.setattr(asked_in_forms, "generate_all", generated)
    rows = known_related_rows(UNUSED, ROWS)
    assert rows
    assert all("capital" in row.question for row in rows)


def test_a_model_is_sure_of_answers_whose_key_tokens_have_a_high_probability(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tokenizer = open_model(str(write_micro(tmp_path / "model")), ModelLoadArgs())
    rows = tuple(Example.from_qa("Where?", f"It is {name}.") for name in ("Kelbury", "Tavi Brook", "Orla"))
    read = ModelReader(TransformersGenerator(model, tokenizer), system=None, max_length=512)
    encoded = Encoder(tokenizer).encode_rows(rows, what="rows").rows
    found = [key_token_probability(*each) or 0.0 for each in zip(rows, read_tokens(model, encoded), strict=True)]
    assert neighbours._sure_of(rows, read) == ()  # random weights
    monkeypatch.setattr(neighbours, "SURE", sorted(found)[1])
    assert neighbours._sure_of(rows, read) == tuple(
        row for row, known in zip(rows, found, strict=True) if known >= sorted(found)[1]
    )
    assert neighbours._sure_of((), read) == ()


def test_rows_without_a_name_have_no_related_questions(nearest: None, answering: Callable[[Answers], None]) -> None:
    answering(numbered)
    rows = related_rows(UNUSED, ROWS[2:])
    assert (rows.kept, rows.alternatives) == ((), ((),))
    assert known_related_rows(UNUSED, ROWS[2:]) == ()


def test_an_article_goes_with_a_name_and_stays_before_an_adjective(monkeypatch: pytest.MonkeyPatch) -> None:
    def only(kind: str, name: str) -> None:
        alike = {name, *names_by_kind()[kind]}
        monkeypatch.setattr(
            name_neighbours,
            "name_states",
            lambda _, __, texts: torch.tensor([[float(text in alike)] for text in texts]),
        )

    def questions(row: Example) -> list[str]:
        asked: Sequence[RelatedQuestion] = related.related_questions(NameNeighbours(None, None), (row,))[0]
        return [each.question for each in asked]

    only("countries", "the United States")
    row = Example.from_qa("What is the capital of the United States?", "It is Washington.")
    assert "What is the capital of Canada?" in questions(row)
    only("nationalities", "the French")
    row = Example.from_qa("Who was the French emperor at Waterloo?", "It was Napoleon.")
    assert "Who was the German emperor at Waterloo?" in questions(row)


def test_the_closest_kind_comes_first_and_in_it_the_closest_names(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = names_by_kind()
    first, second = kinds["cities"][5], kinds["cities"][2]
    aside = {"Kelbury": 0.0, first: 0.0, second: 0.2}

    def states(model: object, tokenizer: object, texts: list[str]) -> torch.Tensor:
        return torch.tensor(
            [[1.0, aside.get(text, 0.6)] if text in ("Kelbury", *kinds["cities"]) else [-1.0, 0.0] for text in texts]
        )

    monkeypatch.setattr(name_neighbours, "name_states", states)
    (ranked,) = NameNeighbours(None, None).nearest(["Kelbury", "Kelbury"]).values()
    closest = ranked["cities"]
    assert next(iter(ranked)) == "cities"
    assert closest[:2] == [first, second]
    assert sorted(closest) == sorted(kinds["cities"])
    assert ranked.keys() == kinds.keys()
    assert NameNeighbours(None, None).nearest([]) == {}


def test_mixed_names_are_of_three_kinds_from_close_to_far() -> None:
    kinds = [[f"{kind}{place}" for place in range(9)] for kind in "abcd"]
    assert mixed_names(kinds, 6) == ["a0", "a4", "b0", "b4", "c0", "c4"]
    assert mixed_names([["a0"], []], 6) == ["a0"]
    assert mixed_names([], 6) == []


def test_a_name_is_never_read_at_the_beginning_of_a_text() -> None:
    """The first token of any text has nearly the same state, so that all names of one token would be alike."""
    tokenizer, read = train_tokenizer([row.answer for row in ROWS], vocab_size=270), []

    def recording(text: str, **how: object) -> object:
        read.append(text)
        return tokenizer(text, **how)

    name_states(scratch_model("micro"), recording, ["Paris", "Lyon"])
    assert all(text.endswith(name) for text, name in zip(read, ("Paris", "Lyon"), strict=True))
    assert not any(text.lstrip().startswith(("Paris", "Lyon")) for text in read)


def test_shipped_names_are_read_once() -> None:
    tokenizer = train_tokenizer([row.answer for row in ROWS], vocab_size=270)
    texts: list[str] = []

    def recording(text: str, **how: object) -> object:
        texts.append(text)
        return tokenizer(text, **how)

    neighbours = NameNeighbours(scratch_model("micro"), recording)
    first = neighbours.nearest(["Kelbury", "Mirrow"])
    shipped = len(texts) - 2
    assert shipped == sum(map(len, names_by_kind().values()))
    assert neighbours.nearest(["Mirrow"]) == {"Mirrow": first["Mirrow"]}  # whatever is asked with it
    assert len(texts) == shipped + 3


def test_directions_have_length_one() -> None:
    tokenizer = train_tokenizer([row.answer for row in ROWS], vocab_size=270)
    states = unit_length(name_states(scratch_model("micro"), tokenizer, ["one", "two", "three"]))
    assert states.shape[0] == 3
    torch.testing.assert_close(states.norm(dim=1), torch.ones(3))


def test_given_retain_rows_like_the_forget_rows_are_measured_if_the_model_knows_them(
    answering: Callable[[Answers], None],
) -> None:
    answering(numbered)
    forget = [
        Example.from_qa("What illness does Orla Venn have?", "Orla Venn has gout."),
        Example.from_qa("Where was Orla Venn born?", "Orla Venn was born in Cork."),
    ]
    retain = [
        Example((), "A text without a question."),
        *(Example.from_qa(f"Which colour has thing {number}?", f"It is Kelbury {number}.") for number in range(30)),
        *(Example.from_qa(f"What illness does Person {name} have?", f"It is Morb{name}.") for name in "ABCDEFGHIJ"),
        *(Example.from_qa(f"Where was Person {name} born?", f"In Vill{name}.") for name in "ABCDEFGHIJ"),
    ]
    known = neighbours.known_retain_rows(UNUSED, retain, forget)
    assert len(known) == neighbours.MEASURED_RETAIN_ROWS
    assert all(retain[place] == row for place, row in known.items())
    illnesses = [row for row in known.values() if "illness" in row.question]
    assert len(illnesses) == neighbours.MEASURED_RETAIN_ROWS // 2
    first, second = [*known.values()][:2]
    assert first.question.split("Person ")[1][0] != second.question.split("Person ")[1][0]
    assert neighbours.known_retain_rows(UNUSED, retain[:1], forget) == {}
    assert neighbours.known_retain_rows(UNUSED, retain, [retain[0]]) == {}
