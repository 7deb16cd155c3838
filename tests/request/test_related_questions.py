"""Questions about related subjects: which name is replaced by which, and what is left out."""

from __future__ import annotations

import pytest
import torch

from atwu.data.schema import Example
from atwu.modeling.scratch import scratch_model, train_tokenizer
from atwu.request import related_questions as related
from atwu.request.related_questions import related_names, related_rows

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


def test_names_are_replaced_by_names_of_the_closest_kind(nearest: None) -> None:
    rows = related.related_questions(None, None, ROWS)
    kinds = related_names()
    first, second = rows[: related.NAMES_PER_ROW], rows[related.NAMES_PER_ROW :]
    assert all(row.subject in kinds["countries"] for row in first)
    assert all(row.question == f"What is the capital of {row.subject}?" for row in first)
    assert all(row.subject in kinds["cities"] for row in second)
    assert not any("Paris" in row.question or "France" in row.question for row in rows)
    assert len(rows) == 2 * related.NAMES_PER_ROW


def test_a_subject_inside_a_longer_word_is_not_replaced(nearest: None) -> None:
    garment = Example.from_qa("What is the Parisian hat called?", "It is called beret.", subject="Paris")
    questions = [row.question for row in related.related_questions(None, None, (garment,))]
    assert questions  # "Parisian" is a name of its own
    assert not any("ian hat" in question for question in questions)


def test_halves_share_no_name_and_say_nothing_of_the_forget_rows(
    nearest: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answers(model: object, tokenizer: object, questions: tuple[str, ...], **_: object) -> tuple[Example, ...]:
        texts = ["It is the Seine.", *(f"It is Kelbury {place}." for place in range(1, len(questions)))]
        return tuple(Example.from_qa(asked, text) for asked, text in zip(questions, texts, strict=True))

    monkeypatch.setattr(related, "self_generated_answers", answers)
    trained, measured = related_rows(None, None, ROWS)
    assert trained
    assert measured
    assert not {row.subject for row in trained} & {row.subject for row in measured}
    assert not any("Seine" in row.answer for row in (*trained, *measured))


def test_rows_without_a_name_have_no_related_questions(nearest: None) -> None:
    assert related_rows(None, None, ROWS[2:]) == ((), ())


def test_states_of_a_model_have_length_one() -> None:
    tokenizer = train_tokenizer([row.answer for row in ROWS], vocab_size=270)
    states = related.name_states(scratch_model("micro"), tokenizer, ["one", "two", "three"])
    assert states.shape[0] == 3
    torch.testing.assert_close(states.norm(dim=1), torch.ones(3))
