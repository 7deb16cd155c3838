"""Rows as TRL, ShareGPT, Alpaca and OpenAI have them."""

from __future__ import annotations

import pytest

from atwu.data.row_parsing import ignored_columns, parse_row
from atwu.data.schema import Example, Message

USER, ASSISTANT = {"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Orla Venn."}
SYSTEM = {"role": "system", "content": "Be brief."}
PLAIN = Example.from_qa("Who?", "Orla Venn.")
WITH_SYSTEM = Example((Message("system", "Be brief."), Message("user", "Who?")), "Orla Venn.")


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"prompt": [USER], "completion": [ASSISTANT]}, PLAIN),
        ({"prompt": [SYSTEM, USER], "completion": [ASSISTANT]}, WITH_SYSTEM),
        ({"prompt": [USER], "completion": "Orla Venn."}, PLAIN),
        ({"prompt": "Who?", "chosen": "Orla Venn.", "rejected": "Nobody."}, PLAIN),
        ({"prompt": [USER], "chosen": [ASSISTANT], "rejected": [USER]}, PLAIN),
        ({"chosen": [USER, ASSISTANT], "rejected": [USER, ASSISTANT]}, PLAIN),
        ({"conversations": [{"from": "human", "value": "Who?"}, {"from": "gpt", "value": "Orla Venn."}]}, PLAIN),
        (
            {
                "system": "Be brief.",
                "conversations": [{"from": "human", "value": "Who?"}, {"from": "gpt", "value": "Orla Venn."}],
            },
            WITH_SYSTEM,
        ),
        ({"conversations": [USER, ASSISTANT]}, PLAIN),
        ({"instruction": "Who?", "input": "", "output": "Orla Venn."}, PLAIN),
        ({"instruction": "Answer.", "input": "Who?", "output": "X"}, Example.from_qa("Answer.\n\nWho?", "X")),
        ({"instruction": "Who?", "output": "Orla Venn.", "system": "Be brief."}, WITH_SYSTEM),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "Who?"}]}, ASSISTANT]}, PLAIN),
    ],
)
def test_rows_of_other_tools_are_read(row, expected):
    assert parse_row(row, where="row 1") == expected
    assert ignored_columns(row) == ({"rejected"} if "rejected" in row else set())


def test_parts_that_are_not_text_are_rejected():
    turn = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
    with pytest.raises(ValueError, match=r"row 7.*'image_url'"):
        parse_row({"messages": [turn, ASSISTANT]}, where="row 7")


def test_a_conversation_without_an_answer_is_rejected():
    for row in ({"prompt": [USER]}, {"completion": [ASSISTANT]}, {"prompt": [USER], "completion": None}):
        with pytest.raises(ValueError, match="row 7"):
            parse_row(row, where="row 7")


def test_columns_with_other_meanings_are_left_alone():
    row = {"question": "Who?", "answer": "Orla Venn.", "system": "x", "input": "y"}
    assert parse_row(row, where="row 1") == PLAIN
    assert ignored_columns(row) == {"system", "input"}
