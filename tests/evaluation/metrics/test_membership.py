"""Membership scores, the attack's AUC with bootstrap weights, and the moments for Min-K%++."""

from __future__ import annotations

import math
import zlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from atwu.data.encode import EncodedRow
from atwu.evaluation.metrics.membership import (
    attack_auc,
    gradient_norms,
    loss_score,
    min_k,
    min_k_plus_plus,
    zlib_score,
)
from atwu.evaluation.teacher_forced import read_tokens
from atwu.modeling.head import OutputHead, target_logps
from atwu.modeling.single_pass import FastPathSupport


def vocabulary_moments(logps):
    """Mean and variance of the log-probability under each next-token distribution; excluded tokens count for nothing."""
    values = np.asarray(logps, dtype=np.float64)
    shares = np.exp(values)
    finite = np.where(shares > 0, values, 0.0)
    mu = (shares * finite).sum(axis=-1)
    return mu, (shares * (finite - mu[..., None]) ** 2).sum(axis=-1)


LOGPS = np.log([0.9, 0.2, 0.6, 0.5, 0.05])


def encoded(seed: int, *, length: int, start: int, vocab: int = 64) -> EncodedRow:
    ids = torch.randint(3, vocab, (length,), generator=torch.Generator().manual_seed(seed)).tolist()
    labels = [-100] * start + ids[start:]
    offsets = [None] * start + [(n, n + 1) for n in range(length - start - 1)] + [None]
    return EncodedRow(tuple(ids), tuple(labels), None, tuple(offsets), has_terminal=True)


ROWS = [encoded(n, length=6 + 3 * n, start=1 + n) for n in range(4)]


@pytest.mark.parametrize(("k", "expected"), [(0.2, 2.995732), (0.4, 2.302585), (0.01, 2.995732)])
def test_min_k(k, expected) -> None:
    assert min_k(LOGPS, k=k) == pytest.approx(expected, abs=1e-6)
    assert min_k(LOGPS, k=1) == pytest.approx(loss_score(LOGPS))


def test_min_k_plus_plus() -> None:
    full = np.log([[0.7, 0.2, 0.1], [0.5, 0.3, 0.2]])
    mu, sigma2 = vocabulary_moments(full)
    np.testing.assert_allclose(mu, [-0.801819, -1.029653], atol=1e-6)
    np.testing.assert_allclose(sigma2, [0.494387, 0.132964], atol=1e-6)
    targets = full[[0, 1], [1, 0]]
    assert min_k_plus_plus(targets, mu, sigma2, k=0.5) == pytest.approx(1.148612, abs=1e-6)
    assert min_k_plus_plus(targets, mu, sigma2, k=1) == pytest.approx((1.148612 - 0.922837) / 2, abs=1e-6)
    assert min_k_plus_plus([-3.0], [-1.0], [0.0]) == pytest.approx(2e3)  # the variance is at least 1e-6


def test_zlib(monkeypatch) -> None:
    text = "Tavi Brook mends çlocks in Kelbury."
    assert zlib_score(0.5, text) == pytest.approx(0.5 / len(zlib.compress(text.encode("utf-8"))))
    assert zlib_score(0.5, text) < zlib_score(0.5, text[:3])
    assert zlib_score(0.5, "") is zlib_score(None, text) is None
    monkeypatch.setattr(zlib, "compress", lambda data: bytes(56))
    assert zlib_score(0.5, text) == pytest.approx(0.008929, abs=1e-6)


def test_rows_without_tokens_have_no_score() -> None:
    assert [loss_score([]), min_k([]), min_k_plus_plus([], [], [])] == [None] * 3


def test_auc_needs_rows_of_both_sets() -> None:
    assert math.isnan(attack_auc([], [1.0]))
    assert math.isnan(attack_auc([1.0], [None]))


SCORES = st.lists(st.sampled_from([-math.inf, 0.0, 0.25, 1.0, 3.5]), min_size=1, max_size=7)


@settings(max_examples=25)
@given(SCORES, SCORES, st.data())
def test_auc_equals_counting_pairs_of_repeated_rows(forget, holdout, data) -> None:
    def pairs(left, right):
        return np.mean([(b > a) + 0.5 * (a == b) for a in left for b in right])

    assert attack_auc(forget, holdout) == pytest.approx(pairs(forget, holdout))
    assert attack_auc(holdout, forget) == pytest.approx(1 - pairs(forget, holdout))
    times = [
        np.array([data.draw(st.lists(st.integers(0, 3), min_size=len(s), max_size=len(s))) for _ in range(3)])
        for s in (forget, holdout)
    ]
    areas = attack_auc(forget, holdout, (times[0], times[1]))
    assert areas.shape == (3,)
    for draw, area in enumerate(areas):
        left, right = np.repeat(forget, times[0][draw]), np.repeat(holdout, times[1][draw])
        expected = pairs(left, right) if left.size and right.size else math.nan
        assert area == pytest.approx(expected, nan_ok=True)


