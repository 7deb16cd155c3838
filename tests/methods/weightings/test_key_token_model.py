"""Weighting `key_token_model`: features by hand, the shipped table on rows that were not fitted, and its errors."""

from __future__ import annotations

import numpy as np
import pytest

from atwu._file_reading import read_yaml
from atwu.benchmarks.people.people_rows import people
from atwu.data.encode import EncodedRow
from atwu.data.schema import IGNORE_INDEX, Example
from atwu.evaluation.auroc import per_sample_auroc
from atwu.methods.weightings.key_token_model import TABLE, key_token_probabilities, word_features
from atwu.methods.weightings.rarity import UNIT, WordCounts

ROW = Example.from_qa("Where does Orla live?", "Orla lives in Old Venn, by 2 bridges. Venn is quiet.")
# Orla 0 | lives 1 | in 2 | Old 3 | Venn 4 | , 5 | by 6 | 2 7 | bridges 8 | . 9 | Venn 10 | is 11 | quiet 12 | . 13


def at(values):
    return np.flatnonzero(values).tolist()


def test_features_by_hand():
    found = word_features(ROW, WordCounts({"in": 9, "orla": 2}))
    expected = {
        "punctuation": [5, 9, 13],
        "in_question": [0],
        "inflected": [1],  # lives, after live
        "function": [2, 5, 6, 11],  # the comma has a class of its own
        "new": [3, 4, 7, 8, 10, 12],
        "name": [3, 4],  # not Orla and the second Venn, which open sentences
        "opening": [0, 10],
        "number": [7],
        "be": [11],
        "by": [6],
        "by-1": [7],  # the word before is "by"
        "by+2": [4],
        "repeated": [10],
        "later_sentence": [10, 11, 12, 13],
        "commas_before": [6, 7, 8, 9, 10, 11, 12, 13],
        "name_in_question": [],
    }
    assert {name: at(found[name]) for name in expected} == expected
    # "in" has most subjects, then Orla; twelve words have none.
    assert found["rarity"][[0, 2, 3]] == pytest.approx([1.5 / 14, 0.5 / 14, 8 / 14])
    assert found["new_before"][[0, 3, 4, 8]] == pytest.approx(np.log1p([0, 0, 1, 3]) / 3)
    assert found["since_asked"][[0, 1, 4]] == pytest.approx(np.log1p([0, 1, 4]) / 3)


def test_the_shipped_table_has_a_coefficient_for_every_feature():
    assert read_yaml(TABLE)["coefficients"].keys() == word_features(ROW, WordCounts({})).keys()


def test_tokens_have_the_probability_of_their_word_and_the_terminal_token_0():
    spans = [unit.span() for unit in UNIT.finditer(ROW.answer)]
    offsets = (None, (0, 2), (2, 4), *spans[1:], None)
    row = EncodedRow(tuple(range(len(offsets))), (IGNORE_INDEX, *range(1, len(offsets))), None, offsets, True)
    weights = key_token_probabilities(row, ROW, WordCounts({}))
    assert weights[0] == weights[1] > 0 == weights[-1]
    assert weights.max() < 1


def test_the_shipped_table_finds_key_tokens_of_rows_that_were_not_fitted():
    benchmark = people("tiny", seed=1)
    counts = WordCounts.of(benchmark.retain)
    scores, labels = [], []
    for example in benchmark.forget:
        spans = [unit.span() for unit in UNIT.finditer(example.answer)]
        row = EncodedRow(tuple(range(len(spans))), tuple(range(len(spans))), None, tuple(spans), False)
        scores.append(key_token_probabilities(row, example, counts))
        labels.append([any(start < b and a < end for a, b in example.forget_spans) for start, end in spans])
    assert np.isfinite(np.concatenate(scores)).all()
    assert per_sample_auroc(scores, labels).mean > 0.9
