from __future__ import annotations

import math

import pytest
import torch

from atwu.methods.component_inputs import LossInputs, LossTerms
from atwu.methods.losses.distillation import NoviceTeacher
from atwu.methods.recipe import recipe
from atwu.modeling.batches import TokenBatch
from atwu.modeling.reference import Reference


def test_worked_example():
    """π0 = expert = (1/2, 1/4, 1/4), novice = (1/4, 1/2, 1/4), two tokens, η from 0 to 2, k = 2.

    At the first token q = π0, since of its two equal numbers both stay; KL from uniform is log 3 - 3/2 log 2. At the last one
    q is proportional to (1/8, 1, 1/4), of which the two largest are (4/5, 1/5).
    """
    expert, novice = torch.tensor([0.5, 0.25, 0.25]).log(), torch.tensor([0.25, 0.5, 0.25]).log()
    readings = torch.stack([expert, expert, novice]).expand(2, -1, -1).clone().requires_grad_()
    logits = torch.zeros(2, 3, requires_grad=True)
    loss = NoviceTeacher(eta=2.0, eta_start=0.0, target_tokens=2, target_temperature=1.0)
    found = loss.from_distributions(logits.log_softmax(-1), readings, torch.tensor([[0, 1], [1, 1]]))
    last = 0.8 * math.log(0.8 * 3) + 0.2 * math.log(0.2 * 3)
    assert found.tolist() == pytest.approx([math.log(3) - 1.5 * math.log(2), last])
    found.sum().backward()
    assert logits.grad[1].tolist() == pytest.approx([1 / 3, 1 / 3 - 0.8, 1 / 3 - 0.2], abs=1e-6)  # p - q
    assert readings.grad is None


def test_mean_distance_and_likelihood_of_the_own_answer():
    """Distances 2 and 4 have mean 3; an own answer with log p = -1 and -3 adds 2 times the weight."""
    both = torch.ones(1, 2, dtype=torch.bool)
    own = torch.tensor([[-1.0, -3.0]])
    terms = LossTerms(own, both, alternate_logps=own, alternate_mask=both, distance=torch.tensor([[2.0, 4.0]]))
    assert NoviceTeacher(fluency_weight=0.5).values(terms, torch.ones(1, 2)).tolist() == [4.0]


def test_places_in_the_answer():
    labels = torch.tensor([[-100, -100, 5, 6, 7], [-100, 8, -100, -100, -100]])
    batch = TokenBatch(labels.abs(), torch.ones(2, 5, dtype=torch.bool), labels)
    places = NoviceTeacher().compared_ids(batch, LossInputs(Reference()))
    assert places.tolist() == [[0, 2], [1, 2], [2, 2], [0, 0]]


@pytest.mark.parametrize("name", ["expert_prompt", "novice_prompt"])
def test_an_empty_prompt_is_refused(name):
    with pytest.raises(ValueError, match="expert_prompt or novice_prompt is empty"):
        recipe("elm", **{name: " "})
