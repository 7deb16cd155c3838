"""Worked examples, limits and directions, then plain loops over a full softmax, then extreme log-probabilities."""

from __future__ import annotations

import functools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from atwu.methods.component_inputs import LossTerms, selected_mean, token_mean
from atwu.methods.losses.divergence import (
    MaxEntropy,
    WeightedSelfDistillation,
    jensen_shannon,
    js_to_tokens,
    kl,
    self_distillation,
)

F64 = torch.float64
LN2 = math.log(2)
REF = torch.tensor([[0.7, 0.2, 0.1], [0.5, 0.3, 0.2]], dtype=F64).log()
CURRENT = torch.tensor([[0.6, 0.3, 0.1], [0.4, 0.4, 0.2]], dtype=F64).log()
IDS = torch.tensor([[2], [0], [4], [4]])
PAIRS = torch.tensor([[2, 3], [0, 4], [1, 1], [4, 0]])

LOSSES = {
    "kl": kl,
    "jensen_shannon": jensen_shannon,
    "js_to_token": lambda logps, ref: js_to_tokens(logps, IDS),
    "js_to_tokens": lambda logps, ref: js_to_tokens(logps, PAIRS),
    "self_distillation": lambda logps, ref: self_distillation(logps, ref, IDS, beta=3.0),
}


def close(value):
    return pytest.approx(value, abs=1e-6)


def random_logits(seed=0, tokens=4, vocabulary=5, scale=2.0):
    return scale * torch.randn(tokens, vocabulary, generator=torch.Generator().manual_seed(seed), dtype=F64)


def gradient(loss, logits, ref):
    logits = logits.clone().requires_grad_()
    values = loss(logits.log_softmax(-1), ref.log_softmax(-1))
    return values, torch.autograd.grad(values.sum(), logits)[0]


def test_jensen_shannon():
    assert jensen_shannon(CURRENT, REF).tolist() == close([0.006959, 0.006367])
    assert jensen_shannon(CURRENT, REF).mean().item() == close(0.006663)
    assert torch.allclose(jensen_shannon(CURRENT, REF), jensen_shannon(REF, CURRENT), rtol=0, atol=1e-15)


def test_js_to_a_refusal_in_turn():
    logps = torch.tensor([[0.7, 0.1, 0.1, 0.1], [0.2, 0.5, 0.2, 0.1], [0.25] * 4], dtype=F64).log()
    values = js_to_tokens(logps, torch.tensor([[1], [2], [1]]))
    assert values.tolist() == close([0.525597, 0.422810, 0.380396])
    assert values.mean().item() == close(0.442934)
    both = torch.tensor([[1, 2]]).expand(3, 2)
    assert js_to_tokens(logps, both).tolist() == close([0.704621, 0.291998, 0.414218])


def test_duplicate_tokens_count_once():
    logps = random_logits().log_softmax(-1)
    assert torch.equal(js_to_tokens(logps, IDS.expand(4, 3)), js_to_tokens(logps, IDS))
    assert torch.equal(js_to_tokens(logps, PAIRS.flip(1)), js_to_tokens(logps, PAIRS))


@pytest.mark.parametrize(
    ("beta", "expected", "mean"), [(10.0, [2.438231, 1.676433], 2.057332), (2.0, [1.480571, 1.407606], 1.444088)]
)
def test_self_distillation(beta, expected, mean):
    logits = torch.tensor([[3, 1, 0], [0, 2, 1]], dtype=F64)
    logps, ids = logits.log_softmax(-1), torch.tensor([[0], [1]])
    values = self_distillation(logps, logps, ids, beta=beta)
    assert values.tolist() == close(expected)
    assert torch.allclose(self_distillation(logps, logits, ids, beta=beta), values, rtol=0, atol=1e-15)
    mask = torch.ones(1, 2, dtype=torch.bool)
    assert token_mean(values[None], mask).item() == close(mean)
    nouns = torch.tensor([[0.0, 1.0]], dtype=F64)
    assert selected_mean(nouns * values, nouns, mask).item() == close(expected[1])


def weighted(logps, ref, weights, beta, ids=IDS):
    loss = WeightedSelfDistillation(beta=beta)
    own, ref_own = (each.gather(1, ids).squeeze(1) for each in (logps, ref))
    rest = loss.from_distributions(logps, ref, ids)
    return loss.values(LossTerms(own, torch.ones_like(own, dtype=torch.bool), ref_own, distance=rest), weights)


def test_weighted_self_distillation_equals_a_beta_per_token():
    logits, ref, beta = random_logits(1), random_logits(2), 6.0
    weights = torch.tensor([0.0, 0.3, 0.7, 1.0], dtype=F64)
    values, grad = gradient(lambda logps, ref: weighted(logps, ref, weights, beta), logits, ref)
    for token, weight in enumerate(weights.tolist()):
        one = slice(token, token + 1)
        alone = functools.partial(self_distillation, ids=IDS[one], beta=beta * weight)
        expected, moved = gradient(alone, logits[one], ref[one])
        assert torch.allclose(values[one], expected, rtol=0, atol=1e-14)
        assert torch.allclose(grad[one], moved, rtol=0, atol=1e-14)


