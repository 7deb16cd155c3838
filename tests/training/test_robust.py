"""The forget loss at perturbed weights: by hand, against plain passes over perturbed copies, and over whole runs."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch

from atwu.methods.objective import micro_batch_loss
from atwu.training.gradient_changes import (
    gaussian_noise,
    perturbed_weights,
)
from tests.training.conftest import make_trainer, weights

RADIUS = 0.05


@pytest.fixture
def pair():
    return torch.nn.Parameter(torch.tensor([3.0, 0.0])), torch.nn.Parameter(torch.tensor([[2.0]]))


def test_weights_are_restored_bit_by_bit_also_after_errors(pair):
    before = [weight.detach().clone() for weight in pair]
    moves = [torch.full_like(weight, 0.1) for weight in pair]

    def fail():
        with perturbed_weights(pair, moves):
            torch.testing.assert_close(pair[0].detach(), before[0] + 0.1)
            raise RuntimeError("on the way")

    with pytest.raises(RuntimeError, match="on the way"):
        fail()
    assert all(torch.equal(weight, kept) for weight, kept in zip(pair, before, strict=True))


def test_noise_has_the_requested_size():
    weight = torch.nn.Parameter(torch.randn(200, 300, generator=torch.Generator().manual_seed(0)) * 7)
    (drawn,) = gaussian_noise([weight], deviation=0.1, seed=[1, 2])
    (again,) = gaussian_noise([weight], deviation=0.1, seed=[1, 2])
    (other,) = gaussian_noise([weight], deviation=0.1, seed=[1, 3])
    assert torch.equal(drawn, again)
    assert not torch.equal(drawn, other)
    assert drawn.std().item() == pytest.approx(0.7, rel=0.02)
    assert drawn.mean().item() == pytest.approx(0, abs=0.01)


def gradients(loss, model):
    model.zero_grad()
    loss.backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


@pytest.mark.parametrize("how", [{"sam_radius": RADIUS}, {"weight_noise": 0.1}], ids=["sam", "noise"])
@pytest.mark.parametrize(
    ("method", "bf16"),
    [("atwu", False), ("atwu", True), ("undial", False), ("grad_ascent", False), ("rmu", False)],
)
def test_equals_plain_passes_over_a_perturbed_copy(method, how, bf16, model_folder, tmp_path):
    # An untrained model has no saturated tokens.
    beta = {"beta": 0.3} if method == "atwu" else {}
    trainer = make_trainer(model_folder, tmp_path, method=method, bf16=bf16, cache_dir=str(tmp_path), **beta, **how)
    model = trainer.model.train()
    batches = iter(trainer.get_train_dataloader())
    (inputs,), counts = trainer.get_batch_samples(batches, 1, torch.device("cpu"))
    inputs = trainer._prepare_inputs(inputs)
    with trainer.compute_loss_context_manager():
        found = gradients(trainer.compute_loss(model, inputs, num_items_in_batch=counts), model)

    def parts(network, recipe):
        given = trainer.precomputed.loss_inputs(model, inputs)
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            return micro_batch_loss(network, inputs, recipe, scorer=trainer.scorer, inputs=given, batch_counts=counts)

    recipe = trainer.recipe
    factors = recipe.factors
    alone = dataclasses.replace(recipe, retain_loss="none", retain_component=None)
    beside = copy.deepcopy(model)
    names = [name for name, weight in model.named_parameters() if weight.requires_grad]
    if "sam_radius" in how:
        slope = gradients(parts(model, recipe).forget, model)
        length = sum(slope[name].square().sum() for name in slope).sqrt()
        moves = [RADIUS * slope.get(name, torch.zeros(())) / length for name in names]
    else:
        drawn = (trainer.args.seed, 0, *inputs["rows"].tolist())
        moves = list(gaussian_noise([model.get_parameter(name) for name in names], deviation=0.1, seed=drawn))
    with torch.no_grad():
        for name, move in zip(names, moves, strict=True):
            beside.get_parameter(name).add_(move)
    expected = gradients(factors.forget_weight * parts(beside, alone).forget, beside)
    if recipe.retain_component is not None:
        kept = gradients(factors.retain_weight * parts(model, recipe).retain, model)
        expected = {name: expected.get(name, 0) + kept.get(name, 0) for name in expected | kept}
    plain = gradients(parts(model, recipe).loss, model)
    assert found.keys() == expected.keys()
    scale = max(value.abs().max() for value in expected.values())
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, atol=float(scale) * (2e-2 if bf16 else 1e-5), rtol=0)
    apart = max((plain[name] - expected[name]).abs().max() for name in expected)
    assert bf16 or apart > scale * 1e-3  # the move matters


@pytest.mark.parametrize(
    "also",
    [
        {"lora_r": 2},
        {"scorer_procedure": "joint"},
        {"reference": "model", "retain_loss": "kl"},
    ],
    ids=lambda also: next(iter(also)),
)
def test_perturbation_combines_with_other_options(also, model_folder, tmp_path):
    found = {}
    for how in ({}, {"sam_radius": RADIUS}, {"weight_noise": 0.05}):
        trainer = make_trainer(model_folder, tmp_path, max_steps=2, cache_dir=str(tmp_path), **also, **how)
        trainer.train()
        found[next(iter(how), "plain")] = weights(trainer)
    plain = found.pop("plain")
    for moved_weights in found.values():
        assert torch.isfinite(moved_weights).all()
        assert not torch.equal(moved_weights, plain)


def test_activation_checkpointing_does_not_change_results(model_folder, tmp_path):
    found = []
    for again in (False, True):
        trainer = make_trainer(model_folder, tmp_path, max_steps=2, activation_checkpointing=again, sam_radius=RADIUS)
        trainer.train()
        found.append(weights(trainer))
    torch.testing.assert_close(*found, atol=1e-6, rtol=0)
