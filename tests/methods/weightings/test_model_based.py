"""Entropy weights: the worked example, their sum, and their limits."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from atwu.methods.component_inputs import token_mean
from atwu.methods.losses.likelihood import gradient_ascent
from atwu.methods.weightings.model_based import Entropy, Importance, Saturation

ROWS = torch.tensor([[0.97, 0.01, 0.01, 0.01], [0.4, 0.3, 0.2, 0.1], [0.7, 0.1, 0.1, 0.1]], dtype=torch.float64)
LOGPS = torch.tensor([[0.97, 0.4, 0.7]], dtype=torch.float64).log()
MASK = torch.ones(1, 3, dtype=torch.bool)


def entropy_share(entropy, mask=MASK):
    return Entropy().weights(SimpleNamespace(entropy=entropy, mask=mask))


def entropies(temperature):
    return torch.distributions.Categorical(logits=ROWS.log() / temperature).entropy()[None]


@pytest.mark.parametrize(
    ("temperature", "weights", "loss"),
    [
        (1.0, [0.210679, 1.607855, 1.181466], -0.633693),
        (0.5, [0.007107, 2.369127, 0.623766], -0.797836),
        (0.16, [0.0, 2.998674, 0.001326], -0.916043),
    ],
)
def test_worked_example(temperature, weights, loss):
    got = entropy_share(entropies(temperature))
    assert got[0].tolist() == pytest.approx(weights, abs=1e-6)
    assert token_mean(gradient_ascent(LOGPS, got), MASK).item() == pytest.approx(loss, abs=1e-6)


def test_uniform_at_high_temperature_and_without_uncertainty():
    torch.testing.assert_close(entropy_share(entropies(1e6)), torch.ones(1, 3, dtype=torch.float64))
    assert entropy_share(torch.zeros(1, 3), MASK).tolist() == [[1.0, 1.0, 1.0]]


def test_importance_and_saturation_are_complements_at_exponent_one():
    context = SimpleNamespace(logps=LOGPS.clone().requires_grad_())
    total = Saturation().weights(context) + Importance().weights(context)
    torch.testing.assert_close(total, torch.ones_like(total))
    assert not total.requires_grad
