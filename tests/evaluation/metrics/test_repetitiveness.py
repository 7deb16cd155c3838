"""n-gram entropy, and the instructions it is measured on."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atwu.evaluation.metrics.open_ended import OPEN_INSTRUCTIONS, ngram_entropy, repetitiveness, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a b a b a b", 99.0317), ("the cat sat on the mat", 210.7309), (" ".join(["no idea"] * 4), 99.5076)],
)
def test_worked_examples(text, expected) -> None:
    assert repetitiveness(text) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(("length", "bound"), [(60, 586.62), (100, 661.96), (128, 698.11)])
def test_upper_bound_of_a_text_without_repetition(length, bound) -> None:
    text = " ".join(f"w{n}" for n in range(length))
    assert repetitiveness(text) == pytest.approx(bound, abs=0.005)
    assert repetitiveness(text) == pytest.approx(100 * (math.log2(length - 1) + 2 * math.log2(length - 2)) / 3)


@given(st.lists(st.sampled_from("abc"), max_size=12), st.integers(1, 4))
def test_entropy_lies_between_0_and_that_of_distinct_ngrams(tokens, n) -> None:
    count = len(tokens) - n + 1
    assert 0 <= ngram_entropy(tokens, n) <= (math.log2(count) if count > 0 else 0) + 1e-12


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
