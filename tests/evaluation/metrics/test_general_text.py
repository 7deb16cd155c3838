"""Perplexity of general text: by hand, and on a tiny model against a plain computation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from atwu.data.encode import Encoder
from atwu.data.general_rows import general_text
from atwu.data.schema import Example
from atwu.evaluation.evaluate import evaluate
from atwu.evaluation.metrics.fluency import perplexity
from atwu.modeling.scratch import scratch_model, train_tokenizer

ROWS = [Example.from_qa(f"What does {name} keep?", "Seven geese.") for name in ("Orla Venn", "Tavi Brook")]


def test_worked_example():
    assert perplexity(np.float64(0.25)) == 4.0
    assert perplexity(np.array([1.0, 0.5])).tolist() == [1.0, 2.0]


def test_perplexity_equals_a_plain_computation():
    tokenizer = train_tokenizer([text.answer for text in general_text()], vocab_size=300)
    model = scratch_model("micro").eval()
    found = evaluate(model, tokenizer, forget=ROWS, metrics="general_text", progress=False)
    each = []
    for row in Encoder(tokenizer).encode_rows(general_text(), what="general_text").rows:
        ids = torch.tensor([row.input_ids])
        with torch.no_grad():
            each.append(float(torch.exp(-model(input_ids=ids, labels=ids).loss)))
    assert found.rows["general_text"].metrics["general_text_probability"] == pytest.approx(each, rel=1e-5)
    value = found.overall["general_text_perplexity"]
    assert (value.value, value.n, value.direction) == (pytest.approx(1 / np.mean(each), rel=1e-5), 8, "down")
    assert value.low < value.value < value.high


def test_differences_are_paired_over_texts():
    from atwu.evaluation.aggregate import paired_differences

    tokenizer = train_tokenizer([text.answer for text in general_text()], vocab_size=300)
    one, other = (
        evaluate(
            scratch_model("micro", seed=seed).eval(), tokenizer, forget=ROWS, metrics="general_text", progress=False
        )
        for seed in (0, 1)
    )
    difference = paired_differences(one, other)["overall", "general_text_perplexity"]
    assert (
        difference.value
        == one.overall["general_text_perplexity"].value - other.overall["general_text_perplexity"].value
    )
    assert paired_differences(one, one)["overall", "general_text_perplexity"].interval() == (0.0, 0.0)
