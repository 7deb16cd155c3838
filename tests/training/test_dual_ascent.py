"""The retain weight of PDU over a run."""

from __future__ import annotations

import pytest
import torch

from tests.training.conftest import make_trainer, weights

SETTINGS = {
    "method": "pdu",
    "retain_weight": 2.0,
    "retain_bound": 1.0,
    "dual_step": 0.5,
    "dual_warmup": 0.0,
    "max_steps": 4,
}


def logged(trainer):
    return [entry for entry in trainer.state.log_history if "retain_weight" in entry]


def test_follows_the_retain_loss_of_each_optimizer_step(model_folder, tmp_path):
    """Micro-batches of 2 x 2 give the weights of batches of 4, which are those of the formula."""
    found = []
    for also in ({}, {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}):
        trainer = make_trainer(model_folder, tmp_path, **SETTINGS, **also)
        trainer.train()
        found.append([entry["retain_weight"] for entry in logged(trainer)])
    expected, weight = [], 2.0
    for entry in logged(trainer):
        expected.append(weight)
        weight = max(0.0, weight + 0.5 * (entry["retain_loss"] - 1.0))
    assert found[1] == pytest.approx(expected, rel=1e-5)
    assert found[0] == pytest.approx(found[1], rel=1e-4)
    assert trainer.recipe.values["retain_weight"] == 2.0  # the record keeps the initial value


def test_stays_constant_before_the_warmup_ends(model_folder, tmp_path):
    """24 rows in batches of 4: 6 steps an epoch."""
    trainer = make_trainer(model_folder, tmp_path, **SETTINGS | {"dual_warmup": 1.0, "max_steps": 9})
    trainer.train()
    changed = [entry["retain_weight"] != 2.0 for entry in logged(trainer)]
    assert changed == [False] * 7 + [True] * 2


def test_a_resumed_run_has_the_same_result(model_folder, tmp_path):
    settings = SETTINGS | {"save_strategy": "steps", "save_steps": 2}
    whole = make_trainer(model_folder, tmp_path / "whole", **settings)
    whole.train()
    again = make_trainer(model_folder, tmp_path / "again", **settings)
    again.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-2"))
    assert torch.equal(weights(again), weights(whole))
    assert again.dual.multiplier == whole.dual.multiplier
