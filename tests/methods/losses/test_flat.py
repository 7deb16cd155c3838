from __future__ import annotations

import math

import pytest
import torch

from atwu.methods.component_inputs import LossTerms
from atwu.methods.losses.preference import DIVERGENCES, FLAT

PROBABILITIES = torch.linspace(0, 1, 5, dtype=torch.float64)
ACTIVATION = {
    "total_variation": lambda x: math.tanh(x) / 2,
    "kl": lambda x: x,
    "jensen_shannon": lambda x: math.log(2 / (1 + math.exp(-x))),
    "pearson": lambda x: x,
}
CONJUGATE = {
    "total_variation": lambda u: u,
    "kl": lambda u: math.exp(u - 1),
    "jensen_shannon": lambda u: -math.log(2 - math.exp(u)),
    "pearson": lambda u: u * u / 4 + u,
}


@pytest.mark.parametrize("divergence", DIVERGENCES)
def test_equals_the_variational_form(divergence):
    """Activation and conjugate of each divergence, one pair of probabilities at a time."""
    template, forget = torch.meshgrid(PROBABILITIES, PROBABILITIES, indexing="ij")
    g, conjugate = ACTIVATION[divergence], CONJUGATE[divergence]
    expected = [
        conjugate(g(q)) - g(p) for p, q in zip(template.flatten().tolist(), forget.flatten().tolist(), strict=True)
    ]
    template, forget = (each.flatten()[:, None] for each in (template, forget))
    mask = torch.ones_like(forget, dtype=torch.bool)
    terms = LossTerms(forget.log(), mask, alternate_logps=template.log(), alternate_mask=mask)
    found = FLAT(f_divergence=divergence).values(terms, torch.ones_like(forget))
    assert found.tolist() == pytest.approx(expected, abs=1e-12)
