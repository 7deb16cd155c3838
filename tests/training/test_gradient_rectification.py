"""Gradient rectification: by hand, against plain vectors over two optimizer steps, and over whole runs."""

from __future__ import annotations

import pytest
import torch

from atwu.training.gradient_changes import GradientRectification, opposing_share
from tests.training.conftest import make_trainer, weights


@pytest.mark.parametrize(("forget", "expected"), [((-1.0, 1.0), -0.5), ((1.0, 1.0), 0.0), ((0.0, 3.0), 0.0)])
def test_opposing_share_by_hand(forget, expected):
    """<(-1, 1), (2, 0)> / <(2, 0), (2, 0)> = -1/2."""
    assert opposing_share({"w": torch.tensor(forget)}, {"w": torch.tensor([2.0, 0.0])}) == expected


def test_equals_plain_vectors_over_steps_of_two_micro_batches():
    """The published steps on flat vectors: moving average, projection where the product is negative, retain gradient added."""
    generator = torch.Generator().manual_seed(3)
    model = torch.nn.Linear(3, 2).double()
    rectification, average = GradientRectification(model, 0.8), torch.zeros(8, dtype=torch.float64)
    for _ in range(4):
        forget, retain = torch.randn(2, 2, 8, generator=generator, dtype=torch.float64)
        flat = torch.nn.utils.parameters_to_vector(model.parameters())
        model.zero_grad()
        for index in range(2):
            rectification.collect(retain[index] @ flat)
            ((forget[index] + retain[index]) @ flat).backward(retain_graph=True)
        rectification.change()
        f, r = forget.sum(0), retain.sum(0)
        average = 0.8 * r + 0.2 * average
        if f @ average < 0:
            f = f - (f @ average) / (average @ average) * average
        found = torch.cat([each.grad.flatten() for each in model.parameters()])
        torch.testing.assert_close(found, f + r, atol=1e-12, rtol=0)


def test_a_preserve_loss_counts_as_retain_and_a_replacement_loss_as_forget(model_folder, tmp_path):
    """One optimizer step against the gradients of the four terms, each from a backward pass of its own."""
    options = {"method": "gt_ga", "preserve": "nll", "replacement": "refusal", "forget_weight": 5.0}
    trainer = make_trainer(model_folder, tmp_path, rectify_gradient=1.0, preserve_weight=0.5, **options)
    trainer.model.eval()
    batch = next(iter(trainer.get_train_dataloader()))
    parameters = list(trainer.model.parameters())

    def gradient(term: str) -> torch.Tensor:
        loss = getattr(trainer.micro_batch_loss(trainer.model, batch, trainer.recipe), term)
        return torch.cat([part.flatten() for part in torch.autograd.grad(loss, parameters, materialize_grads=True)])

    values = trainer.recipe.values
    forget = 5.0 * gradient("forget") + values["replacement_weight"] * gradient("replacement")
    kept = values["retain_weight"] * gradient("retain") + 0.5 * gradient("preserve")
    assert forget @ kept < 0
    expected = forget - (forget @ kept) / (kept @ kept) * kept + kept

    trainer.model.train()
    trainer.compute_loss(trainer.model, batch).backward()
    trainer.gradient_change.change()
    rectified = torch.cat([weight.grad.flatten() for weight in parameters])
    torch.testing.assert_close(rectified, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("also", [{"lora_r": 2, "gradient_accumulation_steps": 2, "per_device_train_batch_size": 2}])
def test_runs_differ_from_plain_ones(also, model_folder, tmp_path):
    found = []
    for share in (0.0, 1.0):
        trainer = make_trainer(
            model_folder, tmp_path, method="grad_diff", forget_weight=5.0, max_steps=3, rectify_gradient=share, **also
        )
        trainer.train()
        found.append(weights(trainer))
    assert torch.isfinite(found[1]).all()
    assert not torch.equal(*found)
    assert max(entry["rectified"] for entry in trainer.state.log_history if "rectified" in entry) > 0
