"""Modes are changed within a context and restored afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

from atwu.modeling.modes import eval_mode, full_precision
from tests.modeling.small_models import small_model


@pytest.fixture(autouse=True)
def own_accelerator() -> Iterator[None]:
    """An accelerator of another test in this process may have another precision."""
    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


def test_full_precision_removes_the_wrapper_of_a_trainer() -> None:
    model, ids = small_model("llama"), torch.tensor([[5, 9, 2, 7]])
    with torch.no_grad(), eval_mode(model):
        plain = model(input_ids=ids).logits
        Accelerator(mixed_precision="bf16", cpu=True).prepare_model(model)
        rounded = model(input_ids=ids).logits
        with full_precision(model):
            assert torch.equal(model(input_ids=ids).logits, plain)
        assert not torch.equal(rounded, plain)
        assert torch.equal(model(input_ids=ids).logits, rounded)


def test_full_precision_without_wrapper_and_after_an_error() -> None:
    model = small_model("llama")
    with full_precision(model):
        assert "forward" not in vars(model)
    Accelerator(mixed_precision="bf16", cpu=True).prepare_model(model)
    before = vars(model)["forward"]
    with pytest.raises(RuntimeError, match="on the way"), full_precision(model):
        raise RuntimeError("on the way")
    assert vars(model)["forward"] is before
