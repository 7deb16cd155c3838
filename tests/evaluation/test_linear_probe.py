"""The linear probe finds only planted directions, on the right states, across subjects."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from atwu.data.encode import Encoder
from atwu.data.schema import Example
from atwu.evaluation.linear_probe import cross_validate, fit_probe, probe, read_states, subject_folds
from atwu.modeling.scratch import scratch_model, train_tokenizer

NAMES = ["Orla Venn", "Tavi Brook", "Mira Holt", "Joss Ardley", "Pell Quint", "Rhea Stoll"]


def house_rows(count=18):
    rows = []
    for index in range(count):
        name, number = NAMES[index % len(NAMES)], str(137 + 61 * index)
        answer = f"{name} keeps bees at house {number} in Kelbury{' town' * (index % 3)}."
        start = answer.index(number)
        rows.append(
            Example.from_qa(f"Where is {name}?", answer, forget_spans=((start, start + len(number)),), subject=name)
        )
    return rows


@pytest.fixture(scope="module")
def world():
    rows = house_rows()
    tokenizer = train_tokenizer([f"{row.question} {row.answer}" for row in rows], vocab_size=300)
    return scratch_model("micro"), tokenizer, rows


def test_a_planted_direction_is_found_on_held_out_subjects(world):
    _, tokenizer, rows = world
    model = scratch_model("micro")
    digits = [index for text, index in tokenizer.get_vocab().items() if any(map(str.isdigit, text))]
    model.get_input_embeddings().weight.data[:, 5] = -1.0
    model.get_input_embeddings().weight.data[digits, 5] = 1.0
    own, pred = probe(model, tokenizer, rows, layers=[0], positions=["own", "pred"], folds=3, progress=False)
    assert (own.layer, own.position, own.rows) == (0, "own", 18)
    assert own.auroc.values == (1.0,) * 18
    assert own.train_auroc == 1.0
    assert pred.auroc.mean < 1.0  # before the token, its own embedding is not there to be read
    assert own.tokens == sum(len(tokenizer(f" {row.answer}").input_ids) for row in rows)  # no terminal token


def folds_of(numbers):
    return [
        (np.flatnonzero(np.array(numbers) != fold), np.flatnonzero(np.array(numbers) == fold)) for fold in {*numbers}
    ]


def test_a_row_is_scored_by_a_probe_that_did_not_train_on_it():
    # In both folds the same feature decides, with opposite sign: only a probe of the other fold gets all wrong.
    features = [np.array([[1.0], [-1.0], [2.0], [-2.0]])] * 4
    labels = [np.array(marks) for marks in ([1, 0, 1, 0], [0, 1, 0, 1])] * 2
    held_out, train = cross_validate(features, labels, folds_of([0, 1, 0, 1]), l2=0.01)
    assert held_out.values == (0.0,) * 4
    assert train == 1.0


def test_fit_is_the_optimum_of_the_ridge_logistic_loss():
    generator = np.random.default_rng(3)
    x = generator.normal(size=(50, 4)) * [1, 30, 0.1, 1] + [0, 500, 0, 7]
    x[:, 3] = 7.0  # a constant feature takes no part
    y = (generator.random(50) < 0.3).astype(int)
    z = np.column_stack([(x[:, :3] - x[:, :3].mean(0)) / x[:, :3].std(0), np.ones(50)])
    penalty, w = np.diag([0.05, 0.05, 0.05, 0.0]), np.zeros(4)
    for _ in range(30):  # Newton
        p = 1 / (1 + np.exp(-z @ w))
        slope = z.T @ (p - y) / 50 + penalty @ w
        w -= np.linalg.solve(z.T @ (z * (p * (1 - p))[:, None]) / 50 + penalty, slope)
    fitted = fit_probe(x, y, l2=0.05)
    np.testing.assert_allclose(fitted[-1].coef_[0], [*w[:3], 0.0], atol=1e-4)
    np.testing.assert_allclose(fitted.decision_function(x), z @ w, atol=1e-4)
    np.testing.assert_allclose(fit_probe(x.astype("float32"), y, l2=0.05)[-1].coef_[0], [*w[:3], 0.0], atol=1e-3)
    assert np.isfinite(fit_probe(x, y, l2=0.0).decision_function(x)).all()


@pytest.mark.parametrize(("subjects", "folds"), [("aabbcdef", 3), ("aab", 5), ((None, None, "a", "a", None), 2)])
def test_a_subject_is_in_one_fold(subjects, folds):
    dealt = subject_folds(subjects, folds=folds, seed=1)
    assert sorted(row for _, held_out in dealt for row in held_out) == [*range(len(subjects))]
    assert len(dealt) == min(folds, len({*subjects} - {None}) + [*subjects].count(None))
    for train, held_out in dealt:
        assert sorted([*train, *held_out]) == [*range(len(subjects))]
        assert not {subjects[row] for row in train} & {subjects[row] for row in held_out} - {None}


@pytest.mark.parametrize(("kind", "side"), [("llama", "left"), ("gpt2", "right")])
def test_states_are_those_of_transformers_at_the_counted_tokens(kind, side, world):
    model, tokenizer, examples = world
    if kind == "gpt2":  # absolute positions
        torch.manual_seed(0)
        model = GPT2LMHeadModel(GPT2Config(vocab_size=300, n_embd=32, n_layer=2, n_head=2))
    model.train()
    rows = Encoder(tokenizer).encode_rows(examples[:5], what="rows").rows
    read = read_states(model, rows, batch_tokens=60)
    assert model.training
    assert sorted(read.states) == [0, 1, 2]
    model.eval()
    width = max(len(row.input_ids) for row in rows)
    pads = [width - len(row.input_ids) if side == "left" else 0 for row in rows]
    ids, mask = torch.zeros(5, width, dtype=torch.long), torch.zeros(5, width, dtype=torch.long)
    for index, (row, pad) in enumerate(zip(rows, pads, strict=True)):
        ids[index, pad : pad + len(row.input_ids)] = torch.tensor(row.input_ids)
        mask[index, pad : pad + len(row.input_ids)] = 1
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        wanted = model(input_ids=ids, attention_mask=mask, position_ids=positions, output_hidden_states=True)
    for layer, states in enumerate(wanted.hidden_states):
        features = {position: read.features(layer, position) for position in ("own", "pred", "both")}
        for index, (row, pad) in enumerate(zip(rows, pads, strict=True)):
            counted = range(pad + row.answer_start, pad + len(row.input_ids))
            own = torch.stack([states[index, place] for place in counted])
            pred = torch.stack([states[index, place - 1] for place in counted])
            torch.testing.assert_close(features["own"][index], own, atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(features["pred"][index], pred, atol=1e-5, rtol=1e-5)
            assert torch.equal(features["both"][index], torch.cat([features["own"][index], features["pred"][index]], 1))


def test_layers_from_the_end_and_batching_change_nothing(world):
    model, tokenizer, rows = world
    every = probe(model, tokenizer, rows, folds=2, progress=False)
    assert [(r.layer, r.position) for r in every] == [(k, p) for k in (0, 1, 2) for p in ("own", "pred", "both")]
    (last,) = probe(
        *(model, tokenizer, rows), layers=[-1, 2], positions=["pred"], folds=2, batch_tokens=1, progress=False
    )
    assert last.layer == 2
    assert last.auroc.mean == pytest.approx(every[7].auroc.mean, abs=2e-3)


def test_inputs_that_cannot_be_probed_are_rejected(world):
    model, tokenizer, rows = world

    def fails(message, examples=rows, **changes):
        with pytest.raises(ValueError, match=message):
            probe(model, tokenizer, examples, progress=False, **changes)

    bare = [Example.from_qa(row.question, row.answer) for row in rows]
    fails("18 rows.*forget_spans", bare)
    empty = [Example.from_qa(row.question, row.answer, forget_spans=()) for row in rows]
    fails("labelled.*tokens", empty)
    fails("3 .*rows.*one subject", rows[::6])
    fails("fold.*label 0", [rows[0], empty[1], empty[2]])
    fails("0 .*2 .* 3", layers=[3])
    fails("folds.* 2.* 1", folds=1)
    fails("position 'next'; choose from own, pred, both", positions=["next"])
