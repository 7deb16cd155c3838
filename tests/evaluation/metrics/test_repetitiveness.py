"""Repetitiveness (n-gram entropy), and the instructions it is measured on."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atwu.evaluation.metrics.open_ended import (
    OPEN_INSTRUCTIONS,
    ngram_entropy,
    nltk_words,
    open_words,
    repetitiveness,
    words,
)
from atwu.evaluation.registry import EvaluateConfig


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a b a b a b", 99.0317), ("the cat sat on the mat", 210.7309), (" ".join(["no idea"] * 4), 99.5076)],
)
def test_worked_examples(text, expected) -> None:
    assert repetitiveness(text) == pytest.approx(expected, abs=1e-4)


@settings(max_examples=25)
@given(st.lists(st.sampled_from("abc"), max_size=12), st.integers(1, 4))
def test_entropy_lies_between_0_and_that_of_distinct_ngrams(tokens, n) -> None:
    count = len(tokens) - n + 1
    assert 0 <= ngram_entropy(tokens, n) <= (math.log2(count) if count > 0 else 0) + 1e-12


@pytest.mark.parametrize(("text", "count"), [("", 0), ("One.", 1), ("It's  well-known,\n1 + 1 = 2.", 7)])
def test_length_counts_words_separated_by_white_space(text, count) -> None:
    assert open_words(text) == count


def test_edges() -> None:
    assert [repetitiveness(text) for text in ("", "one", "one two", "one two three", "so " * 50)] == [
        0,
        0,
        0,
        pytest.approx(100 / 3),
        0,
    ]


def test_words() -> None:
    assert words("Well-known, isn't it? 7pm") == ["Well-known", ",", "isn't", "it", "?", "7pm"]
    assert words("Ça va 😀") == ["Ça", "va", "😀"]


def test_forty_distinct_instructions() -> None:
    assert len(set(OPEN_INSTRUCTIONS)) == len(OPEN_INSTRUCTIONS) == 40
    assert all(text == text.strip() and text[-1] in ".?" for text in OPEN_INSTRUCTIONS)


def test_nltk_tokens_are_those_of_published_values(tmp_path, monkeypatch):
    import nltk

    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    nltk.data.clear_cache()
    nltk.tokenize._get_punkt_tokenizer.cache_clear()
    with pytest.raises(ValueError, match=r"rep_tokenizer.*nltk.*nltk\.downloader punkt_tab"):
        EvaluateConfig(rep_tokenizer="nltk")
    folder = tmp_path / "tokenizers" / "punkt_tab" / "english"
    folder.mkdir(parents=True)
    for name, content in (("abbrev_types.txt", "dr\n"), ("collocations.tab", ""), ("sent_starters.txt", "")):
        (folder / name).write_text(content)
    (folder / "ortho_context.tab").write_text("")
    assert EvaluateConfig(rep_tokenizer="nltk").rep_tokenizer == "nltk"
    text = "Dr. Quill doesn't know. She can't say why."
    apart = ["Dr.", "Quill", "does", "n't", "know", ".", "She", "ca", "n't", "say", "why", "."]
    assert nltk_words(text) == apart
    assert words(text)[3:5] == ["doesn't", "know"]
    assert repetitiveness(text, tokenizer="nltk") == pytest.approx(100 * (math.log2(11) + 2 * math.log2(10)) / 3)
