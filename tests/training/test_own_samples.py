"""Own answers of BS-S over a run."""

from __future__ import annotations

import torch

from atwu.data.schema import IGNORE_INDEX
from tests.training.conftest import make_trainer, weights

SETTINGS = {"method": "bs_s", "forget": 8, "save_strategy": "steps", "save_steps": 1, "save_total_limit": 4}


def test_answers_follow_their_questions_and_change_with_the_epoch(model_folder, tmp_path):
    """8 rows in batches of 4: 2 steps an epoch. A run resumed within an epoch goes on with its answers."""
    whole = make_trainer(model_folder, tmp_path / "whole", **SETTINGS)
    seen = []
    forward = whole._token_loss

    def spied(model, inputs, counts):
        seen.append({name: rows.clone() for name, rows in inputs["alternate"].items()} | {"rows": inputs["rows"]})
        return forward(model, inputs, counts)

    whole._token_loss = spied
    whole.train()
    by_epoch = []
    for steps in (seen[:2], seen[2:]):
        answers = {}
        for step in steps:
            for row, ids, labels in zip(step["rows"].tolist(), step["input_ids"], step["labels"], strict=True):
                prompt = torch.tensor(whole.rows.forget.rows[row].prompt_ids)
                assert torch.equal(ids[: len(prompt)], prompt)
                assert (labels[: len(prompt)] == IGNORE_INDEX).all()
                answers[row] = labels[labels != IGNORE_INDEX].tolist()
        assert len(answers) == 8
        assert all(answers.values())
        by_epoch.append(answers)
    assert by_epoch[0] != by_epoch[1]
    for checkpoint in (1, 2):
        again = make_trainer(model_folder, tmp_path / f"again-{checkpoint}", **SETTINGS)
        again.train(resume_from_checkpoint=str(tmp_path / "whole" / f"checkpoint-{checkpoint}"))
        assert torch.equal(weights(again), weights(whole))