def test_rows_without_a_score_change_nothing() -> None:
    forget, holdout = [0.1, None, 0.2, 0.5], np.array([0.4, 0.6, math.nan, 0.9])
    assert attack_auc(forget, holdout) == pytest.approx(8 / 9)
    weights = np.array([1, 5, 1, 1]), np.array([1, 1, 5, 1])
    assert attack_auc(forget, holdout, weights) == pytest.approx(8 / 9)


@pytest.mark.parametrize(("block", "temperature"), [(9, 1.0), (40, 0.5), (10_000, 1.0)])
def test_variance_of_the_output_layer_equals_a_plain_computation(block, temperature) -> None:
    generator = torch.Generator().manual_seed(1)
    states, weight = (torch.randn(n, 6, generator=generator, dtype=torch.float64) * 3 for n in (9, 23))
    targets = torch.randint(23, (9,), generator=generator)
    plain = (states @ weight.T / temperature).log_softmax(-1)
    out = target_logps(
        states, OutputHead(weight), targets, entropy_temperature=temperature, variance=True, block_elements=block
    )
    mu, sigma2 = vocabulary_moments(plain.numpy())
    np.testing.assert_allclose(out.variance, sigma2, atol=1e-10)
    np.testing.assert_allclose(out.entropy, -mu, atol=1e-10)
    assert target_logps(states, OutputHead(weight), targets, entropy_temperature=1.0).variance is None
    with pytest.raises(ValueError, match="entropy_temperature"):
        target_logps(states, OutputHead(weight), targets, variance=True)


@pytest.mark.parametrize("fused", [True, False])
def test_moments_of_a_pass_equal_the_full_distributions(tiny_llama, monkeypatch, fused) -> None:
    model = tiny_llama(initializer_range=0.3)
    if not fused:
        monkeypatch.setattr("atwu.modeling.forward.fast_path_support", lambda *_: FastPathSupport())
    for row, read in zip(ROWS, read_tokens(model, ROWS, moments=True), strict=True):
        with torch.no_grad():
            full = model(torch.tensor([row.input_ids])).logits[0, row.answer_start - 1 : -1].double().log_softmax(-1)
        mu, sigma2 = vocabulary_moments(full.numpy())
        assert sigma2.min() > 1e-3
        np.testing.assert_allclose(read.entropy, -mu, rtol=1e-5)
        np.testing.assert_allclose(read.variance, sigma2, rtol=1e-4)
        targets = full[torch.arange(len(full)), torch.tensor(row.input_ids[row.answer_start :])].numpy()
        content = read.content
        assert content.sum() == len(content) - 1
        assert min_k_plus_plus(
            read.logps[content], -read.entropy[content], read.variance[content], k=0.4
        ) == pytest.approx(min_k_plus_plus(targets[:-1], mu[:-1], sigma2[:-1], k=0.4), rel=1e-4)
    assert read_tokens(model, ROWS)[0].variance is None


GRADIENT_ROWS = ROWS[:3]


def plain(model, row) -> float:
    """Full logits without the terminal token, one `backward`, norms read off `.grad`."""
    model.zero_grad()
    logps = model(torch.tensor([row.input_ids])).logits[0, :-1].log_softmax(-1)
    losses = [-logps[n, row.input_ids[n + 1]] for n in range(row.answer_start - 1, len(row.input_ids) - 2)]
    (sum(losses) / len(losses)).backward()
    norms = [float(parameter.grad.pow(2).sum().sqrt()) for parameter in model.parameters()]
    model.zero_grad()
    return sum(norms) / len(norms)


@pytest.mark.parametrize("tied", [False, True])
def test_equals_a_plain_backward_pass(tiny_llama, tied) -> None:
    model = tiny_llama(tie_word_embeddings=tied).eval()
    wanted = [plain(model, row) for row in GRADIENT_ROWS]
    assert gradient_norms(model, GRADIENT_ROWS) == pytest.approx(wanted, rel=1e-4)
    assert gradient_norms(model, GRADIENT_ROWS[::-1]) == pytest.approx(wanted[::-1], rel=1e-4)  # nothing accumulates
    with torch.no_grad():
        assert gradient_norms(model, GRADIENT_ROWS[:1]) == pytest.approx(wanted[:1], rel=1e-4)


def test_the_model_is_not_changed(tiny_llama) -> None:
    model = tiny_llama(attention_dropout=0.5).train()
    expected = gradient_norms(model.eval(), GRADIENT_ROWS)
    model.train()
    parameters = list(model.parameters())
    for index, parameter in enumerate(parameters):
        parameter.requires_grad_(index % 2 == 0)
        parameter.grad = torch.full_like(parameter, 0.5) if index % 3 == 0 else None
    assert gradient_norms(model, GRADIENT_ROWS) == pytest.approx(expected)  # frozen parameters count, dropout is off
    assert model.training
    for index, parameter in enumerate(parameters):
        assert parameter.requires_grad == (index % 2 == 0)
        assert (parameter.grad is not None) == (index % 3 == 0)
        assert parameter.grad is None or bool((parameter.grad == 0.5).all())
        parameter.requires_grad_(True)
        parameter.grad = None
    model(torch.tensor([GRADIENT_ROWS[0].input_ids])).logits.sum().backward()
    assert all(parameter.grad is not None for parameter in parameters)  # gradients are kept again
