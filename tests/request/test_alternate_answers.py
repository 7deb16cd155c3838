from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from atwu.data.alternates import check_alternates
from atwu.data.schema import Example
from atwu.evaluation.generations import Generation
from atwu.methods.recipe import recipe
from atwu.request import alternate_answers as module
from atwu.request.alternate_answers import LONGEST, alternate_answers, is_alternate

ROW = Example.from_qa("Where was Orla Venn born?", "Orla Venn was born in Kelbury.")


@pytest.mark.parametrize(
    ("text", "tokens", "kept"),
    [
        ("Orla Venn was born in Mirrow.", 9, True),
        ("She comes from kelbury.", 7, False),
        ("Orla Venn was born in Mirrow.", LONGEST, False),
        (" ", 1, False),
    ],
)
def test_an_alternate_ends_and_says_no_key_token(text: str, tokens: int, kept: bool) -> None:
    assert is_alternate(ROW, Generation(text, tokens)) is kept


def test_what_a_row_lacks_is_sampled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of draws 0 to 3 the first says the key token and the second repeats the third; the other row never changes a fact."""
    said = ["In Kelbury.", "In Mirrow.", "In Mirrow.", "In Vale Cross."]
    other = Example.from_qa("Who keeps bees?", "Pella Oduya does.")
    asked: list[tuple[bool, int]] = []

    def generated(generator: Any, prompts: list[Any], *_: Any, **__: Any) -> list[Generation]:
        asked.extend(("Orla" in prompt.messages[0].content, prompt.draw) for prompt in prompts)
        return [
            Generation(said[prompt.draw] if "Orla" in prompt.messages[0].content else other.answer, 5)
            for prompt in prompts
        ]

    monkeypatch.setattr(module, "TransformersGenerator", lambda *_: None)
    monkeypatch.setattr(module, "generate_all", generated)
    rows = alternate_answers(None, None, [ROW, other], count=2, attempts=2)
    assert [(row.question, row.alternate) for row in rows] == [
        (ROW.question, "In Mirrow."),
        (other.question, None),
    ]
    assert asked == [(True, 0), (True, 1), (False, 0), (False, 1), (True, 2), (False, 2), (False, 3)]


def test_vague_answers_are_written_for_paraphrases_too(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def generated(generator: Any, prompts: list[Any], *_: Any, **__: Any) -> list[Generation]:
        asked.extend(prompt.messages[0].content for prompt in prompts)
        return [Generation("Somewhere quiet.", 5)] * len(prompts)

    monkeypatch.setattr(module, "TransformersGenerator", lambda *_: None)
    monkeypatch.setattr(module, "generate_all", generated)
    row = replace(ROW, paraphrases=("Orla Venn's birthplace?",))
    rows = alternate_answers(None, None, [row], kind="vague", count=1)
    assert [each.question for each in rows] == [ROW.question, "Orla Venn's birthplace?"]
    assert {each.alternate for each in rows} == {"Somewhere quiet."}
    assert all("vague" in text for text in asked)


@pytest.mark.parametrize("method", ["altpo", "relearn"])
def test_a_method_needs_an_alternate_in_every_row(method: str) -> None:
    assert "own_alternates" in recipe(method).needs
    with pytest.raises(ValueError, match=r"row 2: the method needs the column alternate.*atwu alternates build"):
        check_alternates([replace(ROW, alternate="In Mirrow."), ROW], own=True)
