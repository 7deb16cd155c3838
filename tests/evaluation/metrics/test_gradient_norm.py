"""Gradient norms of rows: the mean over tensors, and no change of the model."""

from __future__ import annotations

import pytest
import torch

from atwu.data.encode import EncodedRow
from atwu.evaluation.metrics.gradient_norm import gradient_norms


def encoded(seed: int, *, length: int, start: int) -> EncodedRow:
    ids = torch.randint(3, 64, (length,), generator=torch.Generator().manual_seed(seed)).tolist()
    labels = (-100,) * start + tuple(ids[start:])
    places = [(index, index + 1) if start <= index < length - 1 else None for index in range(length)]
    return EncodedRow(tuple(ids), labels, None, tuple(places), has_terminal=True)


ROWS = [encoded(n, length=6 + 3 * n, start=1 + n) for n in range(3)]


def plain(model, row) -> float:
    """Full logits without the terminal token, one `backward`, norms read off `.grad`."""
    model.zero_grad()
    logps = model(torch.tensor([row.input_ids])).logits[0, :-1].log_softmax(-1)
    losses = [-logps[n, row.input_ids[n + 1]] for n in range(row.answer_start - 1, len(row.input_ids) - 2)]
    (sum(losses) / len(losses)).backward()
    norms = [float(parameter.grad.pow(2).sum().sqrt()) for parameter in model.parameters()]
    model.zero_grad()
    return sum(norms) / len(norms)


@pytest.mark.parametrize("tied", [False, True])
def test_equals_a_plain_backward_pass(tiny_llama, tied) -> None:
    model = tiny_llama(tie_word_embeddings=tied).eval()
    wanted = [plain(model, row) for row in ROWS]
    assert gradient_norms(model, ROWS) == pytest.approx(wanted, rel=1e-4)
    assert gradient_norms(model, ROWS[::-1]) == pytest.approx(wanted[::-1], rel=1e-4)  # nothing accumulates
    with torch.no_grad():
        assert gradient_norms(model, ROWS[:1]) == pytest.approx(wanted[:1], rel=1e-4)


def test_the_model_is_not_changed(tiny_llama) -> None:
    model = tiny_llama(attention_dropout=0.5).train()
    expected = gradient_norms(model.eval(), ROWS)
    model.train()
    parameters = list(model.parameters())
    for index, parameter in enumerate(parameters):
        parameter.requires_grad_(index % 2 == 0)
        parameter.grad = torch.full_like(parameter, 0.5) if index % 3 == 0 else None
    assert gradient_norms(model, ROWS) == pytest.approx(expected)  # frozen parameters count, dropout is off
    assert model.training
    for index, parameter in enumerate(parameters):
        assert parameter.requires_grad == (index % 2 == 0)
        assert (parameter.grad is not None) == (index % 3 == 0)
        assert parameter.grad is None or bool((parameter.grad == 0.5).all())
        parameter.requires_grad_(True)
        parameter.grad = None
    model(torch.tensor([ROWS[0].input_ids])).logits.sum().backward()
    assert all(parameter.grad is not None for parameter in parameters)  # gradients are kept again
