"""Blockwise distances equal the same distances of full logits, in value and gradient, for any block size."""

from __future__ import annotations

import functools

import pytest
import torch

from atwu.methods.losses.divergence import jensen_shannon, js_to_tokens, kl, self_distillation
from atwu.modeling import head as head_module
from atwu.modeling.distribution_distance import Comparison, Comparisons, Teacher, compare
from atwu.modeling.head import OutputHead

TOKENS, HIDDEN, VOCAB = 7, 5, 13
DISTANCES = {
    "kl": (lambda logps, ref, ids: kl(logps, ref), True, 0),
    "js": (lambda logps, ref, ids: jensen_shannon(logps, ref), True, 0),
    "js_to_tokens": (lambda logps, ref, ids: js_to_tokens(logps, ids), False, 1),
    "js_to_two_tokens": (lambda logps, ref, ids: js_to_tokens(logps, ids), False, 2),
    "self_distillation": (functools.partial(self_distillation, beta=3.0), True, 1),
}
SHAPES = [(True, 1.0, None), (False, 0.25, None), (True, 2.0, 1.5)]


def problem(*, bias=True, scale=1.0, softcap=None, tokens=TOKENS, dtype=torch.float64):
    """Return leaves (hidden, weight, bias), their head, and another head with states as teacher."""
    generator = torch.Generator().manual_seed(3)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    leaves = [draw(tokens, HIDDEN), draw(VOCAB, HIDDEN), *([draw(VOCAB)] if bias else [])]
    for leaf in leaves:
        leaf.requires_grad_()
    head = OutputHead(leaves[1], leaves[2] if bias else None, scale, softcap)
    teacher = Teacher(
        draw(tokens, HIDDEN), OutputHead(draw(VOCAB, HIDDEN), draw(VOCAB) if bias else None, scale, softcap)
    )
    return leaves, head, teacher


def plain_logits(states, head):
    logits = torch.nn.functional.linear(states, head.weight, head.bias) * head.scale
    return logits if head.softcap is None else head.softcap * torch.tanh(logits / head.softcap)


def comparison_of(name, teacher, tokens=TOKENS):
    distance, needs_teacher, k = DISTANCES[name]
    ids = torch.randint(VOCAB, (tokens, k), generator=torch.Generator().manual_seed(9)) if k else None
    return Comparison(distance, teacher if needs_teacher else None, ids)


def distances(hidden, head, comparison, **options):
    targets = torch.zeros(len(hidden), dtype=torch.long)
    return compare(hidden, head, Comparisons(targets, ((slice(0, len(hidden)), comparison),)), **options)[:, 1]


def value_and_gradient(values, leaves):
    upstream = torch.linspace(-1.0, 2.0, values.shape[0]).to(values)
    return values, *torch.autograd.grad((values * upstream).sum(), leaves)


