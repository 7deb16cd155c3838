"""Refusals of JensUn++: labels by hand, and the published draw of prefixes."""

from __future__ import annotations

from collections import Counter

import pytest

from atwu.data.alternates import refusal_rows
from atwu.data.encode import Encoder
from atwu.data.schema import IGNORE_INDEX, Example

REFUSAL = "I cannot say."
ROWS = [Example.from_qa("Where was Orla born?", "In Kelbury.")] * 40


@pytest.fixture
def tokenizer(tokenizer_of):
    return tokenizer_of("byte")


def made_of(tokenizer, **changes):
    return refusal_rows(ROWS, tokenizer, refusal=REFUSAL, **{"seed": 1, "epochs": 20, "max_length": 256} | changes)


def test_the_refusal_alone_is_an_ordinary_row(tokenizer):
    made = made_of(tokenizer)
    alone = Encoder(tokenizer).encode(Example.from_qa("Where was Orla born?", REFUSAL))
    assert alone in made.rows


def test_every_token_of_a_prefix_aims_at_the_start_of_the_refusal(tokenizer):
    """Prompt, k tokens of the answer, the refusal with a space, and the end; only prompt tokens have no label."""
    answered = Encoder(tokenizer).encode(ROWS[0])
    alone = Encoder(tokenizer).encode(Example.from_qa("Where was Orla born?", REFUSAL))
    begin, inside = alone.answer_start, tokenizer(f" {REFUSAL}", add_special_tokens=False)["input_ids"]
    prefixed = [row for row in made_of(tokenizer).rows if row != alone]
    assert prefixed
    for row in prefixed:
        size = len(row.input_ids) - begin - len(inside) - 1
        answer = answered.input_ids[begin : begin + size]
        assert row.input_ids == (*alone.prompt_ids, *answer, *inside, alone.input_ids[-1])
        starts = [alone.labels[begin], *[inside[0]] * (size - 1)]
        assert row.labels == (*[IGNORE_INDEX] * begin, *starts, *inside, alone.input_ids[-1])


def test_half_of_the_draws_have_a_prefix_and_short_ones_are_likelier(tokenizer):
    made = made_of(tokenizer)
    alone = Encoder(tokenizer).encode(Example.from_qa("Where was Orla born?", REFUSAL))
    lengths = Counter(len(made.rows[pick].input_ids) - len(alone.input_ids) for picks in made.chosen for pick in picks)
    shortest, *longer = sorted(length for length in lengths if length > 0)
    draws = sum(lengths.values())
    assert draws == 800
    assert lengths[0] / draws == pytest.approx(0.5, abs=0.06)
    assert lengths[shortest] > max(lengths[length] for length in longer)


def test_draws_depend_on_seed_and_epoch_only(tokenizer):
    assert made_of(tokenizer).chosen == made_of(tokenizer).chosen
    assert made_of(tokenizer).chosen != made_of(tokenizer, seed=2).chosen


def test_long_rows_are_cut(tokenizer):
    longest = max(len(row.input_ids) for row in made_of(tokenizer).rows)
    cut = made_of(tokenizer, max_length=longest - 3).rows
    assert max(len(row.input_ids) for row in cut) == longest - 3
    assert any(not row.has_terminal for row in cut)


def test_plain_text_has_no_question_to_refuse(tokenizer):
    with pytest.raises(ValueError, match=r"row 1: a plain text row"):
        refusal_rows([Example((), "Orla was born.")], tokenizer, refusal=REFUSAL, seed=0, epochs=1, max_length=64)
