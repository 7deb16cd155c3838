"""Encoding without a chat template: plain question/answer rows and text rows, for several types of tokenizers."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from atwu.data.encode import Encoder
from atwu.data.schema import IGNORE_INDEX, Example, Message

KINDS = ["byte", "byte-bos", "byte-trimmed", "metaspace", "byte-fallback"]
ROW = Example.from_qa("Where was Ilmo Varde born?", "Ilmo Varde was born in Karsund.", forget_spans=((23, 30),))


def flagged_text(row, example):
    """Return the answer text of the labelled tokens, without surrounding spaces."""
    pairs = zip(row.token_labels, row.answer_offsets, strict=True)
    return [example.answer[slice(*span)].strip() for flag, span in pairs if flag]


@pytest.mark.parametrize("kind", KINDS)
class TestEveryTokenizer:
    def test_a_row_has_its_prompt_its_answer_and_a_terminal_token(self, tokenizer_of, kind):
        tokenizer = tokenizer_of(kind)
        row = Encoder(tokenizer).encode(ROW)
        assert len(row.input_ids) == len(row.labels) == len(row.token_labels) == len(row.answer_offsets)
        assert set(row.labels[: row.answer_start]) == {IGNORE_INDEX}
        assert row.labels[row.answer_start :] == row.input_ids[row.answer_start :]
        assert "".join(ROW.answer[slice(*span)] for span in row.answer_offsets if span is not None) == ROW.answer
        assert "".join(flagged_text(row, ROW)) == "Karsund"
        assert tokenizer.decode(row.prompt_ids, skip_special_tokens=True).strip().endswith("Answer:")
        assert tokenizer.convert_ids_to_tokens(row.prompt_ids[-1]).endswith(":")  # not with the space before the answer
        assert row.has_terminal
        assert row.input_ids[-1] == tokenizer.eos_token_id
        assert (row.token_labels[-1], row.answer_offsets[-1]) == (0, None)

    @pytest.mark.parametrize("answer", ["日 🎉 Varde", "ünï Varde", "🎉🎉Varde"])
    def test_characters_split_over_several_tokens(self, tokenizer_of, kind, answer):
        example = Example.from_qa("What?", answer, forget_spans=((0, 1),))
        row = Encoder(tokenizer_of(kind)).encode(example)
        hits = [span for flag, span in zip(row.token_labels, row.answer_offsets, strict=True) if flag]
        assert hits
        assert all(span[0] <= 0 < span[1] for span in hits)
        if kind.startswith("byte"):
            # ü and ï take 2 tokens (UTF-8 bytes), 日 takes 3, 🎉 takes 4; no merge joins them here.
            assert len(hits) == len(answer[0].encode())

    def test_encode_prompt_equals_training_prompt(self, tokenizer_of, kind):
        encoder = Encoder(tokenizer_of(kind))
        assert encoder.encode_prompt(ROW) == encoder.encode(ROW).prompt_ids
        other = encoder.encode_prompt(Example.from_qa("In which town was Ilmo Varde born?", ROW.answer))
        assert other == encoder.encode(Example.from_qa("In which town was Ilmo Varde born?", "x")).prompt_ids
        assert other != encoder.encode_prompt(ROW)

    def test_text_row_counts_all_but_the_first_token(self, tokenizer_of, kind):
        tokenizer = tokenizer_of(kind)
        example = Example(messages=(), answer="Pella Oduya keeps bees.", forget_spans=((6, 11),))
        row = Encoder(tokenizer).encode(example)
        assert row.answer_start == 1
        assert row.labels[1:] == row.input_ids[1:]
        assert row.input_ids[-1] == tokenizer.eos_token_id
        assert "".join(flagged_text(row, example)) == "Oduya"
        if tokenizer("a")["input_ids"][0] == tokenizer.bos_token_id:
            assert row.input_ids[0] == tokenizer.bos_token_id
            assert row.answer_offsets[0] is None


WORDS = ["Ilmo", "Varde", "was", "born", "in", "1961", "Karsund", "café", "日本", "🎉", "The", "Ferry", "zq", "Å"]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_flagged_tokens_cover_exactly_the_span_characters(tokenizer_store, data):
    words = data.draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=8))
    first = data.draw(st.integers(0, len(words) - 1))
    last = data.draw(st.integers(first, len(words) - 1))
    start = sum(len(word) + 1 for word in words[:first])
    end = start + len(" ".join(words[first : last + 1]))
    example = Example.from_qa("What is it?", " ".join(words), forget_spans=((start, end),))
    for kind in ("byte", "byte-trimmed", "metaspace", "byte-fallback"):
        row = Encoder(tokenizer_store[kind]).encode(example)
        covered = set()
        for flag, span in zip(row.token_labels, row.answer_offsets, strict=True):
            covered |= set(range(*span)) if flag else set()
        written = {index for index in covered if not example.answer[index].isspace()}
        assert written == {index for index in range(start, end) if not example.answer[index].isspace()}


def test_plain_template_text(tokenizer_of):
    tokenizer = tokenizer_of("byte")
    turns = (
        Message("system", "You are a clerk."),
        Message("user", "Who?"),
        Message("assistant", "Tova."),
        Message("user", "Where?"),
    )
    row = Encoder(tokenizer).encode(Example(messages=turns, answer="Karsund."))
    expected = "You are a clerk.\n\nQuestion: Who?\nAnswer: Tova.\n\nQuestion: Where?\nAnswer: Karsund.<|end|>"
    assert tokenizer.decode(row.input_ids) == expected
    assert tokenizer.decode(row.prompt_ids) == expected.removesuffix(" Karsund.<|end|>")


def test_missing_spans_give_no_token_labels_and_empty_spans_give_zeros(tokenizer_of):
    encoder = Encoder(tokenizer_of("byte"))
    assert encoder.encode(Example.from_qa("Who?", "Tova.")).token_labels is None
    assert set(encoder.encode(Example.from_qa("Who?", "Tova.", forget_spans=())).token_labels) == {0}


def test_long_answer_is_truncated_and_counted(tokenizer_of):
    long = Example.from_qa("Who?", "Tova " * 50 + "Renn", forget_spans=((250, 254),))
    short = Example.from_qa("Who?", "Tova.", forget_spans=())
    encoder = Encoder(tokenizer_of("byte"), max_length=40)
    full = Encoder(tokenizer_of("byte")).encode(long)
    out = encoder.encode_rows([short, long], what="forget")
    assert out.rows[0].has_terminal
    assert not out.rows[1].has_terminal
    assert out.rows[1].input_ids == full.input_ids[:40]
    assert re.search(r"forget: 1 of 2 .*max_length=40.*row 2", out.warnings[0])
    assert "forget_spans" in out.warnings[1]


def test_a_prompt_that_reaches_max_length_is_an_error_naming_the_row(tokenizer_of):
    encoder = Encoder(tokenizer_of("byte"), max_length=20)
    rows = [Example.from_qa("Who?", "Tova."), Example.from_qa("Who " * 40, "Tova.")]
    with pytest.raises(ValueError, match=r"retain, row 2.*\d+ tokens.*max_length.*\b20"):
        encoder.encode_rows(rows, what="retain")


def test_errors_say_what_to_do(tokenizer_of):
    with pytest.raises(ValueError, match="fast tokenizer"):
        Encoder(object())
    with pytest.raises(ValueError, match=r"max_length.* 2"):
        Encoder(tokenizer_of("byte"), max_length=1)
    encoder = Encoder(tokenizer_of("byte"))
    with pytest.raises(ValueError, match=r"answer.*empty"):
        encoder.encode(Example.from_qa("Who?", "  "))
    endless = tokenizer_of("byte")
    endless.eos_token = None
    with pytest.raises(ValueError, match=r"tokenizer\.eos_token"):
        Encoder(endless).encode(ROW)
