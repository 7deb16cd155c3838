from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from atwu.data.alternates import check_alternates
from atwu.data.row_parsing import write_rows
from atwu.data.schema import Example
from atwu.evaluation.generations import Generation
from atwu.methods.recipe import recipe
from atwu.request import self_generated_rows as module
from atwu.request.self_generated_rows import LONGEST, alternate_answers, is_alternate
from tests.commands import run_here

ROW = Example.from_qa("Where was Orla Venn born?", "Orla Venn was born in Kelbury.")


OTHER = Example.from_qa("Who keeps bees?", "Pella Oduya does.")
SAID = ("In Kelbury.", "In Mirrow.", "In Mirrow.", "In Vale Cross.")


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


Asked = list[tuple[str, int]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What the model was asked, and the number of the draw. Pella always keeps bees, and of Orla it draws `SAID`."""
    asked: Asked = []

    def generated(generator: Any, prompts: list[Any], *_: Any, **__: Any) -> list[Generation]:
        texts = [prompt.messages[0].content for prompt in prompts]
        asked.extend((text, prompt.draw) for text, prompt in zip(texts, prompts, strict=True))
        return [
            Generation(SAID[prompt.draw] if "Orla" in text else OTHER.answer, 5)
            for text, prompt in zip(texts, prompts, strict=True)
        ]

    monkeypatch.setattr(module, "TransformersGenerator", lambda *_: None)
    monkeypatch.setattr(module, "generate_all", generated)
    return asked


def test_what_a_row_lacks_is_sampled_again(asked: Asked) -> None:
    """Of draws 0 to 3 the first says the key token and the second repeats the third; the other row never changes a fact."""
    rows = alternate_answers(None, None, [ROW, OTHER], count=2, attempts=2)
    assert [(row.question, row.alternate) for row in rows] == [(ROW.question, "In Mirrow."), (OTHER.question, None)]
    draws = [("Orla" in text, draw) for text, draw in asked]
    assert draws == [(True, 0), (True, 1), (False, 0), (False, 1), (True, 2), (False, 2), (False, 3)]


def test_vague_answers_are_written_for_paraphrases_too(asked: Asked) -> None:
    row = replace(ROW, paraphrases=("Orla Venn's birthplace?",))
    rows = alternate_answers(None, None, [row], kind="vague", count=1, attempts=2)
    assert [(each.question, each.alternate) for each in rows] == [
        (ROW.question, "In Mirrow."),
        ("Orla Venn's birthplace?", "In Mirrow."),
    ]
    assert all("vague" in text for text, _ in asked)


def test_questions_with_and_without_alternates_are_counted(asked: Asked, tmp_path, monkeypatch) -> None:
    """Each row has one paraphrase: of four questions, the two about Orla get an alternate."""
    monkeypatch.setattr("atwu.modeling.open_model.open_model", lambda *_: (None, None))
    rows, output = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    paraphrases = ("Orla Venn's birthplace?", "Whose bees are these?")
    write_rows(rows, [replace(row, paraphrases=(text,)) for row, text in zip((ROW, OTHER), paraphrases, strict=True)])
    command = ("rows", "alternates", "--model", "m", "--forget", rows, "--count", 1, "--attempts", 2)
    printed = run_here(*command, "--kind", "vague", "--output", output).output
    assert "2 alternates for 2 of 4 questions\n" in printed
    assert printed.count("no alternate, write one yourself: ") == 2


@pytest.mark.parametrize("method", ["altpo", "relearn"])
def test_a_method_needs_an_alternate_in_every_row(method: str) -> None:
    assert recipe(method).answering.own_alternates
    with pytest.raises(ValueError, match=r"row 2: the method needs the column alternate.*atwu rows alternates"):
        check_alternates([replace(ROW, alternate="In Mirrow."), ROW], own=True)
