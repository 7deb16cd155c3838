"""The chunked output layer equals the plain one, in value and gradient, whatever the block size."""

from __future__ import annotations

import pytest
import torch

from atwu.modeling.head import OutputHead, target_logps


def problem(dtype: torch.dtype, *, tokens: int = 9, hidden: int = 6, vocab: int = 23, bias: bool = True):
    generator = torch.Generator().manual_seed(3)
    states = torch.randn(tokens, hidden, generator=generator, dtype=dtype).requires_grad_()
    weight = torch.randn(vocab, hidden, generator=generator, dtype=dtype).requires_grad_()
    offset = torch.randn(vocab, generator=generator, dtype=dtype).requires_grad_() if bias else None
    return states, weight, offset, torch.randint(vocab, (tokens,), generator=generator)


def plain(states, weight, bias, targets, *, scale=1.0, softcap=None):
    logits = states @ weight.T
    if bias is not None:
        logits = logits + bias
    logits = logits * scale
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    return logits, torch.log_softmax(logits, -1)[torch.arange(len(targets)), targets]


@pytest.mark.parametrize("block", [1, 20])
@pytest.mark.parametrize(("scale", "softcap"), [(1.0, None), (0.25, None), (2.0, 1.5)])
def test_gradcheck_in_float64(block, scale, softcap):
    states, weight, bias, targets = problem(torch.float64, tokens=4, vocab=11)

    def function(states, weight, bias):
        head = OutputHead(weight, bias, scale, softcap)
        return target_logps(states, head, targets, block_elements=block).logps

    # A second backward pass recomputes the stored block, equal up to rounding.
    assert torch.autograd.gradcheck(function, (states, weight, bias), nondet_tol=1e-12)


@pytest.mark.parametrize("block", [7, 10_000])
@pytest.mark.parametrize("bias", [True, False])
def test_matches_plain_computation_to_1e_6_in_float32(block, bias):
    states, weight, offset, targets = problem(torch.float32, tokens=40, hidden=32, vocab=501, bias=bias)
    with torch.no_grad():
        weight *= 0.2
    upstream = torch.randn(40, generator=torch.Generator().manual_seed(1))
    logits, expected = plain(states, weight, offset, targets)
    inputs = [t for t in (states, weight, offset) if t is not None]
    wanted = torch.autograd.grad((expected * upstream).sum(), inputs)
    out = target_logps(
        states, OutputHead(weight, offset), targets, predictions=True, entropy_temperature=1.0, block_elements=block
    )
    got = torch.autograd.grad((out.logps * upstream).sum(), inputs)
    torch.testing.assert_close(out.logps, expected, atol=2e-6, rtol=1e-6)
    for left, right in zip(got, wanted, strict=True):
        torch.testing.assert_close(left, right, atol=1e-6, rtol=1e-5)
    assert torch.equal(out.predictions, logits.argmax(-1))
    torch.testing.assert_close(
        out.entropy, torch.distributions.Categorical(logits=logits).entropy(), atol=5e-6, rtol=1e-5
    )


def test_greedy_token_is_the_first_of_equal_ones():
    states = torch.zeros(3, 4)
    out = target_logps(
        states, OutputHead(torch.ones(10, 4)), torch.tensor([0, 5, 9]), predictions=True, block_elements=6
    )
    assert out.predictions.tolist() == [0, 0, 0]
    torch.testing.assert_close(out.logps, torch.full((3,), -torch.log(torch.tensor(10.0)).item()))


def test_extreme_logits_stay_finite():
    states, weight = torch.full((2, 1), 1e4), torch.tensor([[1.0], [-1.0], [0.0]])
    out = target_logps(states, OutputHead(weight), torch.tensor([0, 1]), entropy_temperature=1.0, block_elements=2)
    assert out.logps.tolist() == [0.0, -2e4]
    assert out.entropy.tolist() == [0.0, 0.0]


def test_blocks_have_at_most_the_allowed_logits(monkeypatch):
    seen = []
    original = OutputHead.logits

    def spy(*args):
        logits = original(*args)
        seen.append(logits.numel())
        return logits

    monkeypatch.setattr(OutputHead, "logits", spy)
    states, weight, _, targets = problem(torch.float32, tokens=50, vocab=1000)
    target_logps(states, OutputHead(weight), targets, block_elements=2000).logps.sum().backward()
    assert max(seen) <= 2000
    assert sum(seen) == 2 * 50 * 1000 - 2000  # once forward, once backward except for the stored last block


def test_half_precision_products_follow_autocast():
    states, weight, _, targets = problem(torch.float32, tokens=20, hidden=16, vocab=40)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = target_logps(states, OutputHead(weight), targets, block_elements=100)
        logits = torch.nn.functional.linear(states, weight)
    assert out.logps.dtype == torch.float32
    expected = logits.float().log_softmax(-1)[torch.arange(20), targets]
    torch.testing.assert_close(out.logps, expected, atol=5e-2, rtol=2e-2)
    out.logps.sum().backward()
    assert weight.grad.dtype == torch.float32
    assert torch.isfinite(weight.grad).all()
