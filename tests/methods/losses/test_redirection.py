from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import torch

from atwu.methods.component_inputs import LossInputs
from atwu.methods.losses.redirection import Redirection
from atwu.modeling.reference import Reference


def test_worked_example():
    """(1, 0) should become (1, 0) + 2 (1, 1) = (3, 2); the state (3, 0) is (0 + 4) / 2 away."""
    out = SimpleNamespace(layer_states=torch.tensor([[3.0, 0.0]]), to_grid=lambda values: values)
    inputs = LossInputs(Reference(forget_layer=torch.tensor([[1.0, 0.0]])), refusal_direction=torch.tensor([1.0, 1.0]))
    assert Redirection(redirect_coeff=2.0).distance(cast(Any, out), inputs).tolist() == [2.0]
