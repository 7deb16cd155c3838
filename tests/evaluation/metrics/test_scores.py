"""AUROC of every score, per row and pooled, and the stored curve."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atwu.benchmarks.people.people_rows import people
from atwu.data.encode import EncodedRow, Encoder
from atwu.data.schema import Example
from atwu.evaluation.auroc import roc
from atwu.evaluation.metrics.score_auroc import MAX_POINTS, score_aurocs, thinned
from atwu.evaluation.teacher_forced import TokenRow, read_tokens
from atwu.evaluation.weighting_scores import ScoreContext, scored_weightings
from atwu.methods.weightings.token_scorer import TokenScorer
from atwu.modeling.scratch import scratch_model, train_tokenizer


def context_of(scores, labels):
    """Rows of three text tokens and an end token, whose learned scores are given."""
    tokens, encoded = [], []
    for row_scores, row_labels in zip(scores, labels, strict=True):
        offsets = ((0, 1), (1, 2), (2, 3), None)
        marks = None if row_labels is None else (*row_labels, 0)
        numbers = np.full(4, -1.0)
        tokens.append(
            TokenRow(
                targets=np.zeros(4, dtype=int),
                predictions=np.zeros(4, dtype=int),
                logps=numbers,
                entropy=-numbers,
                scores=np.array([*row_scores, 0.5]),
                labels=None if marks is None else np.array(marks),
                offsets=offsets,
            )
        )
        encoded.append(
            EncodedRow(
                input_ids=(1, 5, 6, 7, 2),
                labels=(-100, 5, 6, 7, 2),
                token_labels=None if marks is None else (0, *marks),
                answer_offsets=(None, *offsets),
                has_terminal=True,
            )
        )
    return ScoreContext(tokens, encoded, [Example.from_qa("q", "abc")] * len(tokens))


def test_worked_example_per_row_and_pooled():
    # Found in both rows, but the second row's other tokens outscore the first row's secret: 3 of 4 pairs per secret.
    found = score_aurocs(context_of([[0.1, 0.9, 0.2], [0.95, 0.99, 0.97]], [[0, 1, 0], [0, 1, 0]]))["scorer"]
    assert found.values == (1.0, 1.0)
    assert found.pooled == 0.75
    np.testing.assert_allclose(found.curve.tpr, [0, 0.5, 0.5, 0.5, 1, 1, 1])
    np.testing.assert_allclose(found.curve.fpr, [0, 0, 0.25, 0.5, 0.5, 0.75, 1])


def test_rows_without_labels_and_of_one_class_have_no_value():
    context = context_of([[0.1, 0.9, 0.2]] * 4, [None, [0, 1, 0], [0, 0, 0], [1, 0, 0]])
    found = score_aurocs(context)["scorer"]
    assert found.values == (None, 1.0, None, 0.0)
    # Secrets .9 and .1 against .1 .2, .1 .9 .2 and .9 .2: wins 5 + 2 halves, and 2 halves, of 14 pairs.
    assert found.pooled == pytest.approx(7 / 14)


@pytest.mark.parametrize("labels", [None, [0, 0, 0]])
def test_answers_without_labels_give_no_auroc(labels):
    found = score_aurocs(context_of([[0.1, 0.9, 0.2]], [labels]))["scorer"]
    assert found.values == (None,)
    assert found.pooled is None
    assert found.curve.fpr.size == found.curve.tpr.size == 0


def test_the_end_token_is_not_scored():
    context = context_of([[0.1, 0.9, 0.2]], [[0, 1, 0]])
    raised = dataclasses.replace(context.tokens[0], scores=np.array([0.1, 0.9, 0.2, 1.0]))
    assert score_aurocs(dataclasses.replace(context, tokens=[raised]))["scorer"].values == (1.0,)


def test_labels_are_a_score_only_if_requested():
    context = context_of([[0.1, 0.9, 0.2]], [[0, 1, 0]])
    assert "labels" not in score_aurocs(context)
    assert score_aurocs(context, ["labels"])["labels"].values == (1.0,)
    with pytest.raises(ValueError, match="retain"):
        score_aurocs(context, ["rarity"])


@given(st.integers(0, 2**32 - 1), st.integers(2, 60), st.integers(20, 900))
def test_thinned_curves_are_short_and_close_to_the_full_ones(seed, points, tokens):
    draw = np.random.default_rng(seed)
    labels = draw.permutation([1, 0, *(draw.random(tokens) < 0.1)]).astype(int)
    curve = roc(draw.random(labels.size) + 0.3 * labels, labels)
    short = thinned(curve, points)
    assert short.fpr.size <= points
    assert (short.fpr[0], short.tpr[0], short.fpr[-1], short.tpr[-1]) == (0, 0, 1, 1)
    assert {*zip(short.fpr, short.tpr, strict=True)} <= {*zip(curve.fpr, curve.tpr, strict=True)}
    # Between two kept points the curve goes at most one step of 2 / (points - 1) and one token further.
    steps = np.diff(short.fpr + short.tpr)
    assert steps.max() <= 2 / (points - 1) + 1 / labels.sum() + 1e-9


def test_every_score_works_on_a_model_and_real_rows():
    benchmark = people("tiny")
    tokenizer = train_tokenizer(benchmark.texts(), vocab_size=300)
    encoder = Encoder(tokenizer)
    forget, retain = (encoder.encode_rows(rows[:24], what="").rows for rows in (benchmark.forget, benchmark.retain))
    read = read_tokens(scratch_model("micro").eval(), forget, scorer=TokenScorer(32))
    text = benchmark.retain[:24]
    found = score_aurocs(ScoreContext(read, forget, benchmark.forget[:24], retain=retain, retain_text=text))
    assert [*found] == [name for name in scored_weightings() if name not in ("labels", "model_difference")]
    for name, score in found.items():
        assert len(score.values) == 24
        assert score.pooled is not None
        assert score.curve.fpr.size <= MAX_POINTS
        assert np.trapezoid(score.curve.tpr, score.curve.fpr) == pytest.approx(score.pooled, abs=0.01), name
    assert found["scorer"].pooled == 0.5
    assert {value for value in found["scorer"].values if value is not None} == {0.5}
    both = zip(found["saturation"].values, found["importance"].values, strict=True)
    assert [one + other for one, other in both if one is not None] == pytest.approx([1.0] * 24)
