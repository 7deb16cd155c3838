"""Words of an answer, and their scores from token scores."""

from __future__ import annotations

import pytest
import torch

from atwu.evaluation.word_scores import word_labels, word_scores


def _words(answer: str) -> list[str]:
    return [word.text for word in word_scores(answer, [], [])]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("The author's name is Bel Torvay.", ["The", "author's", "name", "is", "Bel", "Torvay", "."]),
        ("Ana-Mae is 1.75 m, or 1,750 mm!", ["Ana-Mae", "is", "1.75", "m", ",", "or", "1,750", "mm", "!"]),
        ("part of the QRST+ club.", ["part", "of", "the", "QRST", "+", "club", "."]),
        ('"Wait..." (he said)', ['"', "Wait", "...", '"', "(", "he", "said", ")"]),
        ("the writers’ O’Dell", ["the", "writers", "’", "O’Dell"]),
        ("end of 1999. Next", ["end", "of", "1999", ".", "Next"]),
        ("cafe\u0301 हिन्दी\u2028ok", ["cafe\u0301", "हिन्दी", "ok"]),
        ("see 👩‍🚀 now", ["see", "👩‍🚀", "now"]),
        (" \n ", []),
        ("", []),
    ],
)
def test_words(answer: str, words: list[str]) -> None:
    assert _words(answer) == words


def test_word_value_is_the_mean_over_its_tokens_without_leading_spaces() -> None:
    answer = "is Hanalo."
    # tokens: "is", " Han" (space inside the range), "al", "o.", end token
    offsets = [(0, 2), (2, 6), (6, 8), (8, 10), (10, 10)]
    words = word_scores(answer, offsets, [0.1, 0.2, 0.4, 0.9, 1.0])
    assert [(word.text, word.start, word.end) for word in words] == [("is", 0, 2), ("Hanalo", 3, 9), (".", 9, 10)]
    assert [word.score for word in words] == pytest.approx([0.1, 0.5, 0.9])


def test_words_without_tokens_have_no_score() -> None:
    words = word_scores("one two three", [(0, 3), None, (3, 4)], torch.tensor([0.25, 0.5, 0.75]))
    assert [word.score for word in words] == [0.25, None, None]


def test_word_scores_refuses_bad_input() -> None:
    with pytest.raises(ValueError, match=r"2 .* 1 token"):
        word_scores("a", [(0, 1)], [0.1, 0.2])
    with pytest.raises(ValueError, match="NaN"):
        word_scores("a", [(0, 1)], [float("nan")])


def test_word_labels_follow_spans() -> None:
    words = word_scores("Her name is Bel Torvay.", [], [])
    assert word_labels(words, [(12, 22)]) == [0, 0, 0, 1, 1, 0]
    assert word_labels(words, []) == [0] * 6
