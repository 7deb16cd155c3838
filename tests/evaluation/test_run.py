"""`evaluate` on a real tiny model: the JSON keeps its schema, and the numbers are those of plain code."""

from __future__ import annotations

import json

import jsonschema
import numpy as np
import pytest
import torch

from atwu.data.schema import Example
from atwu.evaluation import induced
from atwu.evaluation.result import EVAL_SCHEMA
from atwu.evaluation.run import evaluate
from atwu.evaluation.teacher_forced import read_tokens
from atwu.modeling.scratch import scratch_model, train_tokenizer
from atwu.weighting.scorer import TokenScorer


@pytest.fixture(scope="module")
def world():
    rows = [
        Example.from_qa(
            f"Who lives in house {n}?",
            f"House {n} is home to Orla V{n}nn.",
            forget_spans=((len(str(n)) + 18, len(str(n)) + 22),),
        )
        for n in range(7)
    ]
    tokenizer = train_tokenizer([f"{row.question} {row.answer}" for row in rows], vocab_size=300)
    return scratch_model("micro").eval(), tokenizer, rows


def test_result_keeps_its_schema_and_counts(world, tmp_path):
    model, tokenizer, rows = world
    scorer = TokenScorer(32)
    result = evaluate(model, tokenizer, forget=rows[:5], retain=rows, scorer=scorer, max_new_tokens=4, progress=False)
    result.write(tmp_path / "eval.json")
    loaded = json.loads((tmp_path / "eval.json").read_text())
    jsonschema.validate(loaded, EVAL_SCHEMA)
    assert loaded["rows"] == {"forget": 5, "retain": 7}
    assert {value["n"] for value in loaded["sets"]["forget"].values()} == {5}
    assert loaded["sets"]["forget"]["auroc_scorer"]["value"] == 0.5  # an untrained scorer is constant
    directions = {metric: value["direction"] for metric, value in loaded["sets"]["forget"].items()}
    assert directions["extraction_strength"] == "down"
    assert loaded["sets"]["retain"]["extraction_strength"]["direction"] == "up"
    assert [path.name for path in tmp_path.iterdir()] == ["eval.json"]


def test_numbers_equal_a_plain_computation(world):
    from atwu.data.encode import Encoder

    model, tokenizer, rows = world
    encoded = Encoder(tokenizer).encode_rows(rows, what="rows").rows
    strengths, probabilities, memorised = [], [], []
    for row in encoded:
        ids = torch.tensor([row.input_ids])
        logps = model(input_ids=ids).logits[0, :-1].log_softmax(-1)
        start, end = row.answer_start, len(row.input_ids)
        chosen = logps[range(start - 1, end - 1), ids[0, start:]]
        probabilities.append(chosen.mean().exp().item())
        correct = [int(logps[t - 1].argmax()) == row.input_ids[t] for t in range(start, end - 1)]
        wrong = [index + 1 for index, right in enumerate(correct) if not right]
        strengths.append(1 - (wrong[-1] if wrong else 0) / len(correct))
        memorised.append(sum(correct) / len(correct))
    result = evaluate(model, tokenizer, forget=rows, rouge=False, batch_tokens=40, progress=False).sets["forget"]
    assert result["extraction_strength"].value == pytest.approx(np.mean(strengths), abs=1e-6)
    assert result["probability"].value == pytest.approx(np.mean(probabilities), rel=1e-5)
    assert result["exact_memorization"].value == pytest.approx(np.mean(memorised), abs=1e-6)
    assert "rouge_l_recall" not in result


def test_batching_changes_nothing(world):
    from atwu.data.encode import Encoder

    model, tokenizer, rows = world
    encoded = Encoder(tokenizer).encode_rows(rows, what="rows").rows
    scorer = TokenScorer(32, hidden_position="own")
    torch.nn.init.normal_(scorer.linear.weight)
    single = read_tokens(model, encoded, scorer=scorer, batch_tokens=1)
    together = read_tokens(model, encoded, scorer=scorer, batch_tokens=10_000)
    for one, other in zip(single, together, strict=True):
        np.testing.assert_allclose(one.logps, other.logps, atol=1e-5)
        np.testing.assert_allclose(one.entropy, other.entropy, atol=1e-5)
        np.testing.assert_allclose(one.scores, other.scores, atol=1e-5)
        assert one.content.sum() == len(one.targets) - 1  # all but the end token
        assert one.labels.sum() > 0


def test_induced_scores_are_in_range_and_complementary(world):
    from atwu.data.encode import Encoder

    model, tokenizer, rows = world
    read = read_tokens(model, Encoder(tokenizer).encode_rows(rows, what="rows").rows)
    assert induced.available(read) == ["saturation", "importance", "entropy", "labels"]
    for row in read:
        np.testing.assert_allclose(induced.SCORES["saturation"](row) + induced.SCORES["importance"](row), 1.0)
        assert induced.SCORES["entropy"](row).max() == 1.0
    with pytest.raises(ValueError, match="this model folder has none"):
        induced.SCORES["scorer"](read[0])


def test_plain_text_rows_and_nothing_at_all(world):
    model, tokenizer, _ = world
    text = Example((), "Orla lives in house 3 and keeps bees.")
    result = evaluate(model, tokenizer, retain=[text], progress=False)
    assert result.sets["retain"]["rouge_l_recall"].value is None
    assert result.sets["retain"]["rouge_l_recall"].skipped == 1
    assert result.sets["retain"]["probability"].n == 1
    with pytest.raises(ValueError, match="give forget rows, retain rows or both"):
        evaluate(model, tokenizer)
