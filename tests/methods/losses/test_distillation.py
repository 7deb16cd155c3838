from __future__ import annotations

import pytest
import torch

from atwu.methods.losses.distillation import TopLogits, mean_at_start
from atwu.methods.recipe import recipe


def test_worked_example():
    """Teacher (4, 1, 3): of its two largest logits 4 and 3, the model has 1 and 3.5: (3 - 1/2) + (1/2)^2 / 2 = 2.625."""
    logits = torch.tensor([[1.0, 9.0, 3.5]], requires_grad=True)
    teacher = torch.tensor([[4.0, 1.0, 3.0]], requires_grad=True)
    value = TopLogits(teacher_tokens=2).from_distributions(logits, teacher, None)
    assert value.tolist() == [2.625]
    value.sum().backward()
    assert logits.grad.tolist() == [[-1.0, 0.0, 0.5]]
    assert teacher.grad is None


def test_mean_of_the_first_counted_tokens():
    """Rows with counted values 2, 4, 6 and 8: the first two have mean 3 and 8; an empty row has 0."""
    values = torch.tensor([[9.0, 2.0, 4.0, 6.0], [8.0, 9.0, 9.0, 9.0], [9.0, 9.0, 9.0, 9.0]])
    mask = torch.tensor([[False, True, True, True], [True, False, False, False], [False] * 4])
    assert mean_at_start(values, mask, first=2).tolist() == [3.0, 8.0, 0.0]


def test_an_empty_prompt_is_refused():
    with pytest.raises(ValueError, match="teacher_prompt is empty"):
        recipe("duet", teacher_prompt=" ")
