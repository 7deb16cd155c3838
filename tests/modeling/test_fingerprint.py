"""The name of exact weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from atwu.modeling.fingerprint import model_fingerprint


def test_every_bit_and_shape_counts_and_empty_tensors_have_one():
    first, second, empty = nn.Linear(2, 3), nn.Linear(2, 3), nn.Linear(0, 3)
    second.load_state_dict(first.state_dict())
    assert model_fingerprint(first) == model_fingerprint(second) != model_fingerprint(empty)
    second.bias.data[2] = torch.nextafter(second.bias.data[2], torch.tensor(9.0))
    assert model_fingerprint(first) != model_fingerprint(second)


@pytest.mark.parametrize("part", ["device_mesh", "ds_id"])
def test_weights_of_which_a_process_holds_a_part_have_none(part):
    model = nn.Linear(2, 3)
    setattr(model.weight, part, 0)
    with pytest.raises(ValueError, match="processes"):
        model_fingerprint(model)


def test_weights_that_were_never_read_have_none():
    with pytest.raises(ValueError, match="never read"):
        model_fingerprint(nn.Linear(2, 3, device="meta"))
