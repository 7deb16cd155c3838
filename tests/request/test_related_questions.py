"""Questions about related subjects: which name is replaced by which, and what is left out."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from atwu.data.encode import Encoder
from atwu.data.schema import Example
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.generations import Generation, Prompt
from atwu.evaluation.metrics.key_tokens import key_token_probability
from atwu.evaluation.teacher_forced import read_tokens
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.modeling.scratch import scratch_model, train_tokenizer
from atwu.request import related_questions as related
from atwu.request.related_questions import related_names, related_rows
from tests.micro_models import write_micro

UNUSED: Any = SimpleNamespace(model=None, tokenizer=None)
"""A generator that is not asked: what it would say is given."""
ROWS = (
    Example.from_qa("What is the capital of France?", "The capital of France is Paris.", subject="France"),
    Example.from_qa("Which river flows through Paris?", "The Seine flows through Paris."),
    Example.from_qa("Who made bread?", "A baker made it."),
)


@pytest.fixture
def nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hidden states in which France is close to countries, and everything else to cities."""

    def states(model: object, tokenizer: object, texts: list[str]) -> torch.Tensor:
        kinds = related_names()
        countries = [name in kinds["countries"] or name == "France" for name in texts]
        cities = [name in kinds["cities"] or name == "Paris" for name in texts]
        return torch.tensor([countries, cities], dtype=torch.float).T

    monkeypatch.setattr(related, "name_states", states)


