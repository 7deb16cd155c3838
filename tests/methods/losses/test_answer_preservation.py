from __future__ import annotations

import math

import pytest
import torch

from atwu.methods.losses.answer_preservation import answer_preservation


@pytest.mark.parametrize(("answer", "alternate"), [(-3.0, -3.0), (-3.0, -20.0), (-20.0, -3.0)])
def test_equals_the_formula(answer, alternate):
    """1/b log(1 + exp(-b gap)): 10 log 2 for equally likely answers and b = 0.1."""
    found = answer_preservation(torch.tensor([answer]), torch.tensor([alternate]), beta=0.1)
    assert found.item() == pytest.approx(10 * math.log(1 + math.exp(-0.1 * (answer - alternate))), rel=1e-6)


def test_the_gradient_fades_as_the_answer_wins():
    answer = torch.tensor([-50.0, 0.0, 50.0], requires_grad=True)
    answer_preservation(answer, torch.zeros(3), beta=0.1).sum().backward()
    assert answer.grad.tolist() == pytest.approx([-1 / (1 + math.exp(-5)), -0.5, -1 / (1 + math.exp(5))], rel=1e-5)
