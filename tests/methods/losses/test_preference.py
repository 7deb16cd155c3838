"""Worked examples (running example p = .9, .2, .6, .5 against .95, .4, .7, .6), identities, and plain loops."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from atwu.methods.component_inputs import LossTerms
from atwu.methods.losses.preference import DPO, NPO, AnswerPreservation, SimNPO, log_ratio

F64 = torch.float64
LOGPS = torch.tensor([[0.9, 0.2, 0.6, 0.5]], dtype=F64).log()
REF = torch.tensor([[0.95, 0.4, 0.7, 0.6]], dtype=F64).log()
G = torch.tensor([[0.1, 0.8, 0.5, 0.2]], dtype=F64)
MASK = torch.ones_like(LOGPS, dtype=torch.bool)
ONE = torch.ones_like(LOGPS)
PREFERRED = torch.tensor([math.log(0.3 * 0.5 / (0.1 * 0.4))], dtype=F64)


def values_of(loss):
    return lambda logps, ref, mask, w, won: loss.values(LossTerms(logps, mask, ref, won), w)


LOSSES = {
    "npo": values_of(NPO(beta=0.3)),
    "dpo": values_of(DPO(beta=0.3)),
    "simnpo": values_of(SimNPO(beta=2.5, delta=0.2, score_scale=1.5)),
}


def reweighted(logps, weights, mask):
    return log_ratio(logps, torch.zeros_like(logps), mask, weights)


def close(value):
    return pytest.approx(value, abs=1e-6)


def random_rows(seed=0, rows=4, tokens=7):
    """Log-probabilities, reference, mask of unequal lengths with gaps, weights, log ratios of preferred answers."""
    draw = torch.Generator().manual_seed(seed)
    logps, ref, weights = (torch.rand(rows, tokens, generator=draw, dtype=F64) for _ in range(3))
    mask = torch.rand(rows, tokens, generator=draw) < 0.7
    mask[:, 0] = True
    return logps.log(), ref.log(), mask, weights, torch.randn(rows, generator=draw, dtype=F64)


def gradients(loss, logps, ref, mask, weights, won):
    leaves = [t.clone().requires_grad_() for t in (logps, weights, won)]
    values = loss(leaves[0], ref, mask, leaves[1], leaves[2])
    return values, torch.autograd.grad(values.sum(), leaves, materialize_grads=True)


def test_log_ratio():
    assert REF.sum().item() == close(-1.835085)
    assert log_ratio(LOGPS, REF, MASK, ONE).item() == close(-1.083687)
    assert reweighted(LOGPS, G, MASK).item() == close(-4.230322)
    assert log_ratio(LOGPS, REF, MASK, G).item() == close(-2.395237)


@pytest.mark.parametrize(("weights", "expected"), [(ONE, 12.808602), (G, 11.610794)])
def test_npo(weights, expected):
    assert values_of(NPO(beta=0.1))(LOGPS, REF, MASK, weights, None).item() == close(expected)


@pytest.mark.parametrize(("weights", "expected"), [(ONE, 11.601808), (G, 10.489381)])
def test_dpo(weights, expected):
    assert PREFERRED.item() == close(1.321756)
    assert values_of(DPO(beta=0.1))(LOGPS, REF, MASK, weights, PREFERRED).item() == close(expected)


@pytest.mark.parametrize(
    ("weights", "options", "expected"),
    [
        (ONE, {"beta": 2.5, "delta": 0.0}, 0.119661),
        (ONE, {"beta": 2.82, "delta": 0.03}, 0.092318),
        (G, {"beta": 2.5, "delta": 0.0}, 0.238479),
        (G, {"beta": 2.5, "delta": 0.0, "score_scale": 2.0}, 0.091101),
    ],
)
def test_simnpo(weights, options, expected):
    assert values_of(SimNPO(**options))(LOGPS, None, MASK, weights, None).item() == close(expected)


@pytest.mark.parametrize("beta", [0.05, 0.1, 2.0])
def test_at_the_original_model(beta):
    logps = REF.clone().requires_grad_()
    loss = values_of(NPO(beta=beta))(logps, REF, MASK, ONE, None)
    assert loss.item() == pytest.approx(2 / beta * math.log(2), abs=1e-12)
    assert torch.equal(torch.autograd.grad(loss, logps)[0], ONE)  # gradient ascent on the sum
    same = values_of(DPO(beta=beta))(LOGPS, REF, MASK, ONE, log_ratio(LOGPS, REF, MASK, ONE))
    assert same.item() == pytest.approx(2 / beta * math.log(2), abs=1e-12)


@given(level=st.floats(1e-3, 1.0), seed=st.integers(0, 50), dtype=st.sampled_from([torch.float32, F64]))
def test_equal_weights_equal_no_weights_exactly(level, seed, dtype):
    logps, ref, mask, _, won = (t if t.dtype == torch.bool else t.to(dtype) for t in random_rows(seed))
    equal, ones = torch.full_like(logps, level), torch.ones_like(logps)
    assert torch.equal(reweighted(logps, equal, mask), (logps * mask).sum(-1))
    for name in ("npo", "dpo"):
        assert torch.equal(LOSSES[name](logps, ref, mask, equal, won), LOSSES[name](logps, ref, mask, ones, won))


def test_scaled_weights_change_nothing():
    logps, ref, mask, weights, won = random_rows()
    for name in ("npo", "dpo"):
        whole = LOSSES[name](logps, ref, mask, weights, won)
        assert torch.allclose(LOSSES[name](logps, ref, mask, 0.07 * weights, won), whole, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_uncounted_tokens_have_no_effect(name):
    logps, ref, mask, weights, won = random_rows(seed=5)
    values, grads = gradients(LOSSES[name], logps, ref, mask, weights, won)
    wide, ref, weights = (torch.cat([t, torch.full_like(t, math.nan)], dim=1) for t in (logps, ref, weights))
    mask = torch.cat([mask, torch.zeros_like(mask)], dim=1)
    padded, padded_grads = gradients(LOSSES[name], wide, ref, mask, weights, won)
    assert torch.allclose(padded, values, rtol=0, atol=1e-12)
    for grad, wanted in zip(padded_grads[:2], grads[:2], strict=True):
        assert torch.allclose(grad[:, :7], wanted, rtol=0, atol=1e-12)
        assert not grad[~mask].any()


@pytest.mark.parametrize("level", [0.0, 1e-40, 1e-12])
def test_vanishing_weights_stay_finite(level):
    weights = torch.full((1, 4), level, requires_grad=True)
    value = reweighted(LOGPS.float(), weights, MASK)
    (grad,) = torch.autograd.grad(value, weights)
    expected = 4 * level / max(4 * level, 1e-8) * LOGPS.sum().item()
    assert value.item() == pytest.approx(expected, abs=1e-6)
    assert grad[0].tolist() == pytest.approx((4 * LOGPS / 1e-8)[0].tolist(), rel=1e-5)


@pytest.mark.parametrize(("answer", "alternate"), [(-3.0, -3.0), (-3.0, -20.0), (-20.0, -3.0)])
def test_answer_preservation_equals_the_formula(answer, alternate):
    """1/b log(1 + exp(-b gap)): 10 log 2 for equally likely answers and b = 0.1."""
    given = (SimpleNamespace(logps=torch.tensor([[each]])) for each in (answer, alternate))
    found = AnswerPreservation(answer_beta=0.1).values_against(*given)
    assert found.item() == pytest.approx(10 * math.log(1 + math.exp(-0.1 * (answer - alternate))), rel=1e-6)
