"""AUROC against hand-worked values."""

from __future__ import annotations

import numpy as np
import pytest

from atwu.evaluation.auroc import auroc, per_sample_auroc

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


def test_pooled_loses_where_levels_differ_between_samples() -> None:
    scores, labels = [[0.1, 0.9, 0.2], [0.95, 0.99, 0.97]], [[0, 1, 0], [0, 1, 0]]
    result = per_sample_auroc(scores, labels)
    assert result.values == (1.0, 1.0)
    assert (result.mean, result.std, result.n, result.skipped) == (1.0, 0.0, 2, 0)
    assert auroc(np.concatenate(scores), np.concatenate(labels)) == 0.75


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


@pytest.mark.parametrize("label", [0, 1])
def test_a_single_class_has_no_auroc(label) -> None:
    assert auroc([0.1, 0.2], [label] * 2) is None


def test_bad_input_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"1 of 2 .*NaN"):
        auroc([0.1, float("nan")], [0, 1])
    with pytest.raises(ValueError, match=r"answer 1: 1 of 2 .*NaN"):
        per_sample_auroc([[0.1, 0.2], [0.1, float("nan")]], [[0, 1], [0, 1]])
    with pytest.raises(ValueError, match="-100"):
        auroc([0.1, 0.2], [0, -100])
    with pytest.raises(ValueError, match=r"3 .* 2 labels"):
        auroc([0.1, 0.2, 0.3], [0, 1])
