"""Collapse of leading gradient components: by hand, identities, against the published steps in NumPy, and in runs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model

from atwu.training.gradient_changes import ComponentCollapse, collapse_components
from tests.training.conftest import logged, make_trainer, weights


def published(gradient, components):
    """The collapse of the published code, one side after the other, with an exact decomposition in float64."""
    matrix = np.asarray(gradient, dtype=np.float64)
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    left, values, right = left[:, :components], values[:components], right[:components].T
    size = values / values.min()
    for basis in (right, left):
        projected = matrix @ basis
        matrix = (matrix - (projected - projected / size) @ basis.T).T
    return matrix


def random_matrix(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("components", "expected"), [(0, (4, 2, 1)), (1, (4, 2, 1)), (2, (1, 2, 1)), (3, (1 / 4, 1 / 2, 1))]
)
def test_by_hand(components, expected):
    """Of values (4, 2, 1), the leading two become 4 (2/4)^2 = 1 and 2, all three 4 (1/4)^2 = 1/4, 2 (1/2)^2 = 1/2 and 1."""
    collapsed = collapse_components(torch.diag(torch.tensor([4.0, 2.0, 1.0])), components=components)
    torch.testing.assert_close(collapsed, torch.diag(torch.tensor(expected, dtype=torch.float32)))


def test_no_component_changes_nothing():
    gradient = random_matrix(5, 7)
    assert torch.equal(collapse_components(gradient, components=0), gradient)


def test_equal_components_stay_as_they_are():
    """A matrix whose singular values are all 3 has no component that dominates."""
    gradient = 3 * torch.linalg.qr(random_matrix(6, 6)).Q
    torch.testing.assert_close(collapse_components(gradient, components=4), gradient)


@pytest.mark.parametrize("shape", [(6, 9), (9, 6), (40, 60)])
@pytest.mark.parametrize("components", [2, 4])
def test_equals_the_published_steps(shape, components):
    # Falling values as those of a gradient, so that the randomized decomposition of the larger matrix is accurate.
    left, _, right = torch.linalg.svd(random_matrix(*shape), full_matrices=False)
    gradient = (left * 0.5 ** torch.arange(left.shape[1])) @ right
    collapsed = collapse_components(gradient, components=components)
    expected = published(gradient.numpy(), components)
    np.testing.assert_allclose(collapsed.numpy(), expected, atol=1e-6)
    assert not np.allclose(expected, gradient.numpy(), atol=1e-2)


def test_rounding_errors_are_no_component():
    """A gradient of rank 2: with four components its two collapse to (1/4) and 2 as with two, not to nothing."""
    gradient = 4 * torch.outer(*torch.linalg.qr(random_matrix(6, 6)).Q[:2])
    other = torch.linalg.qr(torch.stack([gradient[0], random_matrix(6, seed=1)]).T).Q[:, 1]
    normal = torch.linalg.qr(torch.stack([gradient[:, 0], random_matrix(6, seed=2)]).T).Q[:, 1]
    gradient = gradient + 2 * torch.outer(normal, other)
    four = torch.linalg.svdvals(collapse_components(gradient, components=4))
    torch.testing.assert_close(four[:2], torch.tensor([2.0, 1.0]), atol=1e-4, rtol=1e-4)


def test_each_expert_has_components_of_its_own():
    experts = random_matrix(3, 5, 4)
    together = collapse_components(experts, components=2)
    for expert, collapsed in zip(experts, together, strict=True):
        torch.testing.assert_close(collapsed, collapse_components(expert, components=2))


def test_random_numbers_of_the_run_stay_the_same():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first = collapse_components(random_matrix(40, 60), components=3)
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(collapse_components(random_matrix(40, 60), components=3), first)


def test_an_optimizer_step_collapses_the_forget_gradient_of_decoder_matrices_alone(model_folder, tmp_path):
    """Against the two gradients, each from a backward pass of its own; the collapsed one keeps its length."""
    trainer = make_trainer(model_folder, tmp_path, method="grad_diff", forget_weight=5.0, collapse_components=3)
    trainer.model.eval()
    batch = next(iter(trainer.get_train_dataloader()))
    named = dict(trainer.model.named_parameters())

    def gradient(term, factor):
        loss = factor * getattr(trainer.micro_batch_loss(trainer.model, batch, trainer.recipe), term)
        parts = torch.autograd.grad(loss, list(named.values()), materialize_grads=True)
        return dict(zip(named, parts, strict=True))

    forget, retain = gradient("forget", 5.0), gradient("retain", trainer.recipe.values["retain_weight"])
    matrices = [name for name, weight in named.items() if ".layers." in name and weight.dim() == 2]
    plain = {name: torch.tensor(published(forget[name].numpy(), 3), dtype=torch.float32) for name in matrices}
    before, after = (sum(part[name].square().sum() for name in matrices) for part in (forget, plain))
    expected = {name: retain[name] + plain.get(name, 0.0) * (before / after).sqrt() for name in named}

    trainer.model.train()
    trainer.compute_loss(trainer.model, batch).backward()
    share = trainer.gradient_change.change()
    assert share == pytest.approx(float(1 - after / before), abs=1e-3)
    assert 0.1 < share < 1
    for name, weight in named.items():
        torch.testing.assert_close(weight.grad, expected[name], atol=2e-4, rtol=1e-3)


def test_without_a_retain_loss_other_weights_do_not_move(model_folder, tmp_path):
    trainer = make_trainer(
        model_folder, tmp_path, method="grad_ascent", collapse_components=3, max_steps=2, weight_decay=0.0
    )
    before = {name: weight.detach().clone() for name, weight in trainer.model.named_parameters()}
    trainer.train()
    moved = {name for name, weight in trainer.model.named_parameters() if not torch.equal(weight, before[name])}
    assert moved
    assert all(".layers." in name and before[name].dim() == 2 for name in moved)


def test_runs_differ_from_plain_ones(model_folder, tmp_path):
    ends = []
    for components in (0, 4):
        trainer = make_trainer(
            model_folder,
            tmp_path,
            method="atwu",
            max_steps=3,
            collapse_components=components,
            gradient_accumulation_steps=2,
            per_device_train_batch_size=2,
        )
        trainer.train()
        ends.append(weights(trainer))
    assert torch.isfinite(ends[1]).all()
    assert not torch.equal(*ends)
    assert all(0 < share < 1 for share in logged(trainer, "collapsed"))


def test_a_model_with_adapters_is_refused(model_folder, tmp_path):
    model = make_trainer(model_folder, tmp_path).model
    adapted = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"]))
    with pytest.raises(ValueError, match=r"whole weight matrices.*without adapters"):
        ComponentCollapse(adapted, 3)
