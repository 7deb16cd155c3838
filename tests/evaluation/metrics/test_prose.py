"""Perplexity of ordinary prose: by hand, and on a tiny model against plain code."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from atwu.benchmarks.general import general_texts
from atwu.data.encode import Encoder
from atwu.data.schema import Example
from atwu.evaluation.metrics.prose import perplexity
from atwu.evaluation.run import evaluate
from atwu.modeling.scratch import scratch_model, train_tokenizer

ROWS = [Example.from_qa(f"What does {name} keep?", "Seven geese.") for name in ("Orla Venn", "Tavi Brook")]


def test_by_hand():
    assert perplexity(np.float64(0.25)) == 4.0
    assert perplexity(np.array([1.0, 0.5])).tolist() == [1.0, 2.0]


def test_is_that_of_plain_code():
    tokenizer = train_tokenizer([text.answer for text in general_texts()], vocab_size=300)
    model = scratch_model("micro").eval()
    found = evaluate(model, tokenizer, forget=ROWS, metrics="prose", progress=False)
    each = []
    for row in Encoder(tokenizer).encode_rows(general_texts(), what="prose").rows:
        ids = torch.tensor([row.input_ids])
        with torch.no_grad():
            each.append(float(torch.exp(-model(input_ids=ids, labels=ids).loss)))
    assert found.rows["prose"].metrics["prose_probability"] == pytest.approx(each, rel=1e-5)
    value = found.overall["prose_perplexity"]
    assert (value.value, value.n, value.direction) == (pytest.approx(1 / np.mean(each), rel=1e-5), 8, "down")
    assert value.low < value.value < value.high


def test_differences_are_paired_over_texts():
    from atwu.evaluation.derive import differences

    tokenizer = train_tokenizer([text.answer for text in general_texts()], vocab_size=300)
    one, other = (
        evaluate(scratch_model("micro", seed=seed).eval(), tokenizer, forget=ROWS, metrics="prose", progress=False)
        for seed in (0, 1)
    )
    difference = differences(one, other)["overall", "prose_perplexity"]
    assert difference.value == one.overall["prose_perplexity"].value - other.overall["prose_perplexity"].value
    assert differences(one, one)["overall", "prose_perplexity"].interval() == (0.0, 0.0)
