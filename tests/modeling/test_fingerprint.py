"""Fingerprints of model weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from atwu.modeling.fingerprint import model_fingerprint


def test_fingerprint_depends_on_every_bit_and_shape():
    first, second, empty = nn.Linear(2, 3), nn.Linear(2, 3), nn.Linear(0, 3)
    second.load_state_dict(first.state_dict())
    assert model_fingerprint(first) == model_fingerprint(second) != model_fingerprint(empty)
    second.bias.data[2] = torch.nextafter(second.bias.data[2], torch.tensor(9.0))
    assert model_fingerprint(first) != model_fingerprint(second)


@pytest.mark.parametrize("part", ["device_mesh", "ds_id"])
def test_sharded_weights_have_no_fingerprint(part):
    model = nn.Linear(2, 3)
    setattr(model.weight, part, 0)
    with pytest.raises(ValueError, match="processes"):
        model_fingerprint(model)


def test_weights_that_are_not_loaded_have_no_fingerprint():
    with pytest.raises(ValueError, match="not loaded"):
        model_fingerprint(nn.Linear(2, 3, device="meta"))