def test_names_are_replaced_by_names_of_the_closest_kind_and_the_next_ones_in_turn(nearest: None) -> None:
    train, measure = related.related_questions(None, None, ROWS)
    kinds = related_names()
    first, second = train[: related.NAMES_PER_ROW], train[related.NAMES_PER_ROW :]
    assert all(row.question == f"What is the capital of {row.subject}?" for row in first)
    for rows, kind in ((first, "countries"), (second, "cities")):
        in_turn = [row.subject in kinds[kind] for row in rows]
        assert in_turn[::2] == [in_turn[0]] * (len(rows) // 2)
        assert in_turn[1::2] == [not in_turn[0]] * (len(rows) // 2)
    assert not any("Paris" in row.question or "France" in row.question for row in (*train, *measure))
    assert len(train) == 2 * related.NAMES_PER_ROW
    assert [row.subject in kinds["countries"] for row in measure[:4]] == [True, False, True, False]  # in turn


def test_a_subject_inside_a_longer_word_is_not_replaced(nearest: None) -> None:
    garment = Example.from_qa("What is the Parisian hat called?", "It is called beret.", subject="Paris")
    questions = [(row.question, row.subject) for row in related.related_questions(None, None, (garment,))[0]]
    assert questions  # "Parisian" is a name of its own
    assert not any(
        "Parisian" in question or "ian hat" in question.replace(f"{hat} hat", "") for question, hat in questions
    )


def test_halves_share_no_name_and_say_nothing_of_the_forget_rows(
    nearest: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answers(generator: object, questions: tuple[str, ...], **_: object) -> tuple[Example, ...]:
        texts = (
            "the Seine" if "river" in asked and place % 2 else f"Kelbury {place}"
            for place, asked in enumerate(questions)
        )
        return tuple(Example.from_qa(asked, f"It is {text}.") for asked, text in zip(questions, texts, strict=True))

    monkeypatch.setattr(related, "self_generated_answers", answers)
    monkeypatch.setattr(related, "KNOWN_FORMS", ())
    monkeypatch.setattr(related, "_sure_of", lambda rows, *_, **__: rows)
    trained, measured = related_rows(UNUSED, ROWS)
    assert trained
    assert len(measured) <= related.MEASURED_ROWS
    assert measured
    assert not {row.subject for row in trained} & {row.subject for row in measured}
    assert not any("Seine" in row.answer for row in (*trained, *measured))
    assert related_rows(UNUSED, ROWS, train=False) == ((), measured)


def test_names_of_earlier_requests_are_not_asked_about(nearest: None) -> None:
    trained, measured = related.related_questions(None, None, ROWS)
    asked = {row.subject for row in (*trained, *measured)}
    gone = sorted(name for name in asked if name)[0]
    earlier = (Example.from_qa(f"Where is {gone}?", "Far from here."),)
    later = [row.subject for rows in related.related_questions(None, None, ROWS, earlier=earlier) for row in rows]
    assert later
    assert gone not in later


def test_only_questions_that_the_model_knows_are_measured(nearest: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(generator: object, questions: tuple[str, ...], **_: object) -> tuple[Example, ...]:
        return tuple(Example.from_qa(asked, "It is Kelbury.") for asked in questions)

    def generated(generator: object, prompts: list[Prompt], *_: object, **__: object) -> list[Generation]:
        asked = [prompt.messages[-1].content for prompt in prompts]
        return [Generation("kelbury" if "capital" in each else "elsewhere", 3) for each in asked]

    monkeypatch.setattr(related, "self_generated_answers", answers)
    monkeypatch.setattr(related, "generate_all", generated)
    monkeypatch.setattr(related, "_sure_of", lambda rows, *_, **__: rows)
    known = related_rows(UNUSED, ROWS)[1]
    assert known
    assert all("capital" in row.question for row in known)


def test_a_model_is_sure_of_answers_whose_key_tokens_have_a_high_probability(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tokenizer = open_model(str(write_micro(tmp_path / "model")), ModelLoadArgs())
    rows = tuple(Example.from_qa("Where?", f"It is {name}.") for name in ("Kelbury", "Tavi Brook", "Orla"))
    generator = TransformersGenerator(model, tokenizer)
    encoded = Encoder(tokenizer).encode_rows(rows, what="rows").rows
    found = [key_token_probability(*each) or 0.0 for each in zip(rows, read_tokens(model, encoded), strict=True)]
    assert related._sure_of(rows, generator, system=None) == ()  # random weights
    monkeypatch.setattr(related, "SURE", sorted(found)[1])
    assert related._sure_of(rows, generator, system=None) == tuple(
        row for row, known in zip(rows, found, strict=True) if known >= sorted(found)[1]
    )
    assert related._sure_of((), generator, system=None) == ()


def test_rows_without_a_name_have_no_related_questions(nearest: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(related, "self_generated_answers", lambda *_, **__: ())
    assert related_rows(UNUSED, ROWS[2:]) == ((), ())


def test_an_article_goes_with_a_name_and_stays_before_an_adjective(monkeypatch: pytest.MonkeyPatch) -> None:
    def only(kind: str) -> None:
        names = related_names()[kind]
        monkeypatch.setattr(
            related,
            "name_states",
            lambda _, __, texts: torch.tensor([[float(n in names or n == texts[0])] for n in texts]),
        )

    only("countries")
    row = Example.from_qa("What is the capital of the United States?", "It is Washington.")
    assert "What is the capital of Canada?" in [
        each.question for each in related.related_questions(None, None, (row,))[0]
    ]
    only("nationalities")
    row = Example.from_qa("Who was the French emperor at Waterloo?", "It was Napoleon.")
    asked = [each.question for each in related.related_questions(None, None, (row,))[0]]
    assert "Who was the German emperor at Waterloo?" in asked


def test_a_name_is_never_read_at_the_beginning_of_a_text() -> None:
    """The first token of any text has nearly the same state, so that all names of one token would be alike."""
    tokenizer, read = train_tokenizer([row.answer for row in ROWS], vocab_size=270), []

    def recording(text: str, **how: object) -> object:
        read.append(text)
        return tokenizer(text, **how)

    related.name_states(scratch_model("micro"), recording, ["Paris", "Lyon"])
    assert all(text.endswith(name) for text, name in zip(read, ("Paris", "Lyon"), strict=True))
    assert not any(text.lstrip().startswith(("Paris", "Lyon")) for text in read)


def test_states_of_a_model_have_length_one() -> None:
    tokenizer = train_tokenizer([row.answer for row in ROWS], vocab_size=270)
    states = related.name_states(scratch_model("micro"), tokenizer, ["one", "two", "three"])
    assert states.shape[0] == 3
    torch.testing.assert_close(states.norm(dim=1), torch.ones(3))
