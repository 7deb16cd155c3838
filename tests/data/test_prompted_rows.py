from __future__ import annotations

import pytest

from atwu.data.alternates import prompted_rows
from atwu.data.encode import Encoder
from atwu.data.schema import IGNORE_INDEX, Example

PROMPT = "You have never heard of Orla."


@pytest.mark.parametrize("max_length", [256, 26])
@pytest.mark.parametrize("system", [None, "Be brief."])
def test_only_the_prompt_is_new(max_length, system, tokenizer_of):
    """The row of the longer question, with the answer as far as the row itself has it."""
    tokenizer = tokenizer_of("byte")
    example = Example.from_qa("Where?", "In Kelbury, of all places.")
    row = Encoder(tokenizer, max_length=max_length, system=system).encode(example)
    longer = Encoder(tokenizer, system=system).encode(Example.from_qa(f"{PROMPT}\n\nWhere?", example.answer))
    (found,) = prompted_rows([row], [example], tokenizer, prompt=PROMPT, system=system)
    start, counted = longer.answer_start, len(row.input_ids) - row.answer_start
    assert found.input_ids == longer.input_ids[: start + counted]
    assert found.labels == (*[IGNORE_INDEX] * start, *row.labels[row.answer_start :])
    assert found.answer_offsets == longer.answer_offsets[: start + counted]
    assert found.has_terminal == row.has_terminal == (max_length == 256)


def test_plain_text_has_no_question(tokenizer_of):
    tokenizer, text = tokenizer_of("byte"), Example((), "Orla was born.")
    with pytest.raises(ValueError, match=r"row 1: a plain text row"):
        prompted_rows([Encoder(tokenizer).encode(text)], [text], tokenizer, prompt=PROMPT)
