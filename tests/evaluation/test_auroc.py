"""AUROC against hand-worked values."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from atwu.evaluation.metrics.score_auroc import auroc, per_sample_auroc
from atwu.evaluation.word_scores import word_labels, word_scores

SECRET_WORDS = [0, 0, 0, 0, 1, 1, 0]


@pytest.mark.parametrize(
    ("method", "scores", "expected"),
    [
        ("SEUL", [0, 75, 0, 0, 100, 100, 100], 0.9),
        ("SU-LLM", [0, 0, 100, 100, 100, 100, 100], 0.7),
        ("SU-Ngram", [0, 0, 0, 0, 100, 100, 0], 1.0),
        ("FUNDIAL", [100, 100, 100, 0, 100, 100, 0], 0.7),
        ("ETW", [5, 9, 12, 0, 100, 98, 27], 1.0),
        ("WGA", [97, 29, 13, 100, 2, 36, 1], 0.4),
        ("SatImp", [3, 71, 87, 0, 98, 64, 99], 0.6),
        ("ATWU", [0, 0, 0, 0, 22, 47, 0], 1.0),
    ],
)
def test_heat_map_auroc_column(method: str, scores: list[int], expected: float) -> None:
    assert auroc(scores, SECRET_WORDS) == pytest.approx(expected)


def test_identities_on_random_scores() -> None:
    draw = np.random.default_rng(0)
    for _ in range(20):
        scores = draw.integers(0, 6, size=30).astype(float)  # few levels, so that ties occur
        labels = draw.permutation([1] * 7 + [0] * 23)
        value = auroc(scores, labels)
        pairs = scores[labels == 1][:, None] - scores[labels == 0][None, :]
        assert value == pytest.approx(float(((pairs > 0) + 0.5 * (pairs == 0)).mean()))
        assert value + auroc(-scores, labels) == pytest.approx(1.0)
        assert auroc(np.exp(scores), labels) == pytest.approx(value)
    assert auroc([0.3] * 5, [0, 1, 0, 1, 1]) == 0.5


def test_samples_of_one_class_are_skipped_and_counted() -> None:
    result = per_sample_auroc([[0.1, 0.9], [0.5, 0.6], [0.9, 0.1], []], [[0, 1], [0, 0], [0, 1], []])
    assert result.values == (1.0, None, 0.0, None)
    assert (result.mean, result.std, result.n, result.skipped) == (0.5, 0.5, 2, 2)
    none = per_sample_auroc([[0.1, 0.2]], [[1, 1]])
    assert (none.mean, none.std, none.n, none.skipped) == (None, None, 0, 1)


def test_a_score_that_is_nan_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"1 of 2 .*NaN"):
        auroc([0.1, float("nan")], [0, 1])


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


def test_a_word_score_that_is_nan_is_rejected() -> None:
    with pytest.raises(ValueError, match="NaN"):
        word_scores("a", [(0, 1)], [float("nan")])


def test_word_labels_follow_spans() -> None:
    words = word_scores("Her name is Bel Torvay.", [], [])
    assert word_labels(words, [(12, 22)]) == [0, 0, 0, 1, 1, 0]
    assert word_labels(words, []) == [0] * 6