@pytest.mark.parametrize(
    ("block", "product"), [(1, 1), (1, 3 * VOCAB), (2 * VOCAB, 5 * VOCAB), (3 * VOCAB, 1), (1, None), (10**9, None)]
)
@pytest.mark.parametrize(("bias", "scale", "softcap"), SHAPES)
@pytest.mark.parametrize("name", DISTANCES)
def test_equals_full_logits_in_value_and_every_gradient(name, bias, scale, softcap, block, product):
    leaves, head, teacher = problem(bias=bias, scale=scale, softcap=softcap)
    comparison = comparison_of(name, teacher)
    distance, needs_teacher, _ = DISTANCES[name]
    logps = plain_logits(leaves[0], head).log_softmax(-1)
    ref = plain_logits(teacher.states, teacher.head).log_softmax(-1) if needs_teacher else None
    wanted = value_and_gradient(distance(logps, ref, comparison.ids), leaves)
    found = distances(leaves[0], head, comparison, block_elements=block, product_elements=product)
    for left, right in zip(value_and_gradient(found, leaves), wanted, strict=True):
        torch.testing.assert_close(left, right, atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("name", DISTANCES)
def test_a_reference_given_as_logits_equals_one_given_as_hidden_states(name):
    leaves, head, teacher = problem(softcap=2.0)
    as_logits = Teacher(plain_logits(teacher.states, teacher.head), None)
    results = [
        value_and_gradient(distances(leaves[0], head, comparison_of(name, one), block_elements=2 * VOCAB), leaves)
        for one in (teacher, as_logits)
    ]
    targets, span = torch.zeros(TOKENS, dtype=torch.long), slice(0, TOKENS)
    of_logits = Comparisons(targets, ((span, comparison_of(name, teacher)),))
    found = of_logits.of(plain_logits(leaves[0], head), span, torch.float64)[:, 1]
    results.append(value_and_gradient(found, leaves))
    for other in results[1:]:
        for left, right in zip(results[0], other, strict=True):
            torch.testing.assert_close(left, right, atol=1e-12, rtol=1e-10)


def test_logits_get_no_gradient_from_the_teacher():
    leaves, head, teacher = problem()
    states = teacher.states.clone().requires_grad_()
    watched = Teacher(states, OutputHead(teacher.head.weight.clone().requires_grad_(), teacher.head.bias))
    distances(leaves[0], head, comparison_of("kl", watched)).sum().backward()
    assert states.grad is None
    assert watched.head.weight.grad is None


@pytest.mark.parametrize("frozen", [(0,), (1, 2)])
def test_frozen_parts_get_no_gradient_and_the_others_the_same(frozen):
    leaves, head, teacher = problem()
    comparison = comparison_of("js", teacher)
    everything = value_and_gradient(distances(leaves[0], head, comparison, block_elements=30), leaves)[1:]
    for index in frozen:
        leaves[index].requires_grad_(False)
    rest = [index for index in range(3) if index not in frozen]
    values = distances(leaves[0], head, comparison, block_elements=30)
    got = value_and_gradient(values, [leaves[index] for index in rest])[1:]
    for index, gradient in zip(rest, got, strict=True):
        assert torch.equal(gradient, everything[index])


def test_no_tokens_give_no_values_and_zero_gradients():
    leaves, head, teacher = problem(tokens=0)
    values = distances(leaves[0], head, comparison_of("kl", teacher, 0))
    assert values.shape == (0,)
    values.sum().backward()
    assert not leaves[1].grad.any()
    assert not leaves[2].grad.any()


def test_distance_of_equal_models_is_0_in_any_precision():
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        leaves, head, _ = problem(dtype=dtype)
        teacher = Teacher(leaves[0].detach(), head.frozen())
        for name in ("kl", "js"):
            values = distances(leaves[0], head, comparison_of(name, teacher))
            assert values.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
            torch.testing.assert_close(values, torch.zeros_like(values), atol=1e-7, rtol=0.0)


@pytest.mark.parametrize("name", ["kl", "js_to_tokens"])
def test_autocast_multiplies_the_same_numbers_forward_and_backward(name, monkeypatch):
    leaves, head, teacher = problem(dtype=torch.float32)
    seen = {"forward": [], "backward": []}
    original, stage = OutputHead.product, "forward"

    def spy(self, states, dtype):
        product = original(self, states, dtype)
        seen[stage].append(product.detach().clone())
        return product

    monkeypatch.setattr(head_module.OutputHead, "product", spy)
    comparison = comparison_of(name, teacher)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        values = distances(leaves[0], head, comparison, block_elements=VOCAB, product_elements=2 * VOCAB)
    stage = "backward"
    got = value_and_gradient(values, leaves)
    assert len(seen["forward"]) == len(seen["backward"]) == 4 * (1 + (comparison.teacher is not None))
    for left, right in zip(seen["forward"], seen["backward"], strict=True):
        assert torch.equal(left, right)
        assert left.dtype == torch.bfloat16
    # The gradient is that of the rounded products: autograd over them agrees up to the rounding of the backward products.
    product = (leaves[0].bfloat16() @ head.weight.bfloat16().T).float()
    ref = None
    if comparison.teacher is not None:
        raw = (teacher.states.bfloat16() @ teacher.head.weight.bfloat16().T).float()
        ref = (raw + teacher.head.bias).log_softmax(-1)
    wanted = value_and_gradient(DISTANCES[name][0]((product + head.bias).log_softmax(-1), ref, comparison.ids), leaves)
    torch.testing.assert_close(got[0], wanted[0], atol=1e-6, rtol=1e-6)
    for left, right in zip(got[1:], wanted[1:], strict=True):
        assert left.dtype == torch.float32
        assert (left - right).norm() < 0.02 * right.norm()


def test_products_and_blocks_have_the_sizes_asked_for(monkeypatch):
    leaves, head, teacher = problem(tokens=40)
    products, compared = [], []
    original = OutputHead.product
    monkeypatch.setattr(head_module.OutputHead, "product", lambda *a: products.append(original(*a)) or products[-1])

    def spy(logps, ref, ids):
        compared.append(logps.shape)
        return kl(logps, ref)

    comparison = Comparison(spy, teacher)
    options = {"block_elements": 4 * VOCAB, "product_elements": 20 * VOCAB}
    distances(leaves[0], head, comparison, **options).sum().backward()
    assert {part.shape for part in products} == {(20, VOCAB)}
    assert len(products) == 2 * 2 * 2
    assert compared == [(4, VOCAB)] * 2 * 10