def test_weight_0_distills_the_reference_and_weights_have_gradient():
    logits, ref = random_logits(1), random_logits(2)
    _, still = gradient(lambda logps, ref: weighted(logps, ref, torch.zeros(4, dtype=F64), 20.0), ref, ref)
    assert still.abs().max() < 1e-15
    weights = torch.tensor([0.2, 0.4, 0.6, 0.8], dtype=F64, requires_grad=True)
    logps, start = logits.log_softmax(-1), ref.log_softmax(-1)
    assert torch.autograd.gradcheck(lambda w: weighted(logps, start, w, 3.0), (weights,))


def test_token_with_reference_probability_1_is_finite():
    logps = torch.tensor([[0.0, -40.0, -41.0]])
    rest = self_distillation(logps, logps, torch.tensor([[0]]), beta=math.inf)
    assert torch.isfinite(rest).all()
    kept, pushed = (weighted(logps, logps, torch.tensor([weight]), 40.0, torch.tensor([[0]])) for weight in (0.0, 1.0))
    assert kept.item() == pytest.approx(0, abs=1e-4)
    assert pushed.item() == pytest.approx(rest.item(), rel=1e-4)


@given(seed=st.integers(0, 10_000), scale=st.floats(0.01, 300.0), dtype=st.sampled_from([torch.float32, F64]))
def test_jensen_shannon_lies_between_0_and_ln_2(seed, scale, dtype):
    logps = random_logits(seed, scale=scale).to(dtype).log_softmax(-1)
    ref = random_logits(seed + 1, scale=scale).to(dtype).log_softmax(-1)
    slack = 4 * torch.finfo(dtype).eps
    for values in (jensen_shannon(logps, ref), js_to_tokens(logps, IDS)):
        assert values.min() >= -slack
        assert values.max() <= LN2 + slack


def test_the_reference_gets_no_gradient():
    logps = CURRENT.clone().requires_grad_()
    for loss in (kl, jensen_shannon, lambda a, b: self_distillation(a, b, IDS[1:3] % 3, beta=1.0)):
        ref = REF.clone().requires_grad_()
        assert torch.autograd.grad(loss(logps, ref).sum(), ref, allow_unused=True) == (None,)


@pytest.mark.parametrize("low", [-1e4, -math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_impossible_tokens(low, dtype):
    """Two tokens share the probability, all others have 0: padded vocabularies and saturated models."""
    logits = torch.full((4, 5), low, dtype=dtype)
    logits[:, :2] = torch.tensor([0.0, 1.0], dtype=dtype)
    swapped = logits.clone()
    swapped[:, :2] = logits[:, :2].flip(1)
    for name, loss in LOSSES.items():
        for ref in (logits, swapped):
            values, grad = gradient(loss, logits, ref)
            assert torch.isfinite(values).all(), name
            assert torch.isfinite(grad).all(), name
            assert not grad[:, 3].any(), name
    small, small_ref = logits[:, :2].double(), swapped[:, :2].double()
    for loss in (kl, jensen_shannon):
        assert gradient(loss, logits, swapped)[0].tolist() == pytest.approx(
            gradient(loss, small, small_ref)[0].tolist(), abs=1e-6
        )
    assert gradient(LOSSES["js_to_token"], logits, logits)[0].tolist()[2:] == pytest.approx([LN2, LN2], abs=1e-6)


@pytest.mark.parametrize("low", [-1e4, -math.inf])
def test_distributions_without_overlap(low):
    logits = torch.tensor([[0.0, low, low]])
    ref = torch.tensor([[low, 0.0, low]])
    values, grad = gradient(jensen_shannon, logits, ref)
    assert values.item() == pytest.approx(LN2, abs=1e-6)
    assert torch.isfinite(grad).all()
    values, grad = gradient(kl, logits, ref)
    assert values.item() == -low
    assert grad.tolist() == [[1.0, -1.0, 0.0]]
    values, grad = gradient(lambda a, b: self_distillation(a, b, torch.tensor([[0]]), beta=1.0), logits, ref)
    assert values.item() == -low
    assert grad.tolist() == [[1.0, -1.0, 0.0]]


def test_distance_to_a_certain_target_is_0():
    logps = torch.tensor([[0.0, -1e4, -math.inf]]).requires_grad_()
    value = js_to_tokens(logps, torch.tensor([[0]]))
    (grad,) = torch.autograd.grad(value, logps)
    assert value.item() == 0.0
    assert grad[0].tolist() == close([-LN2 / 2, 0.0, 0.0])


def test_float32_keeps_small_distances():
    """Close to the reference; the slack is one rounding step of a log-probability near -8."""
    logits = random_logits(4, vocabulary=2000, scale=1.0)
    moved = logits + 0.01 * random_logits(5, vocabulary=2000, scale=1.0)
    for name in ("kl", "jensen_shannon"):
        exact, exact_grad = gradient(LOSSES[name], moved, logits)
        values, grad = gradient(LOSSES[name], moved.float(), logits.float())
        assert torch.allclose(values.double(), exact, rtol=0, atol=2**-20)
        assert (grad.double() - exact_grad).norm() < 1e-3 * exact_grad.norm()


def test_in_max_entropy_an_impossible_token_costs_a_finite_amount_without_gradient():
    logits = torch.tensor([[0.0, 1.0, -math.inf]], requires_grad=True)
    value = MaxEntropy().from_distributions(logits.log_softmax(-1), None, None)
    value.sum().backward()
    assert value.isfinite().all()
    assert logits.grad[:, :2].isfinite().all()
