"""Random states in checkpoints: exact, and readable under every version of NumPy."""

from __future__ import annotations

import json
import random

import numpy as np
import torch

from atwu.training.checkpoints import set_random_state, write_random_state
from tests.training.conftest import make_trainer, weights

CPU = torch.device("cpu")


def draw() -> list[float]:
    return [random.random(), random.gauss(), np.random.normal(), np.random.random(), float(torch.randn(()))]


def test_draws_continue_to_the_bit_from_a_written_state(tmp_path):
    draw()  # leaves the second number of a pair of normal draws in the state of Python and of NumPy
    write_random_state(tmp_path / "state.json", CPU)
    expected = draw() + draw()
    random.seed(5)
    np.random.seed(5)
    torch.manual_seed(5)
    set_random_state(tmp_path / "state.json", CPU)
    assert draw() + draw() == expected


def test_a_state_that_another_version_of_numpy_wrote_can_be_read(tmp_path):
    """The first numbers of NumPy's seed 0 are the same in all versions; the state is plain JSON."""
    np.random.seed(0)
    write_random_state(tmp_path / "state.json", CPU)
    np.random.seed(1)
    states = json.loads((tmp_path / "state.json").read_text())
    assert states["numpy"][0] == "MT19937"
    assert len(states["numpy"][1]) == 624
    set_random_state(tmp_path / "state.json", CPU)
    assert np.random.random(2).round(6).tolist() == [0.548814, 0.715189]


def test_checkpoints_contain_no_pickle_of_numpy(model_folder, tmp_path):
    settings = {"method": "grad_diff", "max_steps": 4, "save_strategy": "steps", "save_steps": 2}
    trainer = make_trainer(model_folder, tmp_path / "whole", **settings)
    trainer.train()
    checkpoint = tmp_path / "whole" / "checkpoint-2"
    assert (checkpoint / "random_state.json").is_file()
    for path in checkpoint.iterdir():
        assert b"numpy" not in path.read_bytes() or path.name == "random_state.json", path.name


def test_a_run_with_dropout_continues_to_the_same_bits(model_folder, tmp_path, monkeypatch):
    settings = {"method": "grad_diff", "max_steps": 4, "save_strategy": "steps", "save_steps": 2}
    settings |= {"lora_r": 2, "lora_dropout": 0.5, "learning_rate": 1e-2, "save_adapter": True}
    whole, again = (make_trainer(model_folder, tmp_path / name, **settings) for name in ("whole", "again"))
    whole.train()
    torch.manual_seed(77)
    again.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-2"))
    assert torch.equal(weights(again), weights(whole))
