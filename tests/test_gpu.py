"""The same numbers on a CUDA device, in half precision too."""

from __future__ import annotations

import pytest
import torch

import atwu
from atwu.modeling.forward import forward_tokens

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


def on_gpu(rows):
    return {name: tensor.cuda() for name, tensor in rows.items()}


def test_packed_rows_equal_the_cpu(tiny_llama, batch):
    rows = batch(rows=6)
    (expected,) = forward_tokens(tiny_llama().eval(), [rows])
    (got,) = forward_tokens(tiny_llama().eval().cuda(), [on_gpu(rows)], layout="packed")
    torch.testing.assert_close(got.logps.cpu(), expected.logps, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("method", list(atwu.METHODS))
def test_bfloat16_losses_and_gradients_are_close(method, tiny_llama, batch):
    forget, retain = batch(seed=1), batch(seed=2)
    exact = atwu.unlearning_loss(tiny_llama(), forget, retain, method=method)
    model = tiny_llama().cuda().to(torch.bfloat16)
    out = atwu.unlearning_loss(model, on_gpu(forget), on_gpu(retain), method=method)
    assert out.loss.item() == pytest.approx(exact.loss.item(), abs=0.05, rel=0.05)
    out.loss.backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())
