"""AUROC of every score within each row."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from atwu.benchmarks.people.people_rows import people
from atwu.data.encode import EncodedRow, Encoder
from atwu.data.schema import Example
from atwu.evaluation.metrics.score_auroc import score_aurocs
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


def test_rows_without_labels_and_of_one_class_have_no_value():
    context = context_of([[0.1, 0.9, 0.2]] * 4, [None, [0, 1, 0], [0, 0, 0], [1, 0, 0]])
    assert score_aurocs(context)["scorer"] == (None, 1.0, None, 0.0)


def test_the_end_token_is_not_scored():
    context = context_of([[0.1, 0.9, 0.2]], [[0, 1, 0]])
    raised = dataclasses.replace(context.tokens[0], scores=np.array([0.1, 0.9, 0.2, 1.0]))
    assert score_aurocs(dataclasses.replace(context, tokens=[raised]))["scorer"] == (1.0,)


def test_labels_are_a_score_only_if_requested():
    context = context_of([[0.1, 0.9, 0.2]], [[0, 1, 0]])
    assert "labels" not in score_aurocs(context)
    assert score_aurocs(context, ["labels"])["labels"] == (1.0,)
    with pytest.raises(ValueError, match="retain"):
        score_aurocs(context, ["rarity"])


def test_every_score_works_on_a_model_and_real_rows():
    benchmark = people("tiny")
    tokenizer = train_tokenizer(benchmark.texts(), vocab_size=300)
    encoder = Encoder(tokenizer)
    forget, retain = (encoder.encode_rows(rows[:24], what="").rows for rows in (benchmark.forget, benchmark.retain))
    read = read_tokens(scratch_model("micro").eval(), forget, scorer=TokenScorer(32))
    text = benchmark.retain[:24]
    found = score_aurocs(ScoreContext(read, forget, benchmark.forget[:24], retain=retain, retain_text=text))
    assert [*found] == [name for name in scored_weightings() if name not in ("labels", "model_difference")]
    assert {len(values) for values in found.values()} == {24}
    assert {value for value in found["scorer"] if value is not None} == {0.5}
    both = zip(found["saturation"], found["importance"], strict=True)
    assert [one + other for one, other in both if one is not None] == pytest.approx([1.0] * 24)
